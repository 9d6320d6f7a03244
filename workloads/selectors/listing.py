"""Which workloads an actor sees."""

from uuid import UUID

from django.db.models import Q, QuerySet

from portal.core.actors import Actor
from portal.core.errors import Absent
from tenants.permissions import Verb, standing_of, visible_projects
from workloads.models import Workload


def visible_workloads(actor: Actor, *, deleted: bool = False) -> QuerySet[Workload]:
    """Workloads of the actor's projects with everything a row shows; order and page as the caller likes."""
    rows = Workload.objects.filter(_seen_by(actor), deleted_at__isnull=not deleted)
    return rows.select_related("project__department", "project__cluster", "type", "priority")


def _seen_by(actor: Actor) -> Q:
    """Everything, one project, or several: said as plainly as it is, so that the list's indexes can serve it."""
    standing = standing_of(actor)
    if standing.can(Verb.VIEW_PROJECT):
        return Q()
    own = {grant.place for grant in standing.granting(Verb.VIEW_PROJECT)}
    if len(own) == 1 and (place := own.pop())[1:] == (None, None):
        return Q(project=place[0])
    return Q(project__in=standing.projects())


def workload_or_404(actor: Actor, workload_id: UUID | str) -> Workload:
    """The workload, also a deleted one. Absent when there is none or it is not the actor's to see."""
    try:
        key = UUID(str(workload_id))
    except ValueError:
        raise Absent from None
    rows = Workload.objects.filter(project__in=visible_projects(actor))
    found = rows.select_related("project__department", "project__cluster", "type", "priority").filter(pk=key).first()
    if found is None:
        raise Absent
    return found
