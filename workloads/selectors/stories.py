"""Each eviction told as a story: who, by whom, why, what it cost, and what came after."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from clusters.flavours import flavour_for
from clusters.models import ObservedPod
from portal.core.actors import Actor
from tenants.permissions import Verb, can
from workloads.models import EventType, Phase, PreemptionCause, PreemptionRecord, Workload, WorkloadEvent
from workloads.moved import was_moved
from workloads.selectors.history import OTHERS
from workloads.selectors.waiting import queue_position
from workloads.sentences import duration_text, gpu_time_text, gpus_text

ONE_DECISION: Final = timedelta(seconds=5)  # the pods of a gang are marked one after the other
NAMED_PODS: Final = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an eviction."""

    at: datetime
    words: str


@dataclass(frozen=True, slots=True)
class Story:
    """An eviction: one sentence, the steps below it, and whether the other's name is the reader's to see.

    `records`: one per evicted pod. `standings`: for a reclaim both queues' numbers, in the scheduler's words.
    """

    records: tuple[PreemptionRecord, ...]
    sentence: str
    steps: tuple[Step, ...]
    names_shown: bool
    standings: tuple[str, ...] = ()


def stories_of(workload: Workload, actor: Actor) -> list[Story]:
    """Its evictions, newest first, the pods of one decision together. Only the newest says where it waits now."""
    evictions = _evictions(workload.preemptions.select_related("preemptor__project", "victim__project__cluster"))
    return [preemption_story(records, actor, newest=not index) for index, records in enumerate(evictions)]


def _evictions(records: Iterable[PreemptionRecord]) -> list[list[PreemptionRecord]]:
    found: list[list[PreemptionRecord]] = []
    for record in records:
        last = found[-1][0] if found else None
        if last and (last.head == record.head or _together(last, record)):
            found[-1].append(record)
        else:
            found.append([record])
    return found


def _together(one: PreemptionRecord, other: PreemptionRecord) -> bool:
    return one.preemptor_name == other.preemptor_name and abs(one.at - other.at) <= ONE_DECISION


def preemption_story(records: Sequence[PreemptionRecord], actor: Actor, *, newest: bool = True) -> Story:
    """One eviction as its people should read it. Another project's names are shown to those who may see it."""
    shown = _may_name(records[0], actor)
    sentence = " ".join(_sentences(records, shown=shown, newest=newest))
    steps = tuple(sorted(_steps(records, shown=shown), key=lambda step: step.at))
    return Story(tuple(records), sentence, steps, shown, tuple(_standings(records[0], shown=shown)))


def _standings(record: PreemptionRecord, *, shown: bool) -> Iterator[str]:
    """The lines after the first, with people's names in the place of the queues'."""
    victim, taker = record.victim, record.preemptor
    flavour = flavour_for(victim.project.cluster.flavour)
    names = {flavour.queue_name(victim.project.owner, victim.pool_name): f"project {victim.project.name}"}
    if taker is not None:
        other = f"project {taker.project.name}" if shown else OTHERS
        names[flavour.queue_name(taker.project.owner, taker.pool_name)] = other
    for line in record.message.splitlines()[1:]:
        queue, _, rest = line.partition(" ")
        yield f"{names.get(queue, 'a queue')} {rest}"


def _may_name(record: PreemptionRecord, actor: Actor) -> bool:
    if record.preemptor is None:
        return True
    return can(actor, Verb.VIEW_PROJECT, project=record.preemptor.project)


def _by(record: PreemptionRecord, *, shown: bool) -> str:
    if not record.preemptor_name:
        return "the scheduler, which did not say for whom"
    if not shown:
        return f"a workload of {OTHERS}"
    value = f" ({record.preemptor_priority} {record.preemptor_value})" if record.preemptor_priority else ""
    own = record.preemptor is not None and record.preemptor.project_id == record.victim.project_id
    where = "your project" if own else (record.preemptor_project and f"project {record.preemptor_project}")
    return f"{record.preemptor_name}{value}{f' of {where}' if where else ''}"


