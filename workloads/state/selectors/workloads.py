"""Workloads that an actor sees and may change, workloads by owner id, and failures to apply."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet

from clusters.inventory.selectors import OwnerNamespace
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, can, require, visible_projects
from workloads.state.models import DesiredPhase, EventType, Phase, Workload


def visible_workloads(actor: Actor, *, deleted: bool = False) -> QuerySet[Workload]:
    """Workloads of the actor's projects with everything a row shows; order and page as the caller likes."""
    rows = Workload.objects.filter(_seen_by(actor), deleted_at__isnull=not deleted)
    return rows.select_related("project__department", "project__cluster", "type", "priority")


def _seen_by(actor: Actor) -> Q:
    """Everything, one project, or several: said as plainly as it is, so that the list's indexes can serve it."""
    standing = access_for(actor)
    if standing.can(Permission.VIEW_PROJECT):
        return Q()
    own = {grant.place for grant in standing.granting(Permission.VIEW_PROJECT)}
    if len(own) == 1 and (place := own.pop())[1:] == (None, None):
        return Q(project=place[0])
    return Q(project__in=standing.projects())


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


def failed_to_apply(workload: Workload) -> bool:
    """Did it end in an error of applying, and is it still wanted?"""
    ended = workload.phase == Phase.FAILED and bool(workload.apply_error)
    return ended and workload.desired_phase == DesiredPhase.RUNNING and workload.deleted_at is None


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
