"""What projects use now, as the workloads app reports it; what is sampled from it; the trend over time."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import RECLAIM
from clusters.watch.selectors import (
    ALL,
    CLUSTER,
    NODE_POOL,
    RESOLUTIONS,
    Figures,
    Metric,
    SampleOwner,
    Samples,
    SeriesPoint,
    TimeWindow,
    newest_sample,
    resolution_for,
    samples_of,
    series_of,
)
from scheduling.model.resources import MILLI, ZERO, Resources
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.usage.rules import (
    BORROWED,
    BorrowLedger,
    EvictableWork,
    FixedClaim,
    LoanRow,
    Parties,
    Trend,
    TrendPoint,
    ledger_of,
    spare_key,
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of one project in one node pool: held by running pods, held by non-preemptible ones, asked for in all."""

    allocated: Resources = ZERO
    non_preemptible: Resources = ZERO
    requested: Resources = ZERO

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.allocated + other.allocated,
            self.non_preemptible + other.non_preemptible,
            self.requested + other.requested,
        )


UsageByQueue = Mapping[tuple[int, str], Usage]
UsageByPool = Mapping[tuple[UUID, str], Usage]
"""Keys: the id of a project or cluster, and the name of a node pool. A missing key is no use at all."""


@dataclass(frozen=True, slots=True)
class UsageProvider:
    """What the app above answers, each in a constant number of queries.

    usage: per (project id, pool name), for these projects. allocated: the same without what is requested.
    pool_usage: per (cluster id, pool name), of all projects of these clusters together.
    live_workloads: how many workloads that are not finished or deleted each project has; missing is none.
    priority_names, category_names: names of the priority dictionary and of its categories.
    evictable_work: what these projects hold in the pool of that name and may lose, in the order in which it is taken.
    fixed_claims: of non-preemptible workloads of these clusters, running or waiting, per (project id, pool name).
    """

    usage: Callable[[Collection[int]], UsageByQueue] = lambda _ids: {}
    live_workloads: Callable[[Collection[int]], Mapping[int, int]] = lambda _ids: {}
    priority_names: Callable[[], Collection[str]] = tuple
    allocated: Callable[[QuerySet[Project]], UsageByQueue] = lambda _projects: {}
    pool_usage: Callable[[Collection[UUID]], UsageByPool] = lambda _clusters: {}
    category_names: Callable[[], Collection[str]] = tuple
    evictable_work: Callable[[Collection[int], str], Sequence[EvictableWork]] = lambda _ids, _pool: ()
    fixed_claims: Callable[[Collection[UUID]], Mapping[tuple[int, str], FixedClaim]] = lambda _clusters: {}


_registered: list[UsageProvider] = [UsageProvider()]


def register_provider(provider: UsageProvider) -> UsageProvider:
    """Make this provider the source of every answer; returns the one it replaces."""
    previous = _registered[0]
    _registered[:] = [provider]
    return previous


def usage_by_queue(project_ids: Collection[int]) -> UsageByQueue:
    """Use of these projects per (project id, pool name)."""
    return _registered[0].usage(project_ids)


def fixed_claims_in(clusters: Collection[UUID]) -> Mapping[tuple[int, str], FixedClaim]:
    """What non-preemptible workloads of these clusters ask for, per (project id, pool name)."""
    return _registered[0].fixed_claims(clusters)


def allocated_by_queue(projects: QuerySet[Project]) -> UsageByQueue:
    """`usage_by_queue` without what is requested, for any number of projects."""
    return _registered[0].allocated(projects)


def usage_by_pool(clusters: Collection[UUID]) -> UsageByPool:
    """Use of all projects of these clusters together per (cluster id, pool name)."""
    return _registered[0].pool_usage(clusters)


def usage_of(project: Project, pool: str) -> Usage:
    """Use of one project in the node pool of that name."""
    return usage_by_queue([project.pk]).get((project.pk, pool), Usage())


def live_workloads(project_ids: Collection[int]) -> int:
    """How many workloads of these projects are neither finished nor deleted."""
    return sum(_registered[0].live_workloads(project_ids).values())


def priority_names() -> frozenset[str]:
    """Names of the priority dictionary; empty when none is registered."""
    return frozenset(_registered[0].priority_names())


def category_names() -> frozenset[str]:
    """Names of the categories of workloads; empty when none is registered."""
    return frozenset(_registered[0].category_names())


def evictable_work(project_ids: Collection[int], pool: str) -> Sequence[EvictableWork]:
    """What these projects hold in a pool and may lose: lowest priority first, of equals the newest."""
    return _registered[0].evictable_work(project_ids, pool)


