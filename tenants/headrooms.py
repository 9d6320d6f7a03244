"""What projects could start now in each node pool: quotas, and pods as last observed, put to `scheduling.headroom`."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, Sum

from clusters.flavours import flavour_for
from clusters.free_rooms import free_rooms
from clusters.models import Cluster, NodePool, ObservedPod
from clusters.services.configured import left_out
from scheduling.cycle import Flavour
from scheduling.decisions import Cause
from scheduling.headroom import SHARING, Headroom, Headrooms, Holding, Sharing
from scheduling.model import Queue
from scheduling.resources import Limit
from tenants.models import DepartmentQuota, Project, ProjectQuota
from tenants.queues import Quotas, quotas_in

ROOT: Final = "all departments"
Key = tuple[int, int]
"""(project id, node pool id)."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A project as its queue needs it."""

    pk: int
    cluster_id: Any
    namespace: str
    department_id: int

    @property
    def queue(self) -> str:
        return f"project {self.pk}"

    @property
    def parent(self) -> str:
        return f"department {self.department_id}"


def headrooms_of(projects: Collection[Project], pools: Sequence[NodePool]) -> Mapping[Key, Headroom]:
    """Of these projects in the pools of their clusters, where a node was seen. Queries do not grow with either."""
    asked = {project.pk for project in projects}
    rooms = free_rooms(pools)
    reading = _Reading(pools)
    found: dict[Key, Headroom] = {}
    for pool in pools:
        rows = reading.rows[pool.cluster_id]
        if pool.pk in rooms and asked & {row.pk for row in rows}:
            queues, holdings = reading.queues(pool), reading.holdings(pool)
            headrooms = Headrooms(queues, holdings, rooms[pool.pk], sharing=_sharing(pool.cluster))
            found |= {(row.pk, pool.pk): headrooms.of(row.queue) for row in rows if row.pk in asked}
    return found


def _sharing(cluster: Cluster) -> Sharing:
    """How its scheduler shares, as it is configured."""
    return Sharing.TAKEN if Cause.RECLAIM in left_out(cluster) else SHARING[Flavour(cluster.flavour)]


class _Reading:
    """Quotas of all projects of some clusters, and what their pods hold. Four queries."""

    def __init__(self, pools: Sequence[NodePool]) -> None:
        clusters = {pool.cluster_id for pool in pools}
        self._pools = pools
        self._projects: Quotas = quotas_in(ProjectQuota.objects.filter(node_pool__in=pools))
        self._departments: Quotas = quotas_in(DepartmentQuota.objects.filter(node_pool__in=pools))
        self._pods = _pods(clusters)
        self.rows: defaultdict[Any, list[_Row]] = defaultdict(list)
        found = Project.objects.filter(cluster__in=clusters).order_by("pk")
        for row in found.values_list("pk", "cluster_id", "namespace", "department_id"):
            self.rows[row[1]].append(_Row(*row))

    def queues(self, pool: NodePool) -> Iterator[Queue]:
        """As the scheduler of the pool's cluster has them: kube-scheduler one per namespace, for all pools together."""
        rows, traits = self.rows[pool.cluster_id], flavour_for(pool.cluster.flavour).traits
        if not traits.queues_by_pool:
            yield from (Queue(row.queue, deserved=amounts[0], limit=amounts[1]) for row, amounts in self._sums(pool))
            return
        root = ROOT if traits.root_above else None
        for parent, number in {row.parent: row.department_id for row in rows}.items():
            yield _queue(parent, root, self._departments, (number, pool.pk))
        for row in rows:
            yield _queue(row.queue, row.parent, self._projects, (row.pk, pool.pk))

    def _sums(self, pool: NodePool) -> Iterator[tuple[_Row, tuple[Limit, Limit]]]:
        """Deserved and limit over all pools; one without a limit leaves the sum without one."""
        pools = [each.pk for each in self._pools if each.cluster_id == pool.cluster_id]
        for row in self.rows[pool.cluster_id]:
            quotas = [self._projects.get((row.pk, pk)) for pk in pools]
            deserved = _sum(quota.deserved.gpu if quota else 0 for quota in quotas)
            limit = _sum(quota.limit.gpu if quota else None for quota in quotas)
            yield row, (Limit(gpu=deserved), Limit(gpu=limit))

    def holdings(self, pool: NodePool) -> Mapping[str, Holding]:
        """Where quota counts from the moment that a pod exists, pods without a node count, too."""
        traits = flavour_for(pool.cluster.flavour).traits
        created = traits.queues_jobs or not traits.queues_by_pool
        names = [pool.name] if traits.queues_by_pool else None
        return {row.queue: self._held(row, names, created=created) for row in self.rows[pool.cluster_id]}

    def _held(self, row: _Row, pools: Collection[str] | None, *, created: bool) -> Holding:
        by_pool = self._pods.get((row.cluster_id, row.namespace), {})
        found = [amounts for name, amounts in by_pool.items() if pools is None or name in pools]
        return Holding(
            sum(each["created" if created else "held"] for each in found), sum(each["fixed"] for each in found)
        )


def _queue(name: str, parent: str | None, quotas: Quotas, key: Key) -> Queue:
    quota = quotas.get(key)
    if quota is None:
        return Queue(name, parent)
    return Queue(name, parent, deserved=Limit(gpu=quota.deserved.gpu), limit=Limit(gpu=quota.limit.gpu))


def _sum(amounts: Iterable[int | None]) -> int | None:
    known = list(amounts)
    return None if None in known else sum(each or 0 for each in known)


def _pods(clusters: Collection[Any]) -> Mapping[tuple[Any, str], Mapping[str, Counter[str]]]:
    """GPUs by (cluster, namespace) and pool: of pods that exist, that are on nodes and stay, and never evicted ones."""
    found: defaultdict[tuple[Any, str], dict[str, Counter[str]]] = defaultdict(dict)
    stays = ~Q(node_name="") & Q(deletion_at=None)
    rows = ObservedPod.objects.live().filter(cluster__in=clusters).values_list("cluster_id", "namespace", "pool_name")
    for cluster, namespace, pool, created, held, fixed in rows.order_by().annotate(
        created=Sum("gpu_milli"),
        held=Sum("gpu_milli", filter=stays, default=0),
        fixed=Sum("gpu_milli", filter=stays & Q(preemptible=False), default=0),
    ):
        found[cluster, namespace][pool] = Counter(created=created, held=held, fixed=fixed)
    return found
