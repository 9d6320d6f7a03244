"""What happened lately and needs attention: alerts and quota requests on Home; of a cluster what waits and why,
evictions and waits.

Counts and sums are of the whole cluster. The list of evictions names what its reader may see. Home is cheap on purpose,
as it refreshes itself: the reason is the scheduler's own; the workload's page runs the model.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from clusters.inventory.models import Cluster, ClusterState
from clusters.sync.models import Drift
from portal.kit.db.keyset_pagination import Page, page_of
from portal.kit.pages.formatting import NOT_CURRENT_AFTER
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, visible_among, visible_projects
from tenants.usage.selectors import HEIGHT, SPANS, TITLES, WIDTH
from workloads.detectors.models import Finding
from workloads.forecast.rules.estimates import quantile
from workloads.forecast.rules.messages import gpu_time_text
from workloads.forecast.rules.reasons import short
from workloads.plans.selectors import plans_to_approve
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.preemption.selectors import decisions_among
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import NO_CONTROLLER, WAITING
from workloads.state.selectors.workloads import REPORTED_AT

EVICTIONS: Final = 25
"""Records on a page of evictions."""
MOST_WAITS: Final = 5_000
"""Workloads whose waits are read: those that changed last."""
CAUSES: Final = {
    PreemptionCause.PREEMPT: gettext_lazy("by priority"),
    PreemptionCause.RECLAIM: gettext_lazy("to reclaim quota"),
    PreemptionCause.UNKNOWN: gettext_lazy("other or unknown cause"),
}


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Workloads that wait for one reason, by its code and in words. gpu_milli: of all of them; since: the longest."""

    code: str
    reason: str
    workloads: int
    gpu_milli: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a column: number of evictions, and its place in SVG units."""

    cause: str
    number: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class EvictionColumn:
    """Evictions in one hour or day: pods of one workload that one decision took count once."""

    at: datetime
    x: float
    width: float
    bars: tuple[Bar, ...]
    lost_gpu_seconds: int

    @property
    def total(self) -> int:
        """Evictions for any cause."""
        return sum(each.number for each in self.bars)

    @property
    def lost(self) -> str:
        """GPU-hours lost, in words."""
        return gpu_time_text(self.lost_gpu_seconds)


@dataclass(frozen=True, slots=True)
class EvictionHistory:
    """Evictions from the start of the first column until now. top: the most in one column; totals: by cause."""

    columns: tuple[EvictionColumn, ...]
    top: int
    totals: tuple[tuple[str, int], ...]
    daily: bool

    @property
    def since(self) -> datetime:
        """When the first column begins."""
        return self.columns[0].at

    @property
    def total(self) -> int:
        """Evictions for any cause."""
        return sum(number for _cause, number in self.totals)

    @property
    def lost_gpu_seconds(self) -> int:
        """GPU-seconds lost by all of them."""
        return sum(each.lost_gpu_seconds for each in self.columns)

    @property
    def lost(self) -> str:
        """GPU-hours lost, in words."""
        return gpu_time_text(self.lost_gpu_seconds)


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Seconds that workloads of one priority waited in all before the run that started in the span."""

    priority: str
    value: int
    workloads: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class EvictionRow:
    """One eviction of a list. preemptor: its workload, where the reader may see it; by: its name in words."""

    at: datetime
    victim: Workload
    preemptor: Workload | None
    by: str
    cause: str
    ran_seconds: int
    lost: str


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """What needs an admin of all clusters. evicted: workloads in 24 hours; stale, paused, simulated: clusters."""

    clusters: int
    waiting: int
    waiting_gpu_milli: int
    evicted: int
    quota_requests: int
    findings: int
    differences: int
    stale: int
    paused: int
    simulated: int


def fleet_status(*, now: datetime) -> FleetStatus:
    """Of all clusters. Six queries."""
    clusters = list(Cluster.objects.only("observed_at", "state", "backend"))
    waiting = Workload.objects.filter(deleted_at=None, phase=Phase.PENDING).order_by()
    wait = waiting.aggregate(number=Count("pk"), gpus=Sum("gpu_milli"))
    # By cluster, for which there is an index.
    records = PreemptionRecord.objects.filter(cluster__in=clusters, at__gte=now - timedelta(days=1)).order_by()
    return FleetStatus(
        clusters=len(clusters),
        waiting=wait["number"],
        waiting_gpu_milli=wait["gpus"] or 0,
        evicted=records.values("victim").distinct().count(),
        quota_requests=QuotaRequest.objects.filter(state=QuotaRequestState.OPEN).count(),
        findings=Finding.objects.filter(ended_at=None).count(),
        differences=Drift.objects.filter(cluster__in=clusters).count(),
        stale=sum(each.observed_at is None or now - each.observed_at > NOT_CURRENT_AFTER for each in clusters),
        paused=sum(each.state == ClusterState.PAUSED for each in clusters),
        simulated=sum(each.is_simulated for each in clusters),
    )


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """What waits in a cluster, and how many of its workloads were evicted in 24 hours."""

    waiting: int = 0
    waiting_gpu_milli: int = 0
    evicted: int = 0


