"""What a forecast depends on and Rung cannot see: the same model once more, as it might be instead."""

from collections.abc import Iterator, Sequence

from clusters.models import Cluster
from portal.core.actors import Actor
from scheduling.cycle import preview
from scheduling.decisions import Outcome
from scheduling.model import PodGroup, Snapshot
from tenants.permissions import standing_of
from workloads.forecasts import absent_sentence
from workloads.snapshots import coming_later, workload_of


def doubts(
    cluster: Cluster, actor: Actor, snapshot: Snapshot, candidates: Sequence[PodGroup], outcome: Outcome
) -> Iterator[str]:
    """Stronger workloads that no scheduler sees yet, where it would make a difference that it did."""
    value = candidates[0].priority
    later = {row: groups for row, groups in coming_later(cluster).items() if groups[0].priority > value}
    if not later:
        return
    there = snapshot.with_groups(group for groups in later.values() for group in groups)
    other = preview(there, *candidates, flavour=cluster.flavour)
    if _fate(other) != _fate(outcome):
        visible = set(standing_of(actor).projects().values_list("pk", flat=True))
        names = [row.name if row.project_id in visible else "another project's workload" for row in later]
        evicted = {workload_of(each.victim.name) or each.victim.name for each in other.victims}
        yield absent_sentence(names, starting=other.starting, coming=other.coming, evicted=len(evicted))


def _fate(outcome: Outcome) -> tuple[object, ...]:
    pods = frozenset(pod for evict in outcome.victims for pod in evict.pods)
    return (outcome.kind, outcome.starting, outcome.coming, pods)
