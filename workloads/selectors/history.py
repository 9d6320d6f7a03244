"""What happened to a workload: its pods, events, timeline, and each eviction told as a story."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.errors import ClusterError
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import POD
from clusters.models import ClusterEvent, ObservedPod
from clusters.ports import ObjectRef
from portal.core.actors import Actor
from tenants.models import Project
from tenants.permissions import Verb, can, visible_projects
from workloads.models import EventType, Phase, PreemptionCause, PreemptionRecord, Workload
from workloads.selectors.waiting import queue_position
from workloads.sentences import duration_text, gpus_text

MOST_ENTRIES = 200
OTHERS = "another project"
_NAMED = re.compile(r"\b([a-z0-9][a-z0-9-]*)/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline."""

    at: datetime
    type: str
    phase: str
    reason: str
    message: str
    actor_name: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an eviction."""

    at: datetime
    words: str


@dataclass(frozen=True, slots=True)
class Story:
    """An eviction: one sentence, the steps below it, and whether the other's name is the reader's to see.

    `standings`: for a reclaim both queues' numbers, in the scheduler's words.
    """

    record: PreemptionRecord
    sentence: str
    steps: tuple[Step, ...]
    names_shown: bool
    standings: tuple[str, ...] = ()


def pods_of(workload: Workload, actor: Actor | None = None) -> list[ObservedPod]:
    """Its pods, newest first, gone ones too. Names of projects that the actor may not see are left out of messages."""
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    pods = list(rows.order_by("-created_at", "name")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for pod in pods:
        pod.message = quietly(pod.message, hidden)
        pod.disruption_message = quietly(pod.disruption_message, hidden)
    return pods


def events_of(workload: Workload, actor: Actor | None = None) -> list[ClusterEvent]:
    """What its cluster reported about its objects, newest first; names as in `pods_of`."""
    rows = ClusterEvent.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    events = list(rows.order_by("-at", "-pk")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for event in events:
        event.message = quietly(event.message, hidden)
    return events


def hidden_namespaces(workload: Workload, actor: Actor | None) -> frozenset[str]:
    """Namespaces of the same cluster whose projects the actor may not see; without an actor all but its own."""
    others = Project.objects.filter(cluster=workload.project.cluster_id).exclude(pk=workload.project_id)
    if actor is not None:
        others = others.exclude(pk__in=visible_projects(actor))
    return frozenset(others.values_list("namespace", flat=True))


def quietly(text: str, hidden: frozenset[str]) -> str:
    """A scheduler's message without other projects' names: `<namespace>/<name>` becomes "another project"."""

    def told(match: re.Match[str]) -> str:
        return OTHERS if match[1] in hidden else match[0]

    return _NAMED.sub(told, text)


def timeline(workload: Workload) -> list[Entry]:
    """Everything that happened to it, newest first, with who did it."""
    return [
        Entry(row.at, row.type, row.phase, row.reason, row.message or row.phase or row.reason, row.actor)
        for row in workload.timeline.all()[:MOST_ENTRIES]
    ]


def logs(workload: Workload, pod: str, tail: int = 200) -> list[str]:
    """The last lines of one of its pods; empty when the pod or its cluster is gone."""
    if not ObservedPod.objects.filter(owner_id=str(workload.pk), name=pod).exists():
        return []
    try:
        ref = ObjectRef(POD, pod, workload.project.namespace)
        return list(gateway_for(workload.project.cluster).logs(ref, tail=tail))
    except ClusterError:
        return []


def preemptions_of(workload: Workload) -> list[PreemptionRecord]:
    """Its evictions, newest first."""
    return list(workload.preemptions.select_related("preemptor__project", "victim__project"))


def preemption_story(record: PreemptionRecord, actor: Actor) -> Story:
    """The eviction as its people should read it. Another project's names are shown to those who may see it."""
    shown = _may_name(record, actor)
    sentence, steps = " ".join(_sentences(record, shown=shown)), tuple(_steps(record, shown=shown))
    return Story(record, sentence, steps, shown, tuple(_standings(record, shown=shown)))


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


def _sentences(record: PreemptionRecord, *, shown: bool) -> Iterator[str]:
    yield f"Evicted {record.at:%H:%M} UTC by {_by(record, shown=shown)}."
    ran = duration_text(timedelta(seconds=record.ran_seconds))
    yield f"It had run {ran} on {gpus_text(record.gpu_milli)}; {_loss(record)}"
    if record.cause == PreemptionCause.RECLAIM:
        yield "Its queue was over its share and the other took back what is its own: priority played no part."
    if record.victim.deleted_at is None and (place := queue_position(record.victim)):
        yield f"It is waiting again, {ordinal(place)} in the queue."


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _loss(record: PreemptionRecord) -> str:
    hours = record.lost_gpu_seconds / 3600
    if record.checkpoint_at is None:
        return f"it had saved no checkpoint, so about {hours:.1f} GPU-hours are lost."
    since = duration_text(record.at - record.checkpoint_at)
    return f"its last checkpoint was {since} earlier, so about {hours:.1f} GPU-hours are lost."


def _steps(record: PreemptionRecord, *, shown: bool) -> Iterator[Step]:
    """Decided, SIGTERM, gone, the other started, requeued, running again: each only once it has happened."""
    decided = record.message.partition("\n")[0] or "the scheduler evicts it."
    yield Step(record.at, f"Decided: {decided}" if shown else "Decided.")
    yield Step(record.at, f"SIGTERM to {record.pod_name}; {record.grace_seconds} s of grace.")
    if record.gone_at:
        yield Step(record.gone_at, f"Gone from {record.node_name or 'its node'}.")
    if record.preemptor and record.preemptor.started_at and record.preemptor.started_at >= record.at:
        yield Step(record.preemptor.started_at, f"Started: {_by(record, shown=shown)}.")
    yield from _afterwards(record)


def _afterwards(record: PreemptionRecord) -> Iterator[Step]:
    """By the order of the entries, since the cluster's clock and ours may differ."""
    words = {Phase.PENDING.value: "Requeued.", Phase.RUNNING.value: "Running again."}
    told = record.victim.timeline.filter(type=EventType.PREEMPTION, at__lte=record.at).order_by("-at", "-pk").first()
    seen: set[str] = set()
    moves = record.victim.timeline.filter(type=EventType.PHASE, phase__in=words, pk__gt=told.pk if told else 0)
    for entry in moves.order_by("pk")[:20]:
        if entry.phase not in seen and (entry.phase != Phase.RUNNING or Phase.PENDING in seen):
            seen.add(entry.phase)
            yield Step(entry.at, words[entry.phase])
