"""Which projects and departments can take quota back from which others now, with names as far as the reader may see."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.utils.translation import gettext as _

from clusters.connection.services.scheduler_config import eviction_assumption
from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import Actor
from scheduling.forecast.headroom import Headrooms, PoolCapacity, QueueLevel, Reclaim, Sharing
from tenants.access.selectors import Access, access_for
from tenants.organisation.models import Project
from tenants.quotas.selectors.headroom import HeadroomInputs, sharing_on
from tenants.quotas.selectors.quota_tree import fair_shares_of, pool_quotas

MOST: Final = 100
"""So many arrows are listed, those with the most GPUs first."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A project or department in a node pool, in GPU thousandths. deserved: None is unlimited.

    hidden: the reader may not see it. It then has no figures, and no name unless a project of the reader is in it.
    """

    kind: str
    name: str
    hidden: bool = False
    anonymous: bool = False
    deserved: int | None = 0
    used: int = 0
    non_preemptible: int = 0
    rank: str = ""
    weight: float = 0

    @property
    def over(self) -> int:
        return 0 if self.deserved is None else max(self.used - self.deserved, 0)


@dataclass(frozen=True, slots=True)
class ReclaimArrow:
    """`taker` can take back at most so many GPU thousandths from `giver` in the pool. by_share: as in `Reclaim`.

    alike: so many arrows look the same to the reader, who may not see the queues at one end; the GPUs are of each.
    """

    pool: str
    taker: QueueFigures
    giver: QueueFigures
    gpu: int
    by_share: bool = False
    alike: int = 1


@dataclass(frozen=True, slots=True)
class Reclaims:
    """sharing: how the scheduler shares. arrows: now possible; left_out: how many more there are. rule: in words, with
    what is assumed of the scheduler's configuration.
    """

    sharing: Sharing
    rule: str
    arrows: tuple[ReclaimArrow, ...] = ()
    left_out: int = 0


def reclaims_on(cluster: Cluster, actor: Actor, *, project: Project | None = None) -> Reclaims:
    """Of what the reader may see; with a project: those that it or its department takes part in.

    Queries do not grow with projects or pools.
    """
    sharing = sharing_on(cluster)
    rule = " ".join(filter(None, (eviction_assumption(cluster), _rule(sharing))))
    if sharing is Sharing.TAKEN:
        return Reclaims(sharing, rule)
    pools = list(cluster.node_pools.select_related("cluster"))
    names = _Names(cluster, access_for(actor), HeadroomInputs(pools))
    own = {f"project {project.pk}", f"department {project.department_id}"} if project else None
    shown = (
        each
        for each in _found(pools, names.inputs, sharing)
        if names.shows(each[2]) and (own is None or own & {each[2].taker, each[2].giver})
    )
    found = sorted(shown, key=lambda each: -each[2].gpu)
    alike = Counter(names.arrow(*each) for each in found)
    arrows = tuple(_merged(arrow, count) for arrow, count in list(alike.items())[:MOST])
    return Reclaims(sharing, rule, arrows, max(len(alike) - MOST, 0))


def _merged(arrow: ReclaimArrow, count: int) -> ReclaimArrow:
    """One arrow for so many that look the same."""
    if count == 1:
        return arrow
    hides_taker = arrow.taker.anonymous
    queue = arrow.taker if hides_taker else arrow.giver
    words = _("%(count)s other projects") if queue.kind == "project" else _("%(count)s other departments")
    named = replace(queue, name=words % {"count": count})
    return replace(arrow, alike=count, taker=named) if hides_taker else replace(arrow, alike=count, giver=named)


Found = tuple[NodePool, Mapping[str, QueueLevel], Reclaim]


def _found(pools: Sequence[NodePool], inputs: HeadroomInputs, sharing: Sharing) -> Iterator[Found]:
    shares = _shares(pools) if sharing is Sharing.RECLAIMED else {}
    for pool in pools:
        levels = Headrooms(inputs.queues(pool), inputs.holdings(pool), PoolCapacity(0, 0), sharing=sharing)
        for each in levels.reclaims(shares.get(pool.pk)):
            yield pool, levels.levels, each


def _shares(pools: Sequence[NodePool]) -> Mapping[int, Mapping[str, int]]:
    """Fair shares in GPU thousandths by pool and queue, of pools with an observed node."""
    return {
        quotas.pool.pk: {f"{key.kind} {key.pk}": share.gpu for key, share in fair_shares_of(quotas).items()}
        for quotas in pool_quotas(pools)
        if quotas.nodes is not None
    }


Pair = tuple[str, str, str, str]
"""Cluster, node pool, taker and giver; a queue is `project <id>` or `department <id>`."""


def reclaimable_gpus(pools: Sequence[NodePool]) -> Mapping[Pair, int]:
    """GPU thousandths that one queue can take back from another now, in these node pools."""
    found: dict[Pair, int] = {}
    for cluster in {pool.cluster_id: pool.cluster for pool in pools}.values():
        sharing, own = sharing_on(cluster), [pool for pool in pools if pool.cluster_id == cluster.pk]
        if sharing is not Sharing.TAKEN:
            for pool, _levels, each in _found(own, HeadroomInputs(own), sharing):
                pair = (cluster.name, pool.name, each.taker, each.giver)
                found[pair] = max(found.get(pair, 0), each.gpu)
    return found


def reclaim_changes(before: Mapping[Pair, int], after: Mapping[Pair, int]) -> dict[str, Any]:
    """The pairs that differ, as JSON: how many are new, lost and changed, and the largest `MOST` with their GPUs."""
    amounts = {pair: (before.get(pair, 0), after.get(pair, 0)) for pair in before.keys() | after.keys()}
    moved = [(pair, *each) for pair, each in amounts.items() if each[0] != each[1]]
    rows = [
        {"cluster": pair[0], "pool": pair[1], "taker": pair[2], "giver": pair[3], "before": old, "after": new}
        for pair, old, new in sorted(moved, key=_relevance)
    ]
    new, lost = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    numbers = {"new": new, "lost": lost, "changed": len(rows) - new - lost}
    return {**numbers, "rows": rows[:MOST], "left_out": max(len(rows) - MOST, 0)}


def _relevance(moved: tuple[Pair, int, int]) -> tuple[bool, int, Pair]:
    """New and lost pairs first, then by GPUs."""
    pair, old, new = moved
    return bool(old and new), -abs(new - old), pair


def reclaim_rows(changes: Mapping[str, Any], actor: Actor) -> list[dict[str, Any]]:
    """Rows of `reclaim_changes` with GPUs in devices, and names as far as the actor may see them."""
    queues = {row[end] for row in changes["rows"] for end in ("taker", "giver")}
    names = _names_of(queues, actor) if queues else {}

    def name(queue: str) -> str:
        return names.get(queue) or _("another %(kind)s") % {"kind": queue.split(maxsplit=1)[0]}

    def named(row: Mapping[str, Any]) -> dict[str, Any]:
        mark = "+" if not row["before"] else "-" if not row["after"] else "~"
        amounts = {end: row[end] / 1000 for end in ("before", "after")}
        return {**row, **amounts, "mark": mark, "taker": name(row["taker"]), "giver": name(row["giver"])}

    return [named(row) for row in changes["rows"] if names.keys() & {row["taker"], row["giver"]}]


def _names_of(queues: Collection[str], actor: Actor) -> Mapping[str, str]:
    """Of projects and departments that the actor may see, and of the departments of these projects."""
    access = access_for(actor)
    kinds = {
        kind: [int(name.split()[1]) for name in queues if name.startswith(kind)] for kind in ("project", "department")
    }
    projects = access.projects().filter(pk__in=kinds["project"]).values_list("pk", "name")
    above = access.projects().filter(department__in=kinds["department"]).values_list("department", "department__name")
    departments = access.departments().filter(pk__in=kinds["department"]).values_list("pk", "name")
    return {
        **{f"project {pk}": name for pk, name in projects},
        **{f"department {pk}": name for pk, name in (*above.distinct(), *departments)},
    }


class _Names:
    """Queues by the names that the reader may see. Three queries."""

    def __init__(self, cluster: Cluster, access: Access, inputs: HeadroomInputs) -> None:
        self.inputs = inputs
        projects = list(
            access.projects().filter(cluster=cluster).values_list("pk", "name", "department_id", "department__name")
        )
        departments = access.departments().filter(cluster=cluster).values_list("pk", "name")
        self._visible: Mapping[str, str] = {
            **{f"project {pk}": name for pk, name, *_department in projects},
            **{f"department {pk}": name for pk, name in departments},
        }
        self._own = {f"department {pk}": name for _pk, _name, pk, name in projects}
        """Departments of visible projects: what they win or lose concerns the reader, who knows their names only."""

    def shows(self, reclaim: Reclaim) -> bool:
        return not {reclaim.taker, reclaim.giver}.isdisjoint(self._visible.keys() | self._own.keys())

    def arrow(self, pool: NodePool, levels: Mapping[str, QueueLevel], found: Reclaim) -> ReclaimArrow:
        """With figures, as far as the reader may see them."""
        taker, giver = (self.figures(levels[name], pool) for name in (found.taker, found.giver))
        return ReclaimArrow(pool.name, taker, giver, found.gpu, found.by_share)

    def figures(self, level: QueueLevel, pool: NodePool) -> QueueFigures:
        kind, _space, key = level.name.partition(" ")
        name = self._visible.get(level.name)
        if name is None:
            own = self._own.get(level.name)
            words = own or _("another %(kind)s") % {"kind": kind}
            return QueueFigures(kind, words, hidden=True, anonymous=own is None)
        rows = self.inputs.projects if kind == "project" else self.inputs.departments
        quota = rows.get((int(key), pool.pk))
        rank, weight = (quota.rank, quota.over_quota_weight) if quota else ("", 0)
        return QueueFigures(
            kind, name, deserved=level.deserved, used=level.used, non_preemptible=level.fixed, rank=rank, weight=weight
        )


def _rule(sharing: Sharing) -> str:
    """When one project takes from another, whatever the figures are now."""
    return str(
        {
            Sharing.TAKEN: _("No quota is reclaimed on this cluster: what another project uses stays with it."),
            Sharing.RECLAIMED: _(
                "Within its deserved quota, a project takes back from any project of its department that goes over its "
                "own; a department within its deserved quota, from any department that goes over. Up to its fair "
                "share, preemptible work also takes back above the deserved quota, from a project or department above "
                "its own fair share. Fair shares follow rank, over-quota weight and what is requested now. Preemptible "
                "workloads only. Projects of a lower rank are reclaimed from first, then those furthest above their "
                "fair share."
            ),
            Sharing.RECLAIMED_BY_QUEUES: _(
                "Within its deserved quota, a project takes back from any project that goes over its own, also of "
                "other departments. Preemptible workloads only. Projects of a higher rank are reclaimed from last."
            ),
            Sharing.LENT: _(
                "Within its deserved quota, a project takes back from any borrower of its department; a department "
                "within its deserved quota, from any department that borrows. Non-preemptible workloads can be "
                "reclaimed, too. Ranks do not count."
            ),
        }[sharing]
    )
