"""Which audit records a person may read, and how they are filtered."""

from collections.abc import Mapping
from typing import Final

from django.db.models import Q, QuerySet

from portal.audit.models import AuditRecord
from portal.core.actors import Actor
from tenants.permissions import Verb, standing_of

FILTERS: Final[Mapping[str, str]] = {
    "who": "actor_name__icontains",
    "action": "action__istartswith",
    "what": "entity_name__icontains",
    "result": "result__iexact",
}


def readable_records(actor: Actor, chosen: Mapping[str, str]) -> QuerySet[AuditRecord]:
    """Records of the whole installation, or of the projects where the actor may read them, and the actor's own."""
    standing = standing_of(actor)
    rows = AuditRecord.objects.all()
    if not standing.can(Verb.VIEW_AUDIT):
        projects = standing.projects(Verb.VIEW_AUDIT).values_list("pk", flat=True)
        own = Q(actor_kind=str(actor.kind), actor_id=actor.id)
        rows = rows.filter(own | Q(project_id__in=[str(pk) for pk in projects]))
    return rows.filter(**{FILTERS[name]: value for name, value in chosen.items()})
