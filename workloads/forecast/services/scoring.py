"""A stored forecast that a submission followed is compared with what then happened.

`score`, of a periodic task, finds the submission: of the same subject, for the same project, with the same request.
Once the horizon has passed the forecast is judged by what was observed: pods on nodes, and records of evictions. The
question is kept only of those that nothing explains.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.watch.models import ObservedPod
from scheduling.model.preemptibility import Cause
from workloads.forecast.models import ForecastCount, ForecastQuestion, ForecastResult, StoredForecast
from workloads.forecast.selectors.snapshot import snapshot_of
from workloads.forecast.services.storage import digests_of, fingerprint_of
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import DesiredPhase, EventType, Phase, Workload, WorkloadEvent
from workloads.state.rules import HELD, REFUSED_PODS

FOLLOWED: Final = timedelta(minutes=5)
"""A submission so long after a forecast still follows it."""
HORIZON: Final = timedelta(minutes=2)
"""Of so long after the submission a forecast speaks; longer while pods that are evicted for it still stop."""
AFTER_VICTIMS: Final = timedelta(seconds=30)
"""From the end of the last victim until it has a node."""
LONGEST: Final = timedelta(minutes=30)
"""Then it is judged, even if victims are still stopping."""
FIRST_TRY: Final = timedelta(seconds=30)
"""Within that a scheduler has looked at a workload that it then lets wait."""
UNWATCHED: Final = timedelta(minutes=1)
"""A cluster that was not observed for so long may have evicted without a record."""
MISSING_DATA: Final = timedelta(minutes=10)
"""So long past its horizon an observation is waited for."""
RETENTION: Final = timedelta(days=91)
AT_ONCE: Final = 500
"""Forecasts that one run judges."""


def score(now: datetime | None = None) -> int:
    """Find submissions that follow forecasts, judge what is due, drop what is old; answers how many were judged.

    1. link forecasts with the submissions that followed them
    2. note at open ones when nodes or quotas change, or the cluster is not observed
    3. judge those whose horizon has passed
    4. drop forecasts that nothing followed, and old ones
    """
    now = now or timezone.now()
    _follow()
    rows = StoredForecast.objects.filter(result="", workload__isnull=False).defer("input")
    open_rows = list(rows.select_related("cluster", "workload").order_by("at")[:AT_ONCE])
    _note_changes(open_rows, now)
    judged = sum(_judge(row, now) for row in open_rows)
    StoredForecast.objects.filter(result="", workload=None, at__lt=now - FOLLOWED).delete()
    StoredForecast.objects.filter(at__lt=now - RETENTION).delete()
    return judged


Request = tuple[int, str, str]


def _follow() -> None:
    """The newest forecast before each submission."""
    shown: dict[Request, list[StoredForecast]] = defaultdict(list)
    rows = StoredForecast.objects.filter(result="", workload=None).only("project", "subject", "fingerprint", "at")
    for row in rows.order_by("at"):
        shown[row.project_id, row.subject, row.fingerprint].append(row)
    if not shown:
        return
    first = min(row.at for found in shown.values() for row in found)
    projects = {project for project, _subject, _fingerprint in shown}
    made = Workload.objects.filter(project__in=projects, created_at__gte=first, forecast=None).order_by("created_at")
    for workload in made:
        before = [row for row in shown.get(_request(workload), ()) if row.at <= workload.created_at]
        if before and workload.created_at - before[-1].at <= FOLLOWED:
            shown[_request(workload)].remove(before[-1])
            StoredForecast.objects.filter(pk=before[-1].pk, workload=None).update(workload=workload)


def _request(workload: Workload) -> Request:
    subject = f"{workload.submitted_by_kind}:{workload.submitted_by_id}"
    return workload.project_id, subject, fingerprint_of(workload.spec, workload.priority_value, workload.preemptibility)


def _note_changes(rows: Sequence[StoredForecast], now: datetime) -> None:
    """By content: a quota that is back at its value, or a node that says the same again, has not changed."""
    by_cluster: dict[Cluster, list[StoredForecast]] = defaultdict(list)
    for row in rows:
        by_cluster[row.cluster].append(row)
    for cluster, found in by_cluster.items():
        snapshot, wanted = snapshot_of(cluster)[0], {row.pool_name for row in found}
        current = {pool.name: digests_of(snapshot, pool) for pool in cluster.node_pools.filter(name__in=wanted)}
        missed = cluster.observed_at is None or now - cluster.observed_at > UNWATCHED
        for row in found:
            own = current.get(row.pool_name, {})
            differs = [name for name, digest in row.digests.items() if own.get(name) != digest]
            new = {name: now.isoformat() for name in [*differs, *(["not_observed"] if missed else [])]}
            _note(row, {**new, **row.changed})


def _note(row: StoredForecast, changed: Mapping[str, str]) -> None:
    if changed != row.changed:
        row.changed = dict(changed)
        row.save(update_fields=["changed"])


@dataclass(frozen=True, slots=True)
class ForecastFacts:
    """What was observed of a workload until its forecast's horizon. decided: when its scheduler had decided about it.

    unnamed: workloads were evicted, for whom is not known.
    """

    until: datetime
    started: datetime | None
    evicted: frozenset[str]
    pods: frozenset[str]
    decided: datetime
    unnamed: bool


def _judge(row: StoredForecast, now: datetime) -> bool:
    """False: its horizon has not passed, or the cluster was not observed since."""
    workload = _submitted(row)
    records = _evictions(row.cluster, workload, now)
    ends = [record.gone_at for record in records if record.gone_at]
    latest = workload.created_at + LONGEST
    if now < latest and any(record.gone_at is None for record in records):
        return False
    until = min(max([workload.created_at + HORIZON, *(end + AFTER_VICTIMS for end in ends)]), latest)
    if now < until:
        return False
    seen = row.cluster.observed_at
    if seen is None or seen < until:
        if now < until + MISSING_DATA:
            return False
        row.changed = {**row.changed, "not_observed": now.isoformat()}
    facts = _facts(row, workload, records, until)
    result, why, by = _result(row, workload, facts)
    return _keep(row, facts, result, why, by, now)


def _submitted(row: StoredForecast) -> Workload:
    if row.workload is None:
        raise ValueError(f"forecast {row.pk} was not followed by a submission")
    return row.workload


def _evictions(cluster: Cluster, workload: Workload, now: datetime) -> list[PreemptionRecord]:
    """Of others for it since it was submitted; a move to another node is none."""
    rows = PreemptionRecord.objects.filter(cluster=cluster, at__gte=workload.created_at - SECOND, at__lte=now)
    return [row for row in rows.filter(preemptor=workload) if not _moved(cluster, row)]


SECOND: Final = timedelta(seconds=1)
"""Clusters tell time in whole seconds."""


def _moved(cluster: Cluster, record: PreemptionRecord) -> bool:
    event = {"reason": "Evicted", "message": record.message}
    cause = flavour_for(cluster.flavour).interpret({}, [event]).cause if record.message else ""
    return cause == Cause.CONSOLIDATE


def _facts(
    row: StoredForecast, workload: Workload, records: Sequence[PreemptionRecord], until: datetime
) -> ForecastFacts:
    since = workload.created_at - SECOND
    predicted = set(row.victims)
    others = PreemptionRecord.objects.filter(cluster=row.cluster, preemptor=None, preemptor_name="")
    nameless = [each for each in others.filter(at__range=(since, until)) if not _moved(row.cluster, each)]
    mine = [*records, *(each for each in nameless if str(each.victim_id) in predicted)]
    mine = [each for each in mine if each.at <= until]
    foreign = ObservedPod.objects.filter(cluster=row.cluster, uid__in=[_uid(key) for key in predicted])
    ends = foreign.filter(disrupted_at__range=(since, until)).values_list("uid", "disrupted_at")
    gone = {uid: at for uid, at in ends if at}
    evicted = {*(str(each.victim_id) for each in mine), *(f"pod:{uid}" for uid in gone)}
    started = _started(workload, until)
    evictions = [*(each.at for each in mine), *gone.values()]
    return ForecastFacts(
        until,
        started,
        frozenset(evicted),
        frozenset({*(each.pod_uid for each in mine), *gone}),
        _decided(workload, started, evictions, until),
        any(str(each.victim_id) not in predicted for each in nameless),
    )


def _decided(
    workload: Workload, started: datetime | None, evictions: Collection[datetime], until: datetime
) -> datetime:
    """With the last eviction for it, also if it starts later. If it evicts and does not start, others may take its GPUs
    until the horizon.
    """
    if started:
        return max(evictions, default=started)
    return until if evictions else workload.created_at + FIRST_TRY


def _uid(key: str) -> str:
    return key.removeprefix("pod:") if key.startswith("pod:") else ""


def _started(workload: Workload, until: datetime) -> datetime | None:
    """When as many of its pods as it needs had nodes."""
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk)).exclude(node_name="")
    starts = sorted(pod.started_at or pod.created_at for pod in pods.only("started_at", "created_at"))
    needed = int(workload.spec.get("min_member") or 1)
    return starts[needed - 1] if len(starts) >= needed and starts[needed - 1] <= until else None


Result = tuple[ForecastResult, str, Workload | None]


def _result(row: StoredForecast, workload: Workload, facts: ForecastFacts) -> Result:
    if why := _unjudged(row, workload, facts):
        return ForecastResult.NOT_JUDGED, why, None
    if _as_forecast(row, facts):
        return ForecastResult.HELD, "", None
    if facts.unnamed:
        return ForecastResult.NOT_JUDGED, "unnamed_evictions", None
    if found := _overtaking(row, workload, facts):
        return ForecastResult.OVERTAKEN, *found
    if row.doubts:
        return ForecastResult.DOUBTED, row.doubts[0], None
    return ForecastResult.UNEXPLAINED, "", None


def _as_forecast(row: StoredForecast, facts: ForecastFacts) -> bool:
    return (facts.started is not None) is row.starts and facts.evicted == set(row.victims)


def _unjudged(row: StoredForecast, workload: Workload, facts: ForecastFacts) -> str:
    """Why nothing can be said; empty where it can."""
    if "not_observed" in row.changed:
        return "not_observed"
    if row.cluster.flavour != row.flavour:
        return "scheduler_changed"
    if _submitted_others(row, workload):
        return "own_submissions"
    if facts.started is None:
        if _acted_on(workload, facts.until):
            return "stopped"
        if not workload.applied_generation and workload.phase_reason not in {*HELD, *REFUSED_PODS}:
            return "not_sent"
    return ""


def _submitted_others(row: StoredForecast, workload: Workload) -> bool:
    """Has its subject submitted others to its pool in between? The forecast was of this workload alone."""
    found = Workload.objects.filter(
        project__cluster=row.cluster,
        submitted_by_kind=workload.submitted_by_kind,
        submitted_by_id=workload.submitted_by_id,
        created_at__gt=row.at,
        created_at__lt=workload.created_at,
    ).exclude(pk=workload.pk)
    return any(row.pool_name in {*other.node_pools, other.pool_name} for other in found.only("node_pools", "pool_name"))


def _acted_on(workload: Workload, until: datetime) -> bool:
    """Has it been stopped, or changed since it was submitted?"""
    done = workload.timeline.filter(type=EventType.ACTION, at__lte=until).exclude(reason="Submitted")
    return done.exists() or (workload.desired_phase != DesiredPhase.RUNNING and workload.phase_at <= until)


def _overtaking(row: StoredForecast, workload: Workload, facts: ForecastFacts) -> tuple[str, Workload | None] | None:
    """What came between the forecast and the decision: by others in its pool, of quotas, of nodes."""
    for event in _events_of_others(row, workload, facts):
        if _explains(why := _cause_of(event), row, facts):
            return why, event.workload
    seen = sorted((datetime.fromisoformat(at), name) for name, at in row.changed.items())
    if seen and seen[0][0] <= facts.decided + FIRST_TRY:
        return seen[0][1], None
    since = row.data_at or row.at
    pods = ObservedPod.objects.filter(cluster=row.cluster, pool_name__in=(row.pool_name, ""))
    pods = pods.exclude(owner_id=str(workload.pk))
    created = pods.filter(owner_id="", created_at__gt=since, created_at__lte=facts.decided)
    if _explains("foreign_pod", row, facts) and created.exists():
        return "foreign_pod", None
    if _explains("ended", row, facts) and _ended(pods, facts.pods, since, facts.decided).exists():
        return "ended", None
    return None


PHASES: Final[Mapping[str, str]] = {
    Phase.STOPPING: "stop",
    Phase.DELETING: "deletion",
    Phase.COMPLETED: "ended",
    Phase.FAILED: "ended",
    Phase.RESUMING: "restart",
}
ACTIONS: Final[Mapping[str, str]] = {"Submitted": "submission", "Retried": "restart"}
FREES: Final = frozenset({"stop", "deletion", "ended"})
COMPETES: Final = frozenset({"submission", "restart", "foreign_pod"})


def _events_of_others(row: StoredForecast, workload: Workload, facts: ForecastFacts) -> Iterator[WorkloadEvent]:
    """Of workloads of its pool, oldest first, without the ends of its victims and deletions of what had ended."""
    found = WorkloadEvent.objects.filter(
        Q(type=EventType.ACTION) | Q(type=EventType.PHASE, phase__in=PHASES),
        workload__project__cluster=row.cluster,
        at__gt=row.at,
        at__lte=facts.decided,
    )
    for event in found.exclude(workload=workload).select_related("workload").order_by("at", "pk"):
        other = event.workload
        gone = str(other.pk) in facts.evicted or (other.completed_at is not None and other.completed_at < event.at)
        if row.pool_name in {*other.node_pools, other.pool_name} and not (gone and _cause_of(event) in FREES):
            yield event


def _cause_of(event: WorkloadEvent) -> str:
    return PHASES[event.phase] if event.type == EventType.PHASE else ACTIONS.get(event.reason, "action")


def _explains(why: str, row: StoredForecast, facts: ForecastFacts) -> bool:
    """Can it lead to this miss? One more competitor starts nothing, and freed GPUs let nothing wait."""
    if row.starts is (facts.started is not None):
        return True
    return why not in (FREES if row.starts else COMPETES)


def _ended(
    pods: QuerySet[ObservedPod], evicted: Collection[str], since: datetime, until: datetime
) -> QuerySet[ObservedPod]:
    window = (since, until)
    return pods.exclude(uid__in=evicted).filter(Q(gone_at__range=window) | Q(ended_at__range=window))


def _keep(
    row: StoredForecast, facts: ForecastFacts, result: ForecastResult, why: str, by: Workload | None, now: datetime
) -> bool:
    """Once: another worker that judges the same changes nothing."""
    values: dict[str, Any] = {} if result is ForecastResult.UNEXPLAINED else {"input": None}
    with transaction.atomic():
        judged = StoredForecast.objects.filter(pk=row.pk, result="").update(
            result=result,
            why=why,
            started_at=facts.started,
            evicted=sorted(facts.evicted),
            evicted_pods=sorted(facts.pods),
            overtaken_by=by,
            judged_at=now,
            **values,
        )
        if judged:
            count_result(row.cluster, row.flavour, row.at, result, why)
    return bool(judged)


def count_result(
    cluster: Cluster,
    flavour: str,
    at: datetime,
    result: str,
    why: str = "",
    *,
    question: ForecastQuestion = ForecastQuestion.VERDICT,
) -> None:
    """One more of that week came out so."""
    named: dict[str, Any] = {
        "cluster": cluster,
        "question": question,
        "flavour": flavour,
        "week": week_of(at),
        "result": result,
        "why": why,
    }
    count, _created = ForecastCount.objects.get_or_create(**named)
    ForecastCount.objects.filter(pk=count.pk).update(count=F("count") + 1)


def week_of(at: datetime) -> date:
    """The Monday of its week, UTC."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())
