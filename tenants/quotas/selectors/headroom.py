"""How many GPUs a project can start now in each node pool, and the sentence that explains it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final, NamedTuple

from django.db.models import Q, Sum
from django.utils.translation import gettext as _

from clusters.connection.services.scheduler_config import eviction_exemptions
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from clusters.watch.selectors import free_by_pool
from portal.kit.pages.formatting import gpu_text, gpus_text
from scheduling.forecast.cycle import Flavour
from scheduling.forecast.headroom import (
    COUNTS_FIXED_APART,
    SHARING,
    Bound,
    DeservedUse,
    FixedHeadroom,
    Headroom,
    Headrooms,
    QueueHolding,
    ScarceResource,
    Sharing,
)
from scheduling.model.preemptibility import THRESHOLD, Cause
from scheduling.model.resources import DIMENSIONS, UNLIMITED, ZERO, Limit, Resources, decimal_text
from scheduling.model.snapshot import Queue
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.desired_state import Quotas, quotas_in
from tenants.usage.rules import FixedClaim
from tenants.usage.selectors import fixed_claims_in


@dataclass(frozen=True, slots=True)
class HeadroomContext:
    """Where: names for people. all_pools: its limits hold for all node pools together. stopped: why nothing starts."""

    pool: str
    department: str
    all_pools: bool = False
    stopped: str = ""


def headroom_sentence(found: Headroom | None, place: HeadroomContext) -> str:
    """How much, within quota and over it, what binds it, and what others could have to give back."""
    if place.stopped:
        return _("Nothing can start in %(pool)s: %(why)s") % {"pool": place.pool, "why": place.stopped}
    if found is None:
        return _("Unknown what can start in %(pool)s: no nodes observed yet.") % {"pool": place.pool}
    return " ".join(_parts(found, place))


def _parts(found: Headroom, place: HeadroomContext) -> Iterator[str]:
    yield _amount(found) % {
        "inside": gpus_text(found.inside),
        "over": gpu_text(found.over),
        "all": gpus_text(found.now),
        "fixed": gpu_text(found.fixed.all),
        "kind": _kind(found),
        "pool": place.pool,
    }
    if found.largest < found.now:
        yield _("Largest pod: %(largest)s.") % {"largest": gpus_text(found.largest)}
    yield _bound(found, place)
    if found.fixed.each < found.inside or (found.fixed.bound.department and found.fixed.each < found.now):
        yield _fixed_bound(found.fixed, place)
    for scarce in found.scarce:
        yield _beside(scarce, place)
    if found.back:
        text = _("Up to %(back)s more can be reclaimed from projects over their quota.")
        yield text % {"back": gpus_text(found.back)}


def _amount(found: Headroom) -> str:
    if not found.now:
        return _("Nothing can start in %(pool)s without evictions.")
    if found.fixed.apart and found.fixed.all > found.inside:
        return _unequal_amount(found)
    if not found.inside:
        return _("No quota left in %(pool)s. %(all)s can start over quota%(kind)s.")
    if found.over:
        return _("%(inside)s can start in %(pool)s within quota, %(over)s more over quota%(kind)s.")
    return _("%(inside)s can start in %(pool)s within quota.")


def _unequal_amount(found: Headroom) -> str:
    """Preemptible work uses quota that is still left to non-preemptible work."""
    if found.inside:
        return _(
            "%(all)s can start in %(pool)s: %(inside)s within quota (%(fixed)s if non-preemptible), the others over "
            "quota (preemptible only)."
        )
    if found.fixed.all == found.now:
        return _("%(all)s can start in %(pool)s: over quota if preemptible, within quota if non-preemptible.")
    return _(
        "%(all)s can start in %(pool)s: over quota if preemptible, or %(fixed)s of them within quota if "
        "non-preemptible."
    )


def _kind(found: Headroom) -> str:
    """Which work may start over quota."""
    if found.fixed.apart or not found.fixed.each:
        return _(" (preemptible only)")
    if found.fixed.each >= found.now:
        return ""
    return _(" (non-preemptible: at most %(each)s per workload)") % {"each": gpus_text(found.fixed.each)}


def _fixed_bound(fixed: FixedHeadroom, place: HeadroomContext) -> str:
    """Why less may be non-preemptible."""
    department = _("department %(department)s") % {"department": place.department}
    words = {
        "most": gpus_text(fixed.each),
        "owner": department if fixed.bound.department else _("the project"),
        "deserved": gpus_text(fixed.bound.whole),
        "used": gpu_text(fixed.bound.used),
    }
    if fixed.apart:
        text = _("Non-preemptible: at most %(most)s; such workloads take %(used)s of the %(deserved)s of %(owner)s.")
    else:
        text = _("Non-preemptible: at most %(most)s per workload; %(owner)s deserves %(deserved)s.")
    return text % words


def _bound(found: Headroom, place: HeadroomContext) -> str:
    if found.bound is Bound.FREE:
        return _("No other GPU in the pool is free.") if found.now else _("No free GPU in the pool.")
    if found.bound is Bound.LENDABLE:
        return _("No more quota to borrow.") if found.now else _("No quota left, and none to borrow.")
    limit = _limit(found, found.resource, place)
    return f"{limit[0].upper()}{limit[1:]}."


def _limit(found: Headroom | ScarceResource, resource: str, place: HeadroomContext) -> str:
    words = {
        "limit": _text(resource, found.allowed or 0),
        "use": _use(found, resource),
        "department": place.department,
        "pools": _(" over all node pools") if place.all_pools else "",
    }
    if found.bound is Bound.DEPARTMENT_LIMIT:
        return _("limit of department %(department)s: %(limit)s (%(use)s)") % words
    return _("project limit%(pools)s: %(limit)s (%(use)s)") % words


def _use(found: Headroom | ScarceResource, resource: str) -> str:
    """What pods on nodes use, and what counts against the limit beside that."""
    amounts = {"used": found.used - found.reserved, "reserved": found.reserved}
    words = {key: gpu_text(each) if resource == "gpu" else _text(resource, each) for key, each in amounts.items()}
    if found.reserved:
        return _("%(used)s in use, %(reserved)s reserved for waiting pods") % words
    return _("%(used)s in use") % words


def _beside(scarce: ScarceResource, place: HeadroomContext) -> str:
    """How much CPU or memory there is for all of these GPUs together, and why no more."""
    if scarce.bound is Bound.FREE:
        why = _("no more free on the nodes of these GPUs")
    elif scarce.bound is Bound.LENDABLE:
        why = _("no more quota to borrow")
    else:
        why = _limit(scarce, scarce.name, place)
    if scarce.left:
        words = {"left": _text(scarce.name, scarce.left), "why": why}
        return _("At most %(left)s in total for these pods: %(why)s.") % words
    return _("Only pods without %(name)s requests can start: %(why)s.") % {"name": NAMES[scarce.name], "why": why}


NAMES: Final = {"cpu": "CPU", "memory": "memory"}


def _text(resource: str, amount: int) -> str:
    """Memory is rounded down, which is what can be had."""
    if resource == "gpu":
        return gpus_text(amount)
    if resource == "cpu":
        return f"{gpu_text(amount)} {'CPU' if amount == CORE else 'CPUs'}"
    return f"{decimal_text(amount * 10 // GIB, 10)} GiB"


CORE: Final = 1000
GIB: Final = 2**30


NOTHING_COUNTED: Final = Limit(gpu=0)
"""Without a row no GPU is deserved, and CPU and memory are not counted."""
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
    def place(self) -> tuple[Any, str]:
        """Key of its pods."""
        return self.cluster_id, self.namespace

    @property
    def queue(self) -> str:
        return f"project {self.pk}"

    @property
    def parent(self) -> str:
        return f"department {self.department_id}"


def headrooms_of(projects: Collection[Project], pools: Sequence[NodePool]) -> Mapping[Key, Headroom]:
    """Of these projects in the pools of their clusters, where a node was seen. Queries do not grow with either."""
    requested = {project.pk for project in projects}
    rooms = free_by_pool(pools)
    reading = HeadroomInputs(pools, requested)
    found: dict[Key, Headroom] = {}
    for pool in pools:
        rows = reading.rows[pool.cluster_id]
        if pool.pk in rooms and requested & {row.pk for row in rows}:
            queues, holdings = reading.queues(pool), reading.holdings(pool)
            asks = not flavour_for(pool.cluster.flavour).traits.queues_by_pool
            sharing = sharing_on(pool.cluster)
            headrooms = Headrooms(
                queues,
                holdings,
                rooms[pool.pk],
                sharing=sharing,
                every_pod_asks=asks,
                apart=pool.cluster.flavour in COUNTS_FIXED_APART,
                promised=reading.promised(pool),
            )
            found |= {(row.pk, pool.pk): headrooms.of(row.queue) for row in rows if row.pk in requested}
    return found


def sharing_on(cluster: Cluster) -> Sharing:
    """How its scheduler shares, as it is configured."""
    return Sharing.TAKEN if Cause.RECLAIM in eviction_exemptions(cluster).causes else SHARING[Flavour(cluster.flavour)]


class HeadroomInputs:
    """Quotas of the projects of some clusters, and what their pods hold. Four queries, one more for kube-scheduler.

    asked: ids of projects whose headroom is wanted. Beside them only those are read that have pods, or lend quota that
    they do not use: others do not count. None: all projects are read.
    """

    def __init__(self, pools: Sequence[NodePool], requested: Collection[int] | None = None) -> None:
        clusters = {pool.cluster_id for pool in pools}
        self._pools = pools
        self._pods = _pods(clusters)
        by_class = {pool.cluster_id for pool in pools if not flavour_for(pool.cluster.flavour).traits.queues_by_pool}
        self._claims = fixed_claims_in(by_class) if by_class and requested is not None else {}
        self.rows: defaultdict[Any, list[_Row]] = defaultdict(list)
        projects = Project.objects.filter(cluster__in=clusters).order_by("pk")
        if requested is not None:
            lending = {pool.cluster_id for pool in pools if sharing_on(pool.cluster) is Sharing.LENT}
            busy = {namespace for _cluster, namespace in self._pods}
            claiming = {project for project, _pool in self._claims}
            projects = projects.filter(
                Q(pk__in={*requested, *claiming}) | Q(namespace__in=busy) | Q(cluster__in=lending)
            )
        read = list(starmap(_Row, projects.values_list("pk", "cluster_id", "namespace", "department_id")))
        for row in read:
            self.rows[row.cluster_id].append(row)
        keys = [pool.pk for pool in pools]  # in a filter, an instance costs Django more than its row
        quotas = ProjectQuota.objects.filter(node_pool__in=keys, project__in=[row.pk for row in read])
        self.projects: Quotas = quotas_in(quotas)
        self.departments: Quotas = quotas_in(DepartmentQuota.objects.filter(node_pool__in=keys))

    def queues(self, pool: NodePool) -> Iterator[Queue]:
        """As the scheduler of the pool's cluster has them: kube-scheduler one per namespace, for all pools together."""
        rows, traits = self.rows[pool.cluster_id], flavour_for(pool.cluster.flavour).traits
        if not traits.queues_by_pool:
            yield from (Queue(row.queue, deserved=amounts[0], limit=amounts[1]) for row, amounts in self._sums(pool))
            return
        root = ROOT if traits.root_above else None
        for parent, number in {row.parent: row.department_id for row in rows}.items():
            yield _queue(parent, root, self.departments, (number, pool.pk))
        for row in rows:
            yield _queue(row.queue, row.parent, self.projects, (row.pk, pool.pk))

    def _sums(self, pool: NodePool) -> Iterator[tuple[_Row, tuple[Limit, Limit]]]:
        """Deserved and limit over all pools; one without a limit leaves the sum without one."""
        pools = [each.pk for each in self._pools if each.cluster_id == pool.cluster_id]
        for row in self.rows[pool.cluster_id]:
            quotas = [self.projects.get((row.pk, pk)) for pk in pools]
            deserved = _sum(quota.deserved.gpu if quota else 0 for quota in quotas)
            limits = [quota.limit if quota else UNLIMITED for quota in quotas]
            limit = Limit(*(_sum(getattr(each, name) for each in limits) for name in DIMENSIONS))
            yield row, (Limit(gpu=deserved), limit)

    def holdings(self, pool: NodePool) -> Mapping[str, QueueHolding]:
        """Of queues with pods. Where quota counts from the moment that a pod exists, pods without a node count, too."""
        traits = flavour_for(pool.cluster.flavour).traits
        created = traits.queues_jobs or not traits.queues_by_pool
        names = [pool.name] if traits.queues_by_pool else None
        rows = [row for row in self.rows[pool.cluster_id] if row.place in self._pods]
        return {row.queue: self._held(row, names, created=created) for row in rows}

    def _held(self, row: _Row, pools: Collection[str] | None, *, created: bool) -> QueueHolding:
        by_pool = self._pods[row.place]
        found = [sums for name, sums in by_pool.items() if pools is None or name in pools]
        amounts = sum((each.created if created else each.held for each in found), ZERO)
        reserved = amounts - sum((each.placed for each in found), ZERO)
        fixed, beside = sum(each.fixed for each in found), Resources(0, amounts.cpu, amounts.memory)
        return QueueHolding(amounts.gpu, fixed, beside, reserved)

    def promised(self, pool: NodePool) -> Mapping[str, Sequence[DeservedUse]]:
        """By queue of kube-scheduler: the deserved quotas that its cluster or Rung hold non-preemptible work to.

        The cluster counts priorities from 100 in all node pools. Rung counts workloads that run or wait, by pool where
        several have a quota, and by department.
        """
        rows = [] if flavour_for(pool.cluster.flavour).traits.queues_by_pool else self.rows[pool.cluster_id]
        departments = Counter[int]()
        for row in rows:
            claim = self._claims.get((row.pk, pool.name), FixedClaim())
            deserved = _deserved(self.projects, (row.pk, pool.pk))
            departments[row.department_id] += max(min(claim.all, deserved), claim.sent)
        return {row.queue: tuple(self._promised(row, pool, departments[row.department_id])) for row in rows}

    def _promised(self, row: _Row, pool: NodePool, of_department: int) -> Iterator[DeservedUse]:
        pools = [each.pk for each in self._pools if each.cluster_id == pool.cluster_id]
        deserved = {pk: _deserved(self.projects, (row.pk, pk)) for pk in pools}
        yield DeservedUse(sum(deserved.values()), sum(each.guarded for each in self._pods.get(row.place, {}).values()))
        if any(amount for pk, amount in deserved.items() if pk != pool.pk):
            yield DeservedUse(deserved[pool.pk], self._claims.get((row.pk, pool.name), FixedClaim()).all)
        yield DeservedUse(_deserved(self.departments, (row.department_id, pool.pk)), of_department, department=True)


