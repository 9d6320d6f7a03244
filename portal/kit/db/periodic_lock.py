"""Each period of a periodic job happens once, however many beats send it and however often a message is delivered."""

from datetime import UTC, datetime, timedelta

from django.utils import timezone

from portal.kit.models import Period

RETENTION = timedelta(days=1)


def claim_period(job: str, *, every: int) -> bool:
    """True for exactly one caller in each period of `every` seconds."""
    _, claimed = Period.objects.get_or_create(job=job, start=period_start(timezone.now(), every))
    return claimed


def period_start(now: datetime, every: int) -> datetime:
    """The start of the period of `every` seconds that `now` lies in; the same for every process."""
    return datetime.fromtimestamp(now.timestamp() // every * every, tz=UTC)


def forget_old() -> int:
    """Drop claims that no late message can repeat any more; answers how many."""
    return Period.objects.filter(start__lt=timezone.now() - RETENTION).delete()[0]
