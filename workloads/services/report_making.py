"""Making reports. Runs in workers; every step may be repeated, and a worker may die at any of them.

1. a report that is due is claimed by compare-and-set: the lease moves `due_at` ahead and counts the try
2. what its asker may see now is read, and what the samples say of it; nothing is locked meanwhile
3. the first file that is made is kept; whoever comes second finds it there and leaves it
A report whose worker died is found by the sweep when the lease has run out; one that ends every worker is given up.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.db.models import F, QuerySet
from django.utils import timezone

from workloads.models import Report, ReportStatus
from workloads.report_file import file_of, words_of_cover
from workloads.selectors.reports import lines_of, places_of, stretch_of, told_by

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
    """Make one report if it is due and nobody else is at it. False: nothing to do."""
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
        _fail(row, "Given up: every try ended before there was a file. A shorter time or fewer places may help.")
        return
    try:
        _make(row, now)
    except Exception:  # whatever it was: the report is tried again, and ends with a message that names no inside
        log.exception("report.failed", report=str(row.pk), attempts=row.attempts)
        if row.attempts == TRIES:
            _fail(row, "It could not be made, and trying again did not help. The operator's log says why.")
        else:
            _standing(row).update(due_at=timezone.now() + PAUSE * row.attempts, status=ReportStatus.PENDING)


def _make(row: Report, now: datetime) -> None:
    places = places_of(group_by=row.group_by, filter_by=row.filter_by, actor=row.asker)
    if not places:
        _fail(row, "What it should tell of is gone, or whoever asked may not see it any more.")
        return
    lines = list(lines_of(places, stretch_of(row, places, now=now)))
    text = file_of(lines)
    if len(text) > LARGEST:
        _fail(row, "The file would be too large: ask for fewer places.")
        return
    _end(row, status=ReportStatus.READY, message=words_of_cover(lines), content=text, told=told_by(places))


def _fail(row: Report, message: str) -> None:
    _end(row, status=ReportStatus.FAILED, message=message)


def _end(row: Report, **fields: object) -> None:
    _standing(row).update(due_at=None, status_at=timezone.now(), **fields)


def _standing(row: Report) -> QuerySet[Report]:
    """The row while nobody has ended it."""
    return Report.objects.filter(pk=row.pk, status__in=UNFINISHED)