def loads_by_cluster(clusters: Collection[Cluster], *, now: datetime) -> dict[str, ClusterLoad]:
    """By name of the cluster. Two queries."""
    waiting = Workload.objects.filter(deleted_at=None, phase=Phase.PENDING, project__cluster__in=clusters).order_by()
    waits = waiting.values_list("project__cluster__name").annotate(Count("pk"), Sum("gpu_milli"))
    records = PreemptionRecord.objects.filter(cluster__in=clusters, at__gte=now - timedelta(days=1)).order_by()
    evicted = dict(records.values_list("cluster__name").annotate(Count("victim", distinct=True)))
    known = {name: (number, gpu_milli or 0) for name, number, gpu_milli in waits}
    return {each.name: ClusterLoad(*known.get(each.name, (0, 0)), evicted.get(each.name, 0)) for each in clusters}


LONG_WAIT: Final = timedelta(minutes=10)
MOST_ALERTS: Final = 6
ALERTED_PHASES: Final = (Phase.PENDING, Phase.CREATING, Phase.INITIALIZING, Phase.RESUMING)


@dataclass(frozen=True, slots=True)
class Alert:
    """One workload, why it is listed, and the last message about it. at: of what its scheduler reported, since when."""

    workload: Workload
    why: str
    sentence: str
    at: datetime | None = None


def alerts_for(rows: QuerySet[Workload]) -> list[Alert]:
    """At most six, the longest wait first."""
    wanted = rows.filter(desired_phase=DesiredPhase.RUNNING, phase__in=ALERTED_PHASES)
    long_ago = timezone.now() - LONG_WAIT
    unanswered = Q(phase_reason=NO_CONTROLLER)
    chosen = wanted.filter(Q(preempted_count__gt=0) | Q(phase_at__lte=long_ago) | ~Q(apply_error="") | unanswered)
    rows = chosen.annotate(reported_at=REPORTED_AT).order_by("phase_at", "id")
    return list(_needs(rows[:MOST_ALERTS]))


def _needs(rows: Iterable[Any]) -> Iterator[Alert]:
    for workload in rows:
        if workload.apply_error or not workload.phase_message:
            yield Alert(workload, _why(workload), workload.apply_error)
        else:
            yield Alert(workload, _why(workload), workload.phase_message, workload.reported_at)


def _why(workload: Workload) -> str:
    if workload.phase_reason == NO_CONTROLLER:
        return "unanswered"
    if workload.preempted_count:
        return "evicted"
    return "unreachable" if workload.apply_error else "waiting"


ANSWERED: Final = timedelta(days=3)
MOST_ANSWERS: Final = 3


@dataclass(frozen=True, slots=True)
class DecisionNews:
    """Of requests for quota: `answers` to the reader's own of the last three days; `open`: the reader may decide.

    plans: those of others that wait for the reader's approval.
    """

    answers: Sequence[QuotaRequest]
    open: int
    plans: int


def decision_news(actor: Actor, *, now: datetime) -> DecisionNews:
    """At most three answers, the newest first."""
    access = access_for(actor)
    own = QuotaRequest.objects.filter(author_kind=str(actor.kind), author_id=actor.id, project__in=access.projects())
    answered = own.filter(decided_at__gte=now - ANSWERED).order_by("-decided_at")
    to_decide = QuotaRequest.objects.filter(
        state=QuotaRequestState.OPEN, project__in=access.projects(Permission.MANAGE_PROJECT_QUOTA)
    )
    answers = list(answered.select_related("project", "node_pool")[:MOST_ANSWERS])
    return DecisionNews(answers, to_decide.count(), plans_to_approve(actor).count())


def activity_context(cluster: Cluster, span: str, *, now: datetime) -> dict[str, Any]:
    """What `eviction_history.html` and `waits.html` show. Three queries."""
    waits = waits_by_priority(cluster, since=now - SPANS[span][0])
    return {
        "reasons": waiting_by_reason(cluster),
        "evictions": eviction_history(cluster, span, now=now),
        "causes": CAUSES,
        "waits": waits,
        "waits_cut": sum(each.workloads for each in waits) >= MOST_WAITS,
        "most_waits": MOST_WAITS,
        "span_title": TITLES[span],
    }


def waiting_by_reason(cluster: Cluster) -> list[WaitingReason]:
    """The most workloads first."""
    rows = Workload.objects.filter(project__cluster=cluster, deleted_at=None, phase__in=WAITING).order_by()
    counted = rows.values_list("phase_reason").annotate(Count("pk"), Sum("gpu_milli"), Min("phase_at"))
    found = [WaitingReason(code, short(code) if code else _("no reason yet"), *rest) for code, *rest in counted]
    return sorted(found, key=lambda each: (-each.workloads, each.reason))


