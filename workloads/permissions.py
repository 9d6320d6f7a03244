"""Who may do what to a workload, a type or the dictionary. The roles' table is `tenants.permissions`."""

from portal.core.actors import Actor
from tenants.permissions import Verb, can, require
from workloads.models import Workload


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
