"""Workloads that an actor sees and may change, failures to apply, and one workload over time: pods, events, logs,
timeline.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Node
from clusters.inventory.selectors import OwnerNamespace
from clusters.ports.gateway import ClusterError, ObjectRef
from clusters.ports.objects import POD
from clusters.watch.models import ClusterEvent, ObservedPod
from clusters.watch.rules import LogText, clean_message, tail
from portal.kit.api.parsers import rfc3339
from portal.kit.errors import NotFound
from portal.kit.messaging.concurrency import LogReaderSlots
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, can, require, visible_projects
from tenants.organisation.models import Project
from workloads.state.models import DesiredPhase, EventType, FeedState, Phase, Workload, WorkloadEvent
from workloads.state.rules import ENDED, HOLDING, WAITING


def visible_workloads(actor: Actor, *, deleted: bool = False) -> QuerySet[Workload]:
    """Workloads of the actor's projects with everything a row shows; order and page as the caller likes."""
    rows = Workload.objects.filter(_seen_by(actor), deleted_at__isnull=not deleted)
    return rows.select_related("project__department", "project__cluster", "type", "priority")


def _seen_by(actor: Actor) -> Q:
    """Everything, one project, or several: said as plainly as it is, so that the list's indexes can serve it."""
    access = access_for(actor)
    if access.can(Permission.VIEW_PROJECT):
        return Q()
    own = {grant.place for grant in access.granting(Permission.VIEW_PROJECT)}
    if len(own) == 1 and (place := own.pop())[1:] == (None, None):
        return Q(project=place[0])
    return Q(project__in=access.projects())


def workload_or_404(actor: Actor, workload_id: UUID | str) -> Workload:
    """The workload, also a deleted one. Absent when there is none or it is not the actor's to see."""
    try:
        key = UUID(str(workload_id))
    except ValueError:
        raise NotFound from None
    rows = Workload.objects.filter(project__in=visible_projects(actor))
    found = rows.select_related("project__department", "project__cluster", "type", "priority").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def is_own(actor: Actor, workload: Workload) -> bool:
    return (workload.submitted_by_kind, workload.submitted_by_id) == (str(actor.kind), actor.id)


def may_manage(actor: Actor, workload: Workload) -> bool:
    """Stop, resume, delete, change: one's own with less, anybody's with more."""
    if is_own(actor, workload) and can(actor, Permission.MANAGE_WORKLOAD, project=workload.project):
        return True
    return can(actor, Permission.MANAGE_ANY_WORKLOAD, project=workload.project)


def require_manage(actor: Actor, workload: Workload) -> None:
    """Raise Absent where the project is not the actor's to see, Denied where the workload is not theirs to change."""
    if not may_manage(actor, workload):
        require(actor, Permission.MANAGE_ANY_WORKLOAD, project=workload.project)


def workload_id(owner: str) -> UUID | None:
    """The id, or None for anything else."""
    try:
        return UUID(owner)
    except ValueError:
        return None


def workload_ids(owners: Iterable[str]) -> list[UUID]:
    """Those of the owners that are ids."""
    return [found for owner in owners if (found := workload_id(owner)) is not None]


FAILED_TO_APPLY: Final = Q(
    phase=Phase.FAILED, desired_phase=DesiredPhase.RUNNING, apply_error__gt="", deleted_at__isnull=True
)
"""The same as `failed_to_apply`, for a query. Pods that failed leave no error of applying."""
EVICTED: Final = Q(preempted_count__gt=0, deleted_at__isnull=True)
"""Evicted at least once."""


def failed_to_apply(workload: Workload) -> bool:
    """Did it end in an error of applying, and is it still wanted?"""
    ended = workload.phase == Phase.FAILED and bool(workload.apply_error)
    return ended and workload.desired_phase == DesiredPhase.RUNNING and workload.deleted_at is None


def on_node(name: str) -> Q:
    """Workloads with a pod that holds something on the node of this name now, in the clusters that have one."""
    clusters = list(Node.objects.filter(name=name).values_list("cluster", flat=True))
    pods = ObservedPod.objects.holding().filter(cluster__in=clusters, node_name=name)
    return Q(pk__in=workload_ids(set(pods.values_list("owner_id", flat=True))))


@dataclass(frozen=True, slots=True)
class ApplyFailure:
    """What the cluster's server said, and the field it refused as a JSON pointer into the object, if it named one."""

    message: str
    pointer: str = ""


def failure_of(workload: Workload) -> ApplyFailure | None:
    """None unless it failed to apply."""
    if not failed_to_apply(workload):
        return None
    ends = workload.timeline.filter(type=EventType.PHASE, phase=Phase.FAILED).order_by("-at", "-pk")
    pointer = next((str(end.detail.get("pointer") or "") for end in ends[:1]), "")
    return ApplyFailure(workload.apply_error, pointer)


