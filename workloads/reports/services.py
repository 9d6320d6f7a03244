"""Create and delete usage reports; workers make their files, and every step may be repeated.

1. a report that is due is claimed by compare-and-set: the lease moves `due_at` ahead and counts the try
2. what its asker may see now is read, and what the samples say of it; nothing is locked meanwhile
3. the first file that is made is kept; a second worker finds it and leaves it
A report whose worker died is found by the sweep when the lease has run out; one that ends every worker is given up.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.db.models import F, QuerySet
from django.utils import timezone

from portal.audit.services import audited_transaction, record
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.messaging.publisher import notify_worker
from portal.kit.security.actors import Actor, ActorKind
from workloads.reports.models import Report, ReportStatus
from workloads.reports.rules import file_of, named_places, validate_report, words_of_cover
from workloads.reports.selectors import keys_of_places, lines_of, may_read, places_of, reports_of, stretch_of

log = structlog.get_logger(__name__)

LEASE: Final = timedelta(minutes=3)
"""Longer than a task may take."""
PAUSE: Final = timedelta(seconds=20)
TRIES: Final = 4
LARGEST: Final = 8 * 2**20
"""Characters of a file."""
KEPT: Final = timedelta(days=30)
RUN: Final = timedelta(seconds=30)
"""How long one sweep goes on taking reports."""
UNFINISHED: Final = (ReportStatus.PENDING, ReportStatus.PROCESSING)


def sweep() -> int:
    """Make what is due, oldest first; answers how many were taken."""
    began, taken = timezone.now(), 0
    due = Report.objects.filter(status__in=UNFINISHED, due_at__lte=began).order_by("due_at")
    for key in list(due.values_list("pk", flat=True)[:100]):
        if timezone.now() - began < RUN:
            taken += make(key)
    return taken


def make(key: UUID | str) -> bool:
    """Make one report if it is due and no other worker has it. False: nothing to do."""
    now = timezone.now()
    due = Report.objects.filter(pk=UUID(str(key)), status__in=UNFINISHED, due_at__lte=now)
    lease = {"due_at": now + LEASE, "attempts": F("attempts") + 1}
    if due.update(status=ReportStatus.PROCESSING, status_at=now, **lease) != 1:
        return False
    row = Report.objects.filter(pk=UUID(str(key))).first()
    if row is not None:
        _try(row, now)
    return True


def forget_old() -> int:
    """Drop reports that ended long ago, with their files; answers how many."""
    ended = Report.objects.exclude(status__in=UNFINISHED)
    return ended.filter(status_at__lt=timezone.now() - KEPT).delete()[0]


def _try(row: Report, now: datetime) -> None:
    if row.attempts > TRIES:
        _fail(row, "Failed after several attempts. Try a shorter period or a narrower scope.")
        return
    try:
        _make(row, now)
    except Exception:  # whatever it was: the report is tried again, and ends with a message that names no inside
        log.exception("report.failed", report=str(row.pk), attempts=row.attempts)
        if row.attempts == TRIES:
            _fail(row, "The report could not be created. See the operator's log for the cause.")
        else:
            _unfinished(row).update(due_at=timezone.now() + PAUSE * row.attempts, status=ReportStatus.PENDING)


def _make(row: Report, now: datetime) -> None:
    places = places_of(group_by=row.group_by, filter_by=row.filter_by, actor=row.asker)
    if not places:
        _fail(row, "The scope was deleted or is no longer visible to you.")
        return
    lines = list(lines_of(places, stretch_of(row, places, now=now)))
    text = file_of(lines)
    if len(text) > LARGEST:
        _fail(row, "The file would be too large. Choose a narrower scope.")
        return
    _end(row, status=ReportStatus.READY, message=words_of_cover(lines), content=text, covered=keys_of_places(places))


def _fail(row: Report, message: str) -> None:
    _end(row, status=ReportStatus.FAILED, message=message)


def _end(row: Report, **fields: object) -> None:
    _unfinished(row).update(due_at=None, status_at=timezone.now(), **fields)


def _unfinished(row: Report) -> QuerySet[Report]:
    """The row, unless another worker ended it."""
    return Report.objects.filter(pk=row.pk, status__in=UNFINISHED)


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
    with audited_transaction(actor=actor, action="report.create", entity_type="report", entity_name=name):
        if actor.kind is ActorKind.SYSTEM:
            raise NotFound
        now = timezone.now()
        validate_report(name=name, start=start, end=end, now=now)
        _check_known_places(group_by, filter_by, actor)
        if Report.objects.filter(subject_kind=str(actor.kind), subject_id=actor.id).count() >= MOST:
            raise Conflict(f"You have the maximum of {MOST} reports. Delete one first.", code="too_many")
        row = Report(name=name, description=description, start=start, end=end, created_at=now)
        row.group_by, row.filter_by = group_by, list(filter_by)
        row.status_at = row.due_at = now
        row.ask(actor)
        row.save(force_insert=True)
        record(actor, "report.create", row, detail=_audit_detail(row))
        notify_report(row.pk)
    return row


def delete_report(*, key: UUID, actor: Actor) -> None:
    """Delete it, also while it is being made. NotFound for another subject's."""
    with audited_transaction(actor=actor, action="report.delete", entity_type="report", entity_name=str(key)):
        row = own_report(key=key, actor=actor)
        record(actor, "report.delete", row, detail=_audit_detail(row))
        row.delete()


def own_report(*, key: UUID, actor: Actor) -> Report:
    """The subject's own report; NotFound for another subject's."""
    row = reports_of(actor).filter(pk=key).first()
    if row is None:
        raise NotFound
    return row


def file_of_report(*, key: UUID, actor: Actor) -> tuple[Report, str]:
    """A report with its file. Conflict until it is ready; Denied where it shows what the actor may not see any more."""
    row = own_report(key=key, actor=actor)
    if row.status != ReportStatus.READY:
        words = row.message or "The report is being created."
        raise Conflict(f"This report has no file. {words}", code="report_not_ready")
    if not may_read(row, actor):
        message = "This report covers projects or departments that you can no longer see."
        raise Forbidden(message, code="not_yours_any_more")
    return row, row.content


def _check_known_places(group_by: str, filter_by: Sequence[str], actor: Actor) -> None:
    named_places(filter_by)
    found = len(places_of(group_by=group_by, filter_by=filter_by, actor=actor))
    if not found:
        where = "/filterBy" if filter_by else "/groupBy"
        raise ValidationFailed.at(where, "nothing_to_tell", "Not found, or not visible to you.")
    if found > MOST_PLACES:
        message = (
            f"The report would cover {found} projects and departments; the maximum is {MOST_PLACES}. "
            "Narrow it with filterBy."
        )
        raise ValidationFailed.at("/filterBy", "too_many_places", message, found=found, most=MOST_PLACES)


def _audit_detail(row: Report) -> dict[str, object]:
    return {
        "start": row.start,
        "end": row.end,
        "groupBy": row.group_by,
        "filterBy": row.filter_by,
        "status": row.status,
    }


MAKE_REPORT = "workloads.make_report"


MAINTENANCE = "maintenance"


def notify_report(report_id: UUID) -> None:
    notify_worker(MAKE_REPORT, str(report_id), queue=MAINTENANCE)
