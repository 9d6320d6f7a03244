"""Which audit records a person may read, and how they are filtered."""

from collections.abc import Mapping
from typing import Final

from django.db.models import Q, QuerySet

from portal.audit.models import AuditRecord
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for
from tenants.organisation.models import Project

FILTERS: Final[Mapping[str, str]] = {
    "who": "actor_name__icontains",
    "action": "action__istartswith",
    "what": "entity_name__icontains",
    "result": "result__iexact",
}


def readable_records(actor: Actor, chosen: Mapping[str, str]) -> QuerySet[AuditRecord]:
    """Records of the whole installation, or of the projects where the actor may read them, and the actor's own.

    A key that is bound to a project or a department reads its owner's own records of that place only.
    """
    access = access_for(actor)
    rows = AuditRecord.objects.all()
    if not access.can(Permission.VIEW_AUDIT):
        own = Q(actor_kind=str(actor.kind), actor_id=actor.id)
        if actor.limits and actor.limits.bound:
            own &= _of(access.projects())
        rows = rows.filter(own | _of(access.projects(Permission.VIEW_AUDIT)))
    return rows.filter(**{FILTERS[name]: value for name, value in chosen.items()})


def _of(projects: QuerySet[Project]) -> Q:
    """Records carry ids as text."""
    return Q(project_id__in=[str(pk) for pk in projects.values_list("pk", flat=True)])
