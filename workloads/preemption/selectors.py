"""Evictions of a workload as timelines: by whom, why, what they cost, and what followed.

A uid has a name only once its object was observed; until then it is kept, and the name follows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.watch.models import ObservedObject, ObservedPod
from portal.kit.pages.formatting import duration_text, gpus_text
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import can, visible_among
from workloads.forecast.rules.messages import gpu_time_text
from workloads.forecast.selectors.waiting import queue_position
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import EventType, Phase, Workload, WorkloadEvent
from workloads.state.rules import ENDED
from workloads.state.selectors.workloads import OTHERS, object_name, workload_id, workload_ids

CONSOLIDATE: Final = "consolidate"


def was_moved(records: Sequence[PreemptionRecord]) -> bool:
    """By the scheduler's own words, which the record keeps; no workload gains by a move."""
    return all(_cause(record) == CONSOLIDATE for record in records)


def _cause(record: PreemptionRecord) -> str:
    event = {"reason": "Evicted", "message": record.message}
    return flavour_for(record.cluster.flavour).interpret({}, [event]).cause if record.message else ""


def needed_pods(pods: Sequence[ObservedPod]) -> set[int]:
    """Pods of workloads that have not ended, and pods without which the record of an eviction stays incomplete."""
    alive = Workload.objects.filter(pk__in=workload_ids({pod.owner_id for pod in pods}), deleted_at=None)
    owners = {str(pk) for pk in alive.exclude(phase__in=ENDED).values_list("pk", flat=True)}
    uids = [pod.uid for pod in pods]
    unended = PreemptionRecord.objects.filter(pod_uid__in=uids, gone_at=None)
    nameless = PreemptionRecord.objects.filter(preemptor_uid__in=uids, preemptor=None, preemptor_name="")
    described = {*unended.values_list("pod_uid", flat=True), *nameless.values_list("preemptor_uid", flat=True)}
    return {pod.pk for pod in pods if pod.owner_id in owners or pod.uid in described}


UID: Final = "uid:"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Who gained: a workload; or the name of something that is none of ours; or a uid that is not known yet."""

    workload: Workload | None = None
    name: str = ""
    uid: str = ""

    @property
    def is_known(self) -> bool:
        return self.workload is not None or bool(self.name)

    def fields(self) -> dict[str, Any]:
        """As a record keeps it, also once workload and pod are gone."""
        if self.workload is None:
            return {"preemptor_name": self.name[:253], "preemptor_uid": self.uid[:64]}
        return {
            "preemptor": self.workload,
            "preemptor_uid": self.uid[:64],
            "preemptor_name": self.workload.name,
            "preemptor_priority": self.workload.priority.name,
            "preemptor_value": self.workload.priority_value,
            "preemptor_project": self.workload.project.name,
        }


def preemptor_of(cluster: Cluster, named: str) -> Preemptor:
    """Behind `uid:<uid of a pod or a group>`, or `<namespace>/<name>` of a pod or a workload's object.

    Empty when nothing was said.
    """
    if not named:
        return Preemptor()
    pods = ObservedPod.objects.filter(cluster=cluster)
    if named.startswith(UID):
        uid = named.removeprefix(UID)
        return _by_pod(pods.filter(uid=uid).first(), uid) or _by_object_of(cluster, uid)
    namespace, _, name = named.partition("/")
    pod = pods.filter(namespace=namespace, name=name).exclude(owner_id="").order_by("-created_at").first()
    workload = _workload(pod.owner_id) if pod else None
    return Preemptor(workload or _by_object(cluster, namespace, name), named)


def objects_among(cluster: Cluster, uids: Iterable[str]) -> set[str]:
    """Which of the uids are those of our workloads' objects: a gang's group, a queued job."""
    if not flavour_for(cluster.flavour).traits.names_objects:
        return set()
    rows = ObservedObject.objects.filter(cluster=cluster, uid__in=list(uids)).exclude(owner_id="")
    return set(rows.values_list("uid", flat=True))


def _by_object_of(cluster: Cluster, uid: str) -> Preemptor:
    rows = ObservedObject.objects.filter(cluster=cluster, uid=uid).exclude(owner_id="")
    found = rows.first() if flavour_for(cluster.flavour).traits.names_objects else None
    if found is None:
        return Preemptor(uid=uid)
    return Preemptor(_workload(found.owner_id), f"{found.namespace}/{found.name}", uid)


def _by_pod(pod: ObservedPod | None, uid: str) -> Preemptor | None:
    if pod is None:
        return None
    return Preemptor(_workload(pod.owner_id), f"{pod.namespace}/{pod.name}", uid)


def _workload(owner_id: str | None) -> Workload | None:
    key = workload_id(owner_id or "")
    return Workload.objects.select_related("project", "priority").filter(pk=key).first() if key else None


def _by_object(cluster: Cluster, namespace: str, name: str) -> Workload | None:
    """An object's name is the workload's, cut, with the first eight digits of its id."""
    stem = name.rpartition("-")[0]
    rows = Workload.objects.filter(project__cluster=cluster, project__namespace=namespace, name__startswith=stem)
    candidates = rows.select_related("project", "priority").order_by("-created_at")[:100]
    return next((each for each in candidates if object_name(each) == name), None)


ONE_DECISION: Final = timedelta(seconds=5)  # the pods of a gang are marked one after the other
NAMED_PODS: Final = 3


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of an eviction."""

    at: datetime
    words: str