def _sentences(records: Sequence[PreemptionRecord], *, shown: bool, newest: bool) -> Iterator[str]:
    record = records[0]
    if was_moved(records):
        yield f"Moved {record.at:%H:%M} UTC by the scheduler, so that free room is in one piece: it starts elsewhere."
    else:
        yield f"Evicted {record.at:%H:%M} UTC by {_by(record, shown=shown)}."
    ran = duration_text(timedelta(seconds=max(each.ran_seconds for each in records)))
    held = gpus_text(sum(each.gpu_milli for each in records))
    pods = f" in {len(records)} pods" if len(records) > 1 else ""
    yield f"It had run {ran} on {held}{pods}; {_loss(records)}"
    if record.cause == PreemptionCause.RECLAIM:
        yield "Its queue was over its share and the other took back what is its own: priority played no part."
    if newest and record.victim.deleted_at is None and (place := queue_position(record.victim)):
        yield f"It is waiting again, {ordinal(place)} in the queue."


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _loss(records: Sequence[PreemptionRecord]) -> str:
    record, lost = records[0], gpu_time_text(sum(each.lost_gpu_seconds for each in records))
    if record.checkpoint_at is None:
        return f"it had saved no checkpoint, so about {lost} are lost."
    since = duration_text(record.at - record.checkpoint_at)
    return f"its last checkpoint was {since} earlier, so about {lost} are lost."


def _steps(records: Sequence[PreemptionRecord], *, shown: bool) -> Iterator[Step]:
    """Decided, SIGTERM, stopped, the other started, requeued, running again: each only once it has happened.

    By the cluster's clocks wherever they say, so that moments and durations agree and the order is that of the moments.
    """
    record = records[0]
    asked = min(_asked_at(each) for each in records)
    yield Step(min(record.at, asked), _decided(records, shown=shown))
    yield Step(asked, f"SIGTERM to {_few(each.pod_name for each in records)}; {record.grace_seconds} s of grace.")
    gone = [each.gone_at for each in records if each.gone_at]
    if len(gone) == len(records):
        where = _few(each.node_name or "its node" for each in records)
        used = round((max(gone) - asked).total_seconds())
        yield Step(max(gone), f"Stopped on {where} after {used} s (grace period {record.grace_seconds} s).")
    if record.preemptor and record.preemptor.started_at and record.preemptor.started_at >= asked:
        yield Step(record.preemptor.started_at, f"Started: {_by(record, shown=shown)}.")
    yield from _afterwards(records, asked)


def _asked_at(record: PreemptionRecord) -> datetime:
    """When the pod's deletion was asked for: an event about the decision may be of a later moment."""
    if record.gone_at is None or record.grace_used_seconds is None:
        return record.at
    return record.gone_at - timedelta(seconds=record.grace_used_seconds)


def _decided(records: Sequence[PreemptionRecord], *, shown: bool) -> str:
    if was_moved(records):
        return "Chosen to be moved to another node."
    by = _by(records[0], shown=shown)
    if not records[0].preemptor_name:
        return f"Chosen for eviction by {by}."
    if records[0].cause == PreemptionCause.RECLAIM:
        return f"Chosen for eviction: {by} takes back its queue's share."
    return f"Chosen for eviction, to make room for {by}."


def _few(names: Iterable[str]) -> str:
    """The first of them by name, and how many more."""
    every = sorted(set(names))
    more = f" and {len(every) - NAMED_PODS} more" if len(every) > NAMED_PODS else ""
    return ", ".join(every[:NAMED_PODS]) + more


def _afterwards(records: Sequence[PreemptionRecord], asked: datetime) -> Iterator[Step]:
    """That it happened, by the order of our entries; when, by the pods that were made in its place where there are any.

    A queue may take it back before it lets its pods be made, so the earlier of both moments is that of the requeue.
    """
    record = records[0]
    words = {Phase.PENDING.value: "Requeued.", Phase.RUNNING.value: "Running again."}
    told = record.victim.timeline.filter(type=EventType.PREEMPTION, at__lte=record.at).order_by("-at", "-pk").first()
    seen: set[str] = set()
    later = ObservedPod.objects.filter(owner_id=str(record.victim_id), cluster=record.cluster_id, created_at__gte=asked)
    pods = list(later.exclude(uid__in=[each.pod_uid for each in records]).values_list("created_at", "started_at"))
    made = min((made for made, _started in pods), default=None)
    started = min((started for _made, started in pods if started), default=None)
    moves = record.victim.timeline.filter(type=EventType.PHASE, phase__in=words, pk__gt=told.pk if told else 0)
    for entry in moves.order_by("pk")[:20]:
        if entry.phase not in seen and (entry.phase != Phase.RUNNING or Phase.PENDING in seen):
            seen.add(entry.phase)
            yield Step(max(asked, _moment(entry, made, started)), words[entry.phase])


def _moment(entry: WorkloadEvent, made: datetime | None, started: datetime | None) -> datetime:
    if entry.phase == Phase.RUNNING:
        return started or entry.at
    return min(entry.at, made) if made else entry.at
