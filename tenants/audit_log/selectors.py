"""Which audit records a person may read, and what is sealed of the trail."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from portal.audit.models import AuditChain, AuditRecord
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for
from tenants.organisation.models import Project


def readable_records(actor: Actor) -> QuerySet[AuditRecord]:
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
    return rows


def _of(projects: QuerySet[Project]) -> Q:
    """Records carry ids as text."""
    return Q(project_id__in=[str(pk) for pk in projects.values_list("pk", flat=True)])


@dataclass(frozen=True, slots=True)
class ChainState:
    """The hash chain as stored. sealed: number of records; sealed_at: time of the last one; waiting_since: of the
    oldest record that is not sealed yet.
    """

    sealed: int
    sealed_at: datetime | None
    waiting_since: datetime | None


def chain_state(actor: Actor) -> ChainState | None:
    """None for those who may read only a part of the trail."""
    if not access_for(actor).can(Permission.VIEW_AUDIT):
        return None
    sealed = AuditChain.objects.values_list("length", flat=True).filter(pk=1).first() or 0
    times = AuditRecord.objects.order_by("pk").values_list("at", flat=True)
    return ChainState(sealed, times.filter(sealed_seq=sealed).first(), times.filter(sealed_seq=None).first())