def eviction_history(cluster: Cluster, span: str, *, now: datetime) -> EvictionHistory:
    """By day (UTC), or by hour where the span is a day; the last column is the current one."""
    daily = SPANS[span][0] > timedelta(days=1)
    step = timedelta(days=1) if daily else timedelta(hours=1)
    last = _period(now, daily=daily)
    moments = [last - step * back for back in reversed(range(SPANS[span][0] // step))]
    counts, lost = _counted(cluster, moments[0], daily=daily)
    top = max((sum(counts[at].values()) for at in moments), default=0)
    columns = tuple(
        EvictionColumn(
            at,
            place * WIDTH / len(moments),
            WIDTH / len(moments) * 0.7,
            tuple(_bars(counts[at], top)),
            lost[at],
        )
        for place, at in enumerate(moments)
    )
    totals = tuple((cause, sum(counts[at][cause] for at in moments)) for cause in CAUSES)
    return EvictionHistory(columns, top, totals, daily)


class EvictionColumns(NamedTuple):
    """Columns of a record: instances of the model cost several times as much."""

    pk: int
    first_id: int | None
    victim_id: UUID
    at: datetime
    preemptor_name: str
    cause: str
    lost_gpu_seconds: int

    @property
    def head(self) -> int:
        """The key of the preemption that it is or belongs to."""
        return self.first_id or self.pk


def _counted(
    cluster: Cluster, since: datetime, *, daily: bool
) -> tuple[dict[datetime, dict[str, int]], dict[datetime, int]]:
    """Per period: evictions by cause, and GPU-seconds lost."""
    counts: dict[datetime, dict[str, int]] = defaultdict(lambda: dict.fromkeys(CAUSES, 0))
    lost: dict[datetime, int] = defaultdict(int)
    records = PreemptionRecord.objects.filter(cluster=cluster, at__gte=since).order_by("victim", "-at", "-id")
    rows = records.values_list(*EvictionColumns._fields)
    for decision in decisions_among(EvictionColumns(*row) for row in rows):
        at = _period(decision[-1].at, daily=daily)
        counts[at][decision[0].cause] += 1
        lost[at] += sum(each.lost_gpu_seconds for each in decision)
    return counts, lost


def evictions_of(cluster: Cluster, actor: Actor, *, after: str) -> tuple[Page[PreemptionRecord], list[EvictionRow]]:
    """A page of the records whose victims the reader may see, newest first, and its evictions. Three queries."""
    records = PreemptionRecord.objects.filter(cluster=cluster, victim__project__in=visible_projects(actor))
    records = records.select_related("victim__project", "victim__priority", "preemptor__project")
    page = page_of(records, column="-at", after=after, size=EVICTIONS)
    preemptors = {each.preemptor.project_id for each in page.rows if each.preemptor}
    visible = visible_among(actor, preemptors)
    together = sorted(page.rows, key=lambda each: (str(each.victim_id), -each.at.timestamp()))
    rows = [_eviction(decision, visible) for decision in decisions_among(together)]
    return page, sorted(rows, key=lambda each: each.at, reverse=True)


def _eviction(records: Sequence[PreemptionRecord], visible: Collection[int]) -> EvictionRow:
    first = records[0]
    shown = first.preemptor is None or first.preemptor.project_id in visible
    by = (first.preemptor_name or _("unknown")) if shown else _("a workload of another project")
    ran, lost = max(each.ran_seconds for each in records), sum(each.lost_gpu_seconds for each in records)
    preemptor = first.preemptor if shown else None
    return EvictionRow(first.at, first.victim, preemptor, by, first.cause, ran, gpu_time_text(lost))


def _period(at: datetime, *, daily: bool) -> datetime:
    """When its hour or day began, in UTC."""
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if daily else hour


def _bars(numbers: dict[str, int], top: int) -> Sequence[Bar]:
    """One on the other, the first at the bottom."""
    found: list[Bar] = []
    y = float(HEIGHT)
    for cause, number in numbers.items():
        height = HEIGHT * number / top if top else 0.0
        y -= height
        found.append(Bar(cause, number, y, height))
    return found


def waits_by_priority(cluster: Cluster, *, since: datetime) -> list[WaitRow]:
    """Of workloads that are not deleted and whose latest run started since then; the highest priority first."""
    # What started since then has changed its phase since then, for which there is an index.
    rows = Workload.objects.filter(deleted_at=None, phase_at__gte=since, project__cluster=cluster)
    rows = rows.filter(started_at__gte=since).order_by("-phase_at", "-id")
    waits: dict[tuple[int, str], list[int]] = defaultdict(list)
    read = rows.values_list("priority__value", "priority__name", "pending_seconds")[:MOST_WAITS]
    for value, name, seconds in read:
        waits[value, name].append(seconds)
    ordered = [(priority, sorted(seconds)) for priority, seconds in sorted(waits.items(), reverse=True)]
    return [
        WaitRow(name, value, len(seconds), quantile(seconds, 0.5), quantile(seconds, 0.9))
        for (value, name), seconds in ordered
    ]