REPORTED_AT: Final = Coalesce(
    Subquery(
        WorkloadEvent.objects.filter(workload=OuterRef("pk"), message=OuterRef("phase_message"))
        .order_by("-at")
        .values("at")[:1]
    ),
    "updated_at",
)
"""When the message of its phase was reported: the timeline has those with a new reason, only the row has later ones."""


def object_name(workload: Workload) -> str:
    """`<name>-<first eight of the uuid>`: the same on every try, never another workload's."""
    return named_object(workload.name, workload.pk)


def named_object(name: str, key: UUID) -> str:
    """`object_name` of a workload with this name and primary key."""
    return f"{name[:50].rstrip('-.')}-{key.hex[:8]}"


CHUNK = 1000  # ids in one query


HOME = ("pk", "project__cluster_id", "project__namespace")


def names_of(owner_ids: frozenset[str]) -> dict[str, str]:
    known = {text for text in owner_ids if _is_uuid(text)}
    rows = Workload.objects.filter(pk__in=known).values_list("pk", "name")
    return {str(key): name for key, name in rows}


def homes_of(owner_ids: frozenset[str]) -> dict[str, OwnerNamespace]:
    """Where the objects of the workloads among these ids belong, deleted ones too."""
    keys = workload_ids(owner_ids)
    parts = (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))
    rows = (Workload.objects.filter(pk__in=part).values_list(*HOME) for part in parts)
    homes = {key: (cluster, namespace) for part in rows for key, cluster, namespace in part}
    return {text: homes[key] for text in owner_ids if (key := workload_id(text)) in homes}


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