DEPARTMENT: Final = "department"
PROJECT: Final = "project"
DESERVED: Final = (Metric.GPU_DESERVED, Metric.CPU_DESERVED, Metric.MEMORY_DESERVED)
HELD: Final = (Metric.GPU_HELD, Metric.CPU_HELD, Metric.MEMORY_HELD)
QUOTA_BALANCE: Final = "quota-balance"
"""Of a cluster, by pool: GPUs that each project deserves less those that it holds, by project key, if not zero.

By `spare_key`: GPUs that a department deserves beyond its projects, if any.
"""

Sums = defaultdict[SampleOwner, defaultdict[str, dict[str, float]]]


def sample(clusters: Collection[UUID], /, *, at: datetime) -> Samples:
    """Per department and project, split by node pool. Of the cluster and its pools: what their projects deserve.

    The quota balances of all projects of a cluster are one sample, so that its ledger of loans reads one row a moment.
    """
    found: Mapping[UUID, Sums] = {each: defaultdict(lambda: defaultdict(dict)) for each in clusters}
    for cluster in clusters:
        found[cluster][SampleOwner(CLUSTER, str(cluster))][ALL] = dict.fromkeys(DESERVED, 0)
    for cluster, pool in NodePool.objects.filter(cluster__in=clusters).values_list("cluster", "pk"):
        found[cluster][SampleOwner(NODE_POOL, str(pool))][ALL] = dict.fromkeys(DESERVED, 0)
    for cluster, department in Department.objects.filter(cluster__in=clusters).values_list("cluster", "pk"):
        found[cluster][SampleOwner(DEPARTMENT, str(department))][ALL] = dict.fromkeys((*DESERVED, *HELD), 0)
    projects, homes = Project.objects.filter(cluster__in=clusters), dict[int, tuple[UUID, SampleOwner]]()
    for pk, cluster, department in projects.values_list("pk", "cluster", "department"):
        homes[pk] = (cluster, SampleOwner(DEPARTMENT, str(department)))
        found[cluster][SampleOwner(PROJECT, str(pk))][ALL] = dict.fromkeys((*DESERVED, *HELD), 0)
    _add_deserved(found, clusters)
    for (pk, pool_name), use in allocated_by_queue(projects).items():
        if home := homes.get(pk):  # None: the project is younger than the first query
            for owner in (SampleOwner(PROJECT, str(pk)), home[1]):
                _add(found[home[0]][owner], pool_name, HELD, use.allocated)
    _add_balances(found, {str(pk): owner.id for pk, (_cluster, owner) in homes.items()})
    return found


def _add_balances(found: Mapping[UUID, Sums], departments: Mapping[str, str]) -> None:
    """departments: keys by project key."""
    for cluster, figures in found.items():
        balances: defaultdict[str, dict[str, float]] = defaultdict(dict)
        spare: defaultdict[tuple[str, str], float] = defaultdict(float)
        for owner, by_pool in figures.items():
            for pool in by_pool.keys() - {ALL} if owner.kind in {PROJECT, DEPARTMENT} else ():
                deserved, held = (by_pool[pool].get(name, 0) for name in (Metric.GPU_DESERVED, Metric.GPU_HELD))
                if owner.kind == DEPARTMENT:
                    spare[pool, owner.id] += deserved
                else:
                    balances[pool][owner.id] = deserved - held
                    spare[pool, departments.get(owner.id, "")] -= deserved
        for (pool, department), left in spare.items():
            balances[pool][spare_key(department)] = max(left, 0)
        named = {pool: {key: each for key, each in by_key.items() if each} for pool, by_key in balances.items()}
        figures[SampleOwner(QUOTA_BALANCE, str(cluster))] |= {ALL: {}, **named}


_QUOTA: Final = ("node_pool", "node_pool__name", "node_pool__cluster", *DESERVED)
"""The metrics have the names of the columns."""


def _add_deserved(found: Mapping[UUID, Sums], clusters: Collection[UUID]) -> None:
    quotas = ProjectQuota.objects.filter(project__cluster__in=clusters).values_list("project", *_QUOTA)
    for project, pool, pool_name, cluster, *deserved in quotas:
        amounts = Resources(*(each or 0 for each in deserved))
        _add(found[cluster][SampleOwner(PROJECT, str(project))], pool_name, DESERVED, amounts)
        for whole in (SampleOwner(CLUSTER, str(cluster)), SampleOwner(NODE_POOL, str(pool))):
            _add(found[cluster][whole], ALL, DESERVED, amounts)
    parents = DepartmentQuota.objects.filter(department__cluster__in=clusters).values_list("department", *_QUOTA)
    for department, _pool, pool_name, cluster, *deserved in parents:
        owner = SampleOwner(DEPARTMENT, str(department))
        _add(found[cluster][owner], pool_name, DESERVED, Resources(*(each or 0 for each in deserved)))