def _deserved(quotas: Quotas, key: Key) -> int:
    """GPU thousandths; without a row none."""
    quota = quotas.get(key)
    return (quota.deserved.gpu or 0) if quota else 0


def _queue(name: str, parent: str | None, quotas: Quotas, key: Key) -> Queue:
    quota = quotas.get(key)
    if quota is None:
        return Queue(name, parent, deserved=NOTHING_COUNTED)
    return Queue(name, parent, deserved=quota.deserved, limit=quota.limit)


def _sum(amounts: Iterable[int | None]) -> int | None:
    known = list(amounts)
    return None if None in known else sum(each or 0 for each in known)


class _PodSums(NamedTuple):
    """Of the pods that exist, of what is held of nodes, of the pods on nodes, and GPUs of those that nothing may evict.

    held: pods that stay on their nodes, and the larger of what terminates there and what waits with a node nominated.
    The latter takes what the former frees, so that both count once. guarded: GPUs of priorities from 100.
    """

    created: Resources
    held: Resources
    placed: Resources
    fixed: int
    guarded: int


def _pods(clusters: Collection[Any]) -> Mapping[tuple[Any, str], Mapping[str, _PodSums]]:
    """By (cluster, namespace) and pool."""
    found: defaultdict[tuple[Any, str], dict[str, _PodSums]] = defaultdict(dict)
    placed, leaves, fixed = ~Q(node_name=""), Q(deletion_at__isnull=False), Q(preemptible=False)
    comes = ~placed & ~Q(nominated_node="") & ~leaves
    kinds = {"stays": placed & ~leaves, "ends": placed & leaves, "comes": comes}
    rows = ObservedPod.objects.live().filter(cluster__in=clusters).values_list("cluster_id", "namespace", "pool_name")
    amounts = ("gpu_milli", "cpu_milli", "memory_bytes")
    sums = {
        **{f"created_{name}": Sum(name) for name in amounts},
        **{f"{key}_{name}": Sum(name, filter=which, default=0) for key, which in kinds.items() for name in amounts},
        **{f"fixed_{key}": Sum("gpu_milli", filter=which & fixed, default=0) for key, which in kinds.items()},
        "guarded": Sum("gpu_milli", filter=Q(priority__gte=THRESHOLD), default=0),
    }
    for cluster, namespace, pool, *figures, guarded in rows.order_by().annotate(**sums):
        created, stay, end, come = (Resources(*figures[at : at + 3]) for at in range(0, 12, 3))
        stays, ends, nominated = figures[12:]
        held = stay + end + (come - end).floor()
        fixed_held = stays + max(ends, nominated)
        found[cluster, namespace][pool] = _PodSums(created, held, stay + end, fixed_held, guarded)
    return found
