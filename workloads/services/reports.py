"""Usage reports: asked for and thrown away by whoever wants them; workers make them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.utils import timezone

from portal.audit.services import record
from portal.core.actors import Actor, ActorKind
from portal.core.errors import Absent, Conflict, Denied, Refused
from workloads.enqueue import wake_report
from workloads.models import Report, ReportStatus
from workloads.report_requests import named_places, refuse_unless_good
from workloads.selectors.reports import may_read, places_of, reports_of
from workloads.services.denials import verb

MOST: Final = 50
"""Reports of one subject."""
MOST_PLACES: Final = 5000


def create_report(
    *,
    name: str,
    start: datetime,
    end: datetime,
    actor: Actor,
    description: str = "",
    group_by: str = "",
    filter_by: Sequence[str] = (),
) -> Report:
    """Ask for a report. Refused at the field; what the actor may not see is as if it were not there."""
    with verb(actor=actor, action="report.create", entity_type="report", entity_name=name):
        if actor.kind is ActorKind.SYSTEM:
            raise Absent
        now = timezone.now()
        refuse_unless_good(name=name, start=start, end=end, now=now)
        _refuse_unless_known(group_by, filter_by, actor)
        if Report.objects.filter(subject_kind=str(actor.kind), subject_id=actor.id).count() >= MOST:
            raise Conflict(f"You have {MOST} reports: delete one of them first.", code="too_many")
        row = Report(name=name, description=description, start=start, end=end, created_at=now)
        row.group_by, row.filter_by = group_by, list(filter_by)
        row.status_at = row.due_at = now
        row.ask(actor)
        row.save(force_insert=True)
        record(actor, "report.create", row, detail=_told(row))
        wake_report(row.pk)
    return row


def delete_report(*, key: UUID, actor: Actor) -> None:
    """Throw it away, also while it is being made. Absent for somebody else's."""
    with verb(actor=actor, action="report.delete", entity_type="report", entity_name=str(key)):
        row = own_report(key=key, actor=actor)
        record(actor, "report.delete", row, detail=_told(row))
        row.delete()


def own_report(*, key: UUID, actor: Actor) -> Report:
    """The subject's own report; Absent for somebody else's."""
    row = reports_of(actor).filter(pk=key).first()
    if row is None:
        raise Absent
    return row


def file_of_report(*, key: UUID, actor: Actor) -> tuple[Report, str]:
    """A report with its file. Conflict until it is ready; Denied where it tells of what one may not see any more."""
    row = own_report(key=key, actor=actor)
    if row.status != ReportStatus.READY:
        words = row.message or "It is being made."
        raise Conflict(f"There is no file of this report. {words}", code="report_not_ready")
    if not may_read(row, actor):
        message = "This report tells of projects or departments that you may not see any more."
        raise Denied(message, code="not_yours_any_more")
    return row, row.content


def _refuse_unless_known(group_by: str, filter_by: Sequence[str], actor: Actor) -> None:
    named_places(filter_by)
    found = len(places_of(group_by=group_by, filter_by=filter_by, actor=actor))
    if not found:
        where = "/filterBy" if filter_by else "/groupBy"
        raise Refused.at(where, "nothing_to_tell", "There is nothing of this kind and name that you may see.")
    if found > MOST_PLACES:
        message = f"It would tell of {found} places; up to {MOST_PLACES} are taken: narrow it with filterBy."
        raise Refused.at("/filterBy", "too_many_places", message, found=found, most=MOST_PLACES)


def _told(row: Report) -> dict[str, object]:
    return {
        "start": row.start,
        "end": row.end,
        "groupBy": row.group_by,
        "filterBy": row.filter_by,
        "status": row.status,
    }