def _add(figures: Mapping[str, dict[str, float]], pool: str, names: Iterable[Metric], amounts: Resources) -> None:
    """To the pool and to all of them."""
    for name, number in zip(names, (amounts.gpu, amounts.cpu, amounts.memory), strict=True):
        for part in {pool, ALL}:
            figures[part][name] = figures[part].get(name, 0) + number


@dataclass(frozen=True, slots=True)
class Borrowing:
    """Loans of some projects. start, end: first and last sample; None: there is none.

    every: how far samples are apart; the last one is the newest of the cluster, of any resolution. current: it is no
    older. reclaimed: by pool, the running workloads that cover what is borrowed, in the order in which the scheduler
    takes them; empty where it takes nothing back, or where the last sample is not current.
    """

    rows: tuple[LoanRow, ...]
    reclaimed: Mapping[str, Sequence[EvictableWork]]
    every: timedelta
    current: bool
    start: datetime | None = None
    end: datetime | None = None


def borrowing_of(unit: Project | Department, *, visible: Mapping[int, str], span: str, now: datetime) -> Borrowing:
    """What a project borrowed from others and lent to them, or a department with all its projects.

    visible: names by project id. Projects belong to the department that they have now, also in older samples. Loans
    inside the unit are left out. Queries grow with the pools in which something is borrowed now.
    """
    cluster, start = unit.cluster, now - SPANS[span][0]
    departments = dict(Project.objects.filter(cluster=cluster).values_list("pk", "department"))
    whole = isinstance(unit, Department)
    own = {pk for pk, department in departments.items() if department == unit.pk} if whole else {unit.pk}
    grain = _ledger_grain(len(departments), SPANS[span][0])
    every = RESOLUTIONS[grain].every
    samples = _balances(cluster, start, grain)
    parties = Parties(
        own={*map(str, own), *([spare_key(unit.pk)] if whole else ())},
        names={str(key): name for key, name in visible.items()},
        others=str(OTHERS),
        spare=str(SPARE),
        departments={str(key): spare_key(department) for key, department in departments.items()},
    )
    reclaims = guarantee_on(cluster, RECLAIM).enforced != "no"
    current = bool(samples) and now - samples[-1][0] <= every * GAP
    rows: list[LoanRow] = []
    reclaimed: dict[str, Sequence[EvictableWork]] = {}
    for pool in NodePool.objects.filter(cluster=cluster).order_by("name").values_list("name", flat=True):
        ledger = ledger_of([(at, figures.get(pool, {})) for at, figures in samples], parties, every=every * GAP)
        found = _loan_rows(ledger, pool)
        rows += found
        over = sum(each.gpu for each in found if each.direction == BORROWED)
        if over and reclaims and current:
            reclaimed[pool] = _covering(evictable_work(own, pool), over)
    ends = (samples[0][0], samples[-1][0]) if samples else ()
    return Borrowing(tuple(rows), reclaimed, every, current, *ends)


def _balances(cluster: Cluster, start: datetime, grain: int) -> list[tuple[datetime, Figures]]:
    """Samples in this grain, then the newest of all: what is borrowed now must agree with the use shown beside it."""
    owner = SampleOwner(QUOTA_BALANCE, str(cluster.pk))
    found, newest = samples_of(owner, start=start, grain=grain), newest_sample(owner)
    if newest and newest[0] > (found[-1][0] if found else start):
        found.append(newest)
    return found


def basis_of_borrowing(cluster: Cluster) -> str:
    """What the figures are attributed by, and what the cluster's scheduler makes of a loan."""
    words = _(
        "Estimated from usage samples: a project borrows what it holds above its deserved quota, first from what its "
        "department leaves unused, then from departments that hold less than they deserve. What lies unused counts as "
        "lent in proportion, because schedulers do not say which idle GPU went to whom."
    )
    guarantee = guarantee_on(cluster, RECLAIM)
    return words if guarantee.enforced != "no" else f"{words} {_('Nothing is taken back.')} {guarantee.explanation}"