MOST_ENTRIES = 200
OTHERS = "another project"
MANY_READ = "Too many logs are being read. Retrying in a few seconds."
READERS = LogReaderSlots()
_NAMED = re.compile(r"\b([a-z0-9][a-z0-9-]*)/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of the timeline."""

    at: datetime
    type: str
    phase: str
    reason: str
    message: str
    actor_name: str = ""


def pods_of(workload: Workload, actor: Actor | None = None) -> list[ObservedPod]:
    """Its pods, newest first, gone ones too. Names of projects that the actor may not see are left out of messages."""
    rows = ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    pods = list(rows.order_by("-created_at", "name")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for pod in pods:
        pod.message = quietly(clean_message(pod.message), hidden)
        pod.disruption_message = quietly(clean_message(pod.disruption_message), hidden)
    return pods


def events_of(workload: Workload, actor: Actor | None = None) -> list[ClusterEvent]:
    """What its cluster reported about its objects, newest first; names as in `pods_of`."""
    rows = ClusterEvent.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
    events = list(rows.order_by("-at", "-pk")[:MOST_ENTRIES])
    hidden = hidden_namespaces(workload, actor)
    for event in events:
        event.message = quietly(clean_message(event.message), hidden)
    return events


def hidden_namespaces(workload: Workload, actor: Actor | None) -> frozenset[str]:
    """Namespaces of the same cluster whose projects the actor may not see; without an actor all but its own."""
    others = Project.objects.filter(cluster=workload.project.cluster_id).exclude(pk=workload.project_id)
    if actor is not None:
        others = others.exclude(pk__in=visible_projects(actor))
    return frozenset(others.values_list("namespace", flat=True))


def quietly(text: str, hidden: frozenset[str]) -> str:
    """A scheduler's message without other projects' names: `<namespace>/<name>` becomes "another project"."""

    def replaced(match: re.Match[str]) -> str:
        return OTHERS if match[1] in hidden else match[0]

    return _NAMED.sub(replaced, text)


def entries_of(workload: Workload) -> list[WorkloadEvent]:
    """The newest entries of its timeline, newest first, as they are stored."""
    return list(workload.timeline.all()[:MOST_ENTRIES])


def timeline(rows: Sequence[WorkloadEvent]) -> list[TimelineEntry]:
    """These entries of a workload as its page shows them, with who did it."""
    evictions = {row.message for row in rows if row.type == EventType.PREEMPTION}
    return [
        TimelineEntry(row.at, row.type, row.phase, row.reason, _entry_text(row, evictions), row.actor) for row in rows
    ]


def _entry_text(row: WorkloadEvent, evictions: Collection[str]) -> str:
    """The phase after an eviction carries the eviction's own sentence, which has an entry already."""
    if row.type == EventType.PHASE and row.phase == Phase.PENDING and row.message in evictions:
        return "Requeued."
    return row.message or row.phase or row.reason


def containers_of(workload: Workload, pod: ObservedPod) -> list[str]:
    """The containers of one of its pods, as they were submitted; a controller may have added others."""
    roles = workload.spec.get("roles") or []
    own = [role for role in roles if role["name"] == pod.role] or roles
    return list(dict.fromkeys(name for role in own for name in role.get("containers", [])))


def logs(workload: Workload, pod: str, *, container: str = "", lines: int = 200) -> LogText:
    """The last lines of one of its pods, fit to be read. The trouble says why there are none."""
    row = ObservedPod.objects.filter(owner_id=str(workload.pk), name=pod).order_by("-created_at").first()
    if row is None:
        return LogText()
    with READERS.turn(workload.project.cluster_id) as mine:
        return _read(workload, row, container, lines) if mine else LogText(trouble=MANY_READ)


def _read(workload: Workload, row: ObservedPod, container: str, lines: int) -> LogText:
    try:
        if not container and len(several := containers_of(workload, row)) > 1:
            container = several[0]  # an API server does not choose
        ref = ObjectRef(POD, row.name, workload.project.namespace)
        # one line more than is shown, to know whether there are earlier ones
        text = gateway_for(workload.project.cluster).logs(ref, container=container, tail=lines + 1)
    except ClusterError as error:
        return LogText(trouble=clean_message(error.message))
    return tail(text, most_lines=lines)


MOST: Final = 200
FEED_REACH: Final = timedelta(days=7)
"""How far back a reader of the change feed may go on; who was away for longer lists again."""


@dataclass(frozen=True, slots=True)
class CurrentPhase:
    """The current phase of a workload. `over`: `ended` or `deleted`, empty while something may still happen."""

    phase: str
    reason: str
    message: str
    at: datetime
    over: str


def waited_seconds(workload: Workload) -> float:
    """Seconds without its pods since it was submitted, all waits together, up to now."""
    return workload.pending_seconds + (_since(workload.phase_at) if workload.phase in WAITING else 0)


def ran_seconds(workload: Workload) -> float:
    """Seconds with its pods, all runs together, up to now."""
    return workload.running_seconds + (_since(workload.phase_at) if workload.phase in HOLDING else 0)


def _since(moment: datetime) -> float:
    return max((timezone.now() - moment).total_seconds(), 0)


def entries_after(workload_id: UUID, key: int) -> tuple[list[WorkloadEvent], bool]:
    """The oldest entries that were written after the one with that key, and whether there are no others."""
    found = list(WorkloadEvent.objects.filter(workload=workload_id, pk__gt=key).order_by("pk")[: MOST + 1])
    return found[:MOST], len(found) <= MOST


def feed_end() -> int:
    """The last position of the change feed; 0 while it is empty."""
    return FeedState.objects.values_list("last", flat=True).filter(pk=1).first() or 0


def is_in_feed(position: int) -> bool:
    """Can a reader go on after this position? Not after one that was never given, nor where the next is too old."""
    if position > feed_end():
        return False
    after = WorkloadEvent.objects.filter(position__gt=position).order_by("position").values_list("at", flat=True)
    oldest = after.first()
    return oldest is None or oldest > timezone.now() - FEED_REACH


def changes_after(actor: Actor, position: int, wanted: Q) -> tuple[list[WorkloadEvent], int]:
    """The next `wanted` entries of workloads that the actor may see now, and the position up to which it was read."""
    last = feed_end()
    if last <= position:
        return [], position
    rows = WorkloadEvent.objects.filter(position__gt=position, position__lte=last)
    seen = rows.filter(wanted, workload__project__in=visible_projects(actor)).select_related("workload__project")
    found = list(seen.order_by("position")[:MOST])
    return found, found[-1].position or position if len(found) == MOST else last


def change_json(event: WorkloadEvent, hidden: frozenset[str]) -> dict[str, Any]:
    """An entry of the change feed, as streams and webhooks send it. `hidden`: as in `quietly`."""
    workload = event.workload
    return {
        "id": str(event.position),
        "at": rfc3339(event.at),
        "type": event.type,
        "phase": event.phase,
        "reason": event.reason,
        "message": quietly(clean_message(event.message), hidden),
        "actor": event.actor,
        "workloadId": str(workload.pk),
        "workloadName": workload.name,
        "projectId": str(workload.project_id),
        "projectName": workload.project.name,
    }


def newest_entry(workload_id: UUID) -> int:
    """The key of its last entry, 0 without one."""
    keys = WorkloadEvent.objects.filter(workload=workload_id).order_by("-pk").values_list("pk", flat=True)
    return keys.first() or 0


def current_phase(workload_id: UUID) -> CurrentPhase | None:
    """Its current phase; None when it is deleted."""
    row = Workload.objects.filter(pk=workload_id).only(*_READ).first()
    if row is None:
        return None
    over = "deleted" if row.deleted_at else "ended" if row.phase in ENDED else ""
    return CurrentPhase(row.phase, row.phase_reason, row.phase_message, row.phase_at, over)


_READ: Final = ("phase", "phase_reason", "phase_message", "phase_at", "deleted_at")