@dataclass(frozen=True, slots=True)
class EvictionTimeline:
    """An eviction: one sentence and the steps below it.

    `records`: one per evicted pod. `standings`: for a reclaim both queues' numbers, in the scheduler's words.
    """

    records: tuple[PreemptionRecord, ...]
    sentence: str
    steps: tuple[TimelineStep, ...]
    standings: tuple[str, ...] = ()


def eviction_timelines(workload: Workload, actor: Actor) -> list[EvictionTimeline]:
    """Its evictions, newest first, the pods of one decision together. Only the newest says where it waits now."""
    evictions = decisions_among(workload.preemptions.select_related("preemptor__project", "victim__project__cluster"))
    return [eviction_timeline(records, actor, newest=not index) for index, records in enumerate(evictions)]


class EvictedPod(Protocol):
    """What `decisions_among` reads of a record, or of a row of its columns."""

    @property
    def head(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def victim_id(self) -> UUID: ...
    @property
    def preemptor_name(self) -> str: ...


EvictedPodT = TypeVar("EvictedPodT", bound=EvictedPod)


def decisions_among(records: Iterable[EvictedPodT]) -> list[list[EvictedPodT]]:
    """Records of evictions, those of one victim together, newest first; the pods of one decision become one list."""
    found: list[list[EvictedPodT]] = []
    for record in records:
        last = found[-1][0] if found else None
        if last and (last.head == record.head or _together(last, record)):
            found[-1].append(record)
        else:
            found.append([record])
    return found


def _together(one: EvictedPod, other: EvictedPod) -> bool:
    same = (one.victim_id, one.preemptor_name) == (other.victim_id, other.preemptor_name)
    return same and abs(one.at - other.at) <= ONE_DECISION


def eviction_timeline(records: Sequence[PreemptionRecord], actor: Actor, *, newest: bool = True) -> EvictionTimeline:
    """One eviction as its people should read it. Another project's names are shown to those who may see it."""
    shown = _may_name(records[0], actor)
    sentence = " ".join(_sentences(records, shown=shown, newest=newest))
    steps = tuple(sorted(_steps(records, shown=shown), key=lambda step: step.at))
    return EvictionTimeline(tuple(records), sentence, steps, tuple(_queue_numbers(records[0], shown=shown)))


def _queue_numbers(record: PreemptionRecord, *, shown: bool) -> Iterator[str]:
    """The lines after the first, with people's names in the place of the queues'."""
    victim, preemptor = record.victim, record.preemptor
    flavour = flavour_for(victim.project.cluster.flavour)
    names = {flavour.queue_name(victim.project.owner, victim.pool_name): f"project {victim.project.name}"}
    if preemptor is not None:
        other = f"project {preemptor.project.name}" if shown else OTHERS
        names[flavour.queue_name(preemptor.project.owner, preemptor.pool_name)] = other
    for line in record.message.splitlines()[1:]:
        queue, _, rest = line.partition(" ")
        yield f"{names.get(queue, 'a queue')} {rest}"


def _may_name(record: PreemptionRecord, actor: Actor) -> bool:
    if record.preemptor is None:
        return True
    return can(actor, Permission.VIEW_PROJECT, project=record.preemptor.project)


def _by(record: PreemptionRecord, *, shown: bool) -> str:
    if not record.preemptor_name:
        return "the scheduler (preemptor unknown)"
    if not shown:
        return f"a workload of {OTHERS}"
    value = f" ({record.preemptor_priority} {record.preemptor_value})" if record.preemptor_priority else ""
    own = record.preemptor is not None and record.preemptor.project_id == record.victim.project_id
    where = "the same project" if own else (record.preemptor_project and f"project {record.preemptor_project}")
    return f"{record.preemptor_name}{value}{f' of {where}' if where else ''}"


def name_preemptors(entries: Sequence[WorkloadEvent], actor: Actor) -> None:
    """Put workloads of other projects that the reader may see into the sentences of these entries of one workload.

    Stored sentences name none of them. The phase after an eviction repeats its sentence.
    """
    found = [entry for entry in entries if entry.type == EventType.PREEMPTION and f" by {OTHERS}:" in entry.message]
    keys = {entry.pk: entry.detail["records"][0] for entry in found if entry.detail.get("records")}
    records = _visible_preemptors(keys.values(), actor) if keys else {}
    messages: defaultdict[str, set[str]] = defaultdict(set)
    for entry in found:
        stored = entry.message
        if record := records.get(keys.get(entry.pk, 0)):
            entry.message = stored.replace(f" by {OTHERS}:", f" by {_by(record, shown=True)}:", 1)
        messages[stored].add(entry.message)
    for entry in entries:
        if entry.type == EventType.PHASE and len(names := messages.get(entry.message, set())) == 1:
            entry.message = next(iter(names))


def _visible_preemptors(keys: Iterable[int], actor: Actor) -> dict[int, PreemptionRecord]:
    """Those of these records whose preemptor the actor may see."""
    rows = PreemptionRecord.objects.filter(pk__in=set(keys), preemptor__isnull=False)
    found = [(row, row.preemptor) for row in rows.select_related("preemptor", "victim")]
    visible = visible_among(actor, {each.project_id for _row, each in found if each})
    return {row.pk: row for row, each in found if each and each.project_id in visible}


def _sentences(records: Sequence[PreemptionRecord], *, shown: bool, newest: bool) -> Iterator[str]:
    record = records[0]
    if was_moved(records):
        yield f"Moved {record.at:%H:%M} UTC by the scheduler to consolidate free GPUs. It restarts on another node."
    else:
        yield f"Evicted {record.at:%H:%M} UTC by {_by(record, shown=shown)}."
    ran = duration_text(max(each.ran_seconds for each in records))
    held = gpus_text(sum(each.gpu_milli for each in records))
    pods = f" in {len(records)} pods" if len(records) > 1 else ""
    yield f"It had run {ran} on {held}{pods}. {_loss(records)}"
    if record.cause == PreemptionCause.RECLAIM:
        yield RECLAIMED
    if newest and record.victim.deleted_at is None and (place := queue_position(record.victim)):
        yield f"It is waiting again, {ordinal(place)} in the queue."


RECLAIMED: Final = (
    "Its queue was over its share and the other queue reclaimed its own. A reclaim does not need a higher priority; "
    "priority orders the workloads inside a queue."
)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _loss(records: Sequence[PreemptionRecord]) -> str:
    record, lost = records[0], gpu_time_text(sum(each.lost_gpu_seconds for each in records))
    if record.checkpoint_at is None:
        return f"No checkpoint: about {lost} lost."
    since = duration_text(record.at - record.checkpoint_at)
    return f"Last checkpoint {since} earlier: about {lost} lost."


def _steps(records: Sequence[PreemptionRecord], *, shown: bool) -> Iterator[TimelineStep]:
    """Decided, SIGTERM, stopped, the other started, requeued, running again: each only once it has happened.

    By the cluster's clocks wherever they say, so that moments and durations agree and the order is that of the moments.
    """
    record = records[0]
    requested = min(_deletion_requested_at(each) for each in records)
    yield TimelineStep(min(record.at, requested), _decided(records, shown=shown))
    yield TimelineStep(
        requested, f"SIGTERM sent to {_few(each.pod_name for each in records)} (grace period {record.grace_seconds} s)."
    )
    gone = [each.gone_at for each in records if each.gone_at]
    if len(gone) == len(records):
        where = _few(each.node_name or "its node" for each in records)
        used = round((max(gone) - requested).total_seconds())
        yield TimelineStep(max(gone), f"Stopped on {where} after {used} s (grace period {record.grace_seconds} s).")
    if record.preemptor and record.preemptor.started_at and record.preemptor.started_at >= requested:
        yield TimelineStep(record.preemptor.started_at, f"Started: {_by(record, shown=shown)}.")
    yield from _afterwards(records, requested)


def _deletion_requested_at(record: PreemptionRecord) -> datetime:
    """When the pod's deletion was asked for: an event about the decision may be of a later moment."""
    if record.gone_at is None or record.grace_used_seconds is None:
        return record.at
    return record.gone_at - timedelta(seconds=record.grace_used_seconds)


def _decided(records: Sequence[PreemptionRecord], *, shown: bool) -> str:
    if was_moved(records):
        return "Selected to move to another node."
    by = _by(records[0], shown=shown)
    if not records[0].preemptor_name:
        return f"Chosen for eviction by {by}."
    if records[0].cause == PreemptionCause.RECLAIM:
        return f"Chosen for eviction: {by} reclaims its queue's share."
    return f"Chosen for eviction: {by} has higher priority."


def _few(names: Iterable[str]) -> str:
    """The first of them by name, and how many more."""
    every = sorted(set(names))
    more = f" and {len(every) - NAMED_PODS} more" if len(every) > NAMED_PODS else ""
    return ", ".join(every[:NAMED_PODS]) + more


def _afterwards(records: Sequence[PreemptionRecord], requested: datetime) -> Iterator[TimelineStep]:
    """That it happened, by the order of our entries; when, by the pods that were made in its place where there are any.

    A queue may take it back before it lets its pods be made, so the earlier of both moments is that of the requeue.
    """
    record = records[0]
    words = {Phase.PENDING.value: "Requeued.", Phase.RUNNING.value: "Running again."}
    start = record.victim.timeline.filter(type=EventType.PREEMPTION, at__lte=record.at).order_by("-at", "-pk").first()
    seen: set[str] = set()
    later = ObservedPod.objects.filter(
        owner_id=str(record.victim_id), cluster=record.cluster_id, created_at__gte=requested
    )
    pods = list(later.exclude(uid__in=[each.pod_uid for each in records]).values_list("created_at", "started_at"))
    made = min((made for made, _started in pods), default=None)
    started = min((started for _made, started in pods if started), default=None)
    moves = record.victim.timeline.filter(type=EventType.PHASE, phase__in=words, pk__gt=start.pk if start else 0)
    for entry in moves.order_by("pk")[:20]:
        if entry.phase not in seen and (entry.phase != Phase.RUNNING or Phase.PENDING in seen):
            seen.add(entry.phase)
            yield TimelineStep(max(requested, _moment(entry, made, started)), words[entry.phase])


def _moment(entry: WorkloadEvent, made: datetime | None, started: datetime | None) -> datetime:
    if entry.phase == Phase.RUNNING:
        return started or entry.at
    return min(entry.at, made) if made else entry.at
