"""Who may evict whom by priority, before and after a change of the dictionary, as each cluster's scheduler has it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.services.configured import promise_on
from workloads.drafts import Draft

ANYWHERE: Final = "on the whole cluster, in any project"
IN_QUEUE: Final = "inside one queue"
ANY_WORK: Final = "non-preemptible work included"
PREEMPTIBLE: Final = "preemptible work only"
FOREIGN: Final = "Pods that are not Rung's are evicted there, too, by their own number."


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far a higher priority goes. Each part is a promise that the scheduler keeps or does not."""

    inside_queue: bool
    spares_non_preemptible: bool
    obeys_never: bool
    spares_foreign: bool

    @property
    def words(self) -> str:
        place = IN_QUEUE if self.inside_queue else ANYWHERE
        return f"{place}, {PREEMPTIBLE if self.spares_non_preemptible else ANY_WORK}"


def victims_of(clusters: Iterable[Cluster], before: Draft, after: Draft) -> dict[str, Any]:
    """Pairs (who, whom) by value and policy alone, and `scopes`: the same for the clusters that share a reach.

    No scopes where nothing changes for any of them.
    """
    alike: defaultdict[_Reach, list[Cluster]] = defaultdict(list)
    for cluster in clusters:
        alike[_reach_on(cluster)].append(cluster)
    scopes = [_scope(*each, before, after) for each in alike.items()]
    changes = any(each["new"] or each["lost"] for each in scopes)
    return {**_changed(before, after), "scopes": scopes if changes else []}


def _reach_on(cluster: Cluster) -> _Reach:
    def kept(code: str) -> bool:
        return promise_on(cluster, code).enforced != "no"

    return _Reach(
        kept("priority_inside_project"),
        kept("non_preemptible_stays"),
        kept("never_evicts_nobody"),
        kept("foreign_pods_stay"),
    )


def _scope(reach: _Reach, clusters: Iterable[Cluster], before: Draft, after: Draft) -> dict[str, Any]:
    return {
        "clusters": [{"name": each.name, "scheduler": flavour_for(each.flavour).title} for each in clusters],
        "reach": reach.words,
        "foreign": "" if reach.spares_foreign else FOREIGN,
        **_changed(before, after, obeys_never=reach.obeys_never),
    }


def _changed(before: Draft, after: Draft, *, obeys_never: bool = True) -> dict[str, list[list[str]]]:
    old, new = (set(_relations(draft, obeys_never=obeys_never)) for draft in (before, after))
    return {"new": sorted(map(list, new - old)), "lost": sorted(map(list, old - new))}


def _relations(draft: Draft, *, obeys_never: bool) -> Iterator[tuple[str, str]]:
    entries = draft.offered
    for who in entries:
        for whom in entries:
            if who.value > whom.value and not (obeys_never and who.preemption_policy == "Never"):
                yield who.name, whom.name