OTHERS: Final = gettext_lazy("other projects")
SPARE: Final = gettext_lazy("quota that a department deserves beyond its projects")
NOBODYS: Final = gettext_lazy("capacity that no project or department deserves")


def _ledger_grain(projects: int, span: timedelta) -> int:
    """The finest resolution that is the same over the whole period."""
    lasting = next(number for number, each in enumerate(RESOLUTIONS) if each.retention >= span)
    return max(lasting, resolution_for(projects, span))


def _loan_rows(ledger: BorrowLedger, pool: str) -> list[LoanRow]:
    """The most GPU-hours first. Counterparties that the reader may not see are one row."""
    found: list[LoanRow] = []
    for (direction, party), loan in sorted(ledger.loans.items(), key=lambda item: -item[1].milli_hours):
        name = str(NOBODYS) if party is None else party
        found.append(LoanRow(pool, direction, name, loan.gpu, loan.since, loan.milli_hours / MILLI))
    return found


def _covering(work: Iterable[EvictableWork], over: float) -> list[EvictableWork]:
    """The first ones, until what they hold covers the loan."""
    found: list[EvictableWork] = []
    for each in work:
        if sum(one.held.gpu for one in found) >= over:
            break
        if each.held.gpu:
            found.append(each)
    return found


SPANS: Final = {"24h": (timedelta(days=1), 48), "7d": (timedelta(days=7), 56)}
"""How far back, and in how many parts."""
TITLES: Final = {"24h": gettext_lazy("24 hours"), "7d": gettext_lazy("7 days")}
PART_TITLES: Final = {"24h": gettext_lazy("half-hour"), "7d": gettext_lazy("3-hour")}
COMPLETE: Final = 0.95
"""Share of the parts with a sample from which the trend covers its span."""
WIDTH: Final = 640
HEIGHT: Final = 100
GAP: Final = 1.5
"""Parts without a sample after which the line is broken."""


def chosen_span(text: str) -> str:
    """A span by its name in the address; the first where there is none of that name."""
    return text if text in SPANS else next(iter(SPANS))


def trend_context(unit: Project | Department | Cluster, span: str, *, now: datetime) -> dict[str, Any]:
    """What `trend.html` shows."""
    words = _("GPUs of the nodes") if isinstance(unit, Cluster) else _("deserved quota")
    trend, parts = trend_of(unit, span=span, now=now), SPANS[span][1]
    return {
        "trend": trend,
        "reference": words,
        "part": PART_TITLES[span],
        "parts": parts,
        "incomplete": len(trend.marks) < COMPLETE * parts,
        "span": span,
        "spans": TITLES.items(),
        "back": _("%(span)s ago") % {"span": TITLES[span]},
    }


def trend_of(unit: Project | Department | Cluster, *, span: str, now: datetime) -> Trend:
    """The trend over all node pools, beside what is deserved, or what a cluster's nodes have. One query."""
    back, parts = SPANS[span]
    kind = {Project: PROJECT, Department: DEPARTMENT, Cluster: CLUSTER}[type(unit)]
    window, owner = TimeWindow(now - back, now, parts), SampleOwner(kind, str(unit.pk))
    reference = Metric.GPU_TOTAL if kind == CLUSTER else Metric.GPU_DESERVED
    return draw(series_of([owner], window).get(owner, []), window, reference)


def draw(points: Sequence[SeriesPoint], window: TimeWindow, reference: Metric = Metric.GPU_DESERVED) -> Trend:
    """Points as marks; where samples are missing the line is broken."""
    top = max((max(_of(point, Metric.GPU_HELD), _of(point, reference)) for point in points), default=0)
    runs: list[list[TrendPoint]] = []
    longest = (window.end - window.start) / max(window.parts, 1) * GAP
    for point in points:
        mark = _point(point, window, reference, top)
        if not runs or mark.at - runs[-1][-1].at > longest:
            runs.append([])
        runs[-1].append(mark)
    return Trend(tuple(tuple(run) for run in runs), top)


def _point(point: SeriesPoint, window: TimeWindow, reference: Metric, top: int) -> TrendPoint:
    held, beside = _of(point, Metric.GPU_HELD), _of(point, reference)
    x = (point.at - window.start) / (window.end - window.start) * WIDTH
    return TrendPoint(point.at, held, beside, x, _height(held, top), _height(beside, top))


def _height(milli: int, top: int) -> float:
    return HEIGHT - (HEIGHT * milli / top if top else 0)


def _of(point: SeriesPoint, name: Metric) -> int:
    """To a hundredth of a GPU."""
    return int(round(point.figures.get(name, 0), -1))
