"""Who may do what to a workload, a type, the dictionary or rows of a scope. The roles' table: `tenants.permissions`."""

from typing import Any

from portal.core.actors import Actor
from tenants.models import Department, Project
from tenants.permissions import Verb, can, require
from workloads.models import Workload
from workloads.models.scoped import Owner
from workloads.models.template import Prepared


def is_own(actor: Actor, workload: Workload) -> bool:
    """Did this actor submit it?"""
    return (workload.submitted_by_kind, workload.submitted_by_id) == (str(actor.kind), actor.id)


def may_manage(actor: Actor, workload: Workload) -> bool:
    """Stop, resume, delete, change: one's own with less, anybody's with more."""
    if is_own(actor, workload) and can(actor, Verb.MANAGE_WORKLOAD, project=workload.project):
        return True
    return can(actor, Verb.MANAGE_ANY_WORKLOAD, project=workload.project)


def require_manage(actor: Actor, workload: Workload) -> None:
    """Raise Absent where the project is not the actor's to see, Denied where the workload is not theirs to change."""
    if not may_manage(actor, workload):
        require(actor, Verb.MANAGE_ANY_WORKLOAD, project=workload.project)


def require_dictionary(actor: Actor) -> None:
    """Dictionary, types and plans belong to the platform admins."""
    require(actor, Verb.MANAGE_DICTIONARY)


def require_scope(actor: Actor, owner: Owner, *, in_project: Verb = Verb.MANAGE_PROJECT) -> None:
    """Rows of a project need `in_project`; of a department: to manage it; of all else: to be a platform admin."""
    verb, place = _needed(owner, in_project)
    require(actor, verb, **place)


def may_keep(actor: Actor, row: Prepared) -> bool:
    """Change and delete a template or an asset: of a project one's own with less, anybody's with more."""
    verb, place = _needed(row.owner, _keeping(actor, row))
    return can(actor, verb, **place)


def require_keep(actor: Actor, row: Prepared) -> None:
    """Raise Absent where its scope is not the actor's to see, Denied where it is not theirs to change."""
    require_scope(actor, row.owner, in_project=_keeping(actor, row))


def _needed(owner: Owner, in_project: Verb) -> tuple[Verb, dict[str, Any]]:
    if isinstance(owner, Project):
        return in_project, {"project": owner}
    if isinstance(owner, Department):
        return Verb.MANAGE_DEPARTMENT, {"department": owner}
    return Verb.MANAGE_DICTIONARY, {}


def _keeping(actor: Actor, row: Prepared) -> Verb:
    own = (row.created_by_kind, row.created_by_id) == (str(actor.kind), actor.id)
    may = own and row.project is not None and can(actor, Verb.MANAGE_WORKLOAD, project=row.project)
    return Verb.MANAGE_WORKLOAD if may else Verb.MANAGE_ANY_WORKLOAD
