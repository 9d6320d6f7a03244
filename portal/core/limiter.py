"""An exact limiter for guesses of secrets: sign-in and tokens. One row per key, moved only by compare-and-set.

The database holds the count, so it survives restarts and is shared by all processes; the window starts with the first
try, so that no boundary doubles it. Call it outside of a transaction that may be rolled back.
"""

import hashlib
import math
from datetime import timedelta

from django.db.models import F
from django.utils import timezone

from portal.core.errors import TooMany
from portal.core.models import LimiterBucket


def hit(scope: str, key: str, *, limit: int, per: int) -> None:
    """Count one try; the first `limit` in `per` seconds pass, every further one raises `TooMany` with `retry_after`.

    1. make the row if it is missing
    2. restart a window that is over (one caller wins)
    3. add one, only while the count is below the limit (the database decides who gets the last one)
    """
    now, name = timezone.now(), _name(scope, key)
    LimiterBucket.objects.bulk_create([LimiterBucket(key=name, started_at=now, ends_at=now)], ignore_conflicts=True)
    bucket = LimiterBucket.objects.filter(key=name)
    bucket.filter(ends_at__lte=now).update(started_at=now, ends_at=now + timedelta(seconds=per), count=0)
    if not bucket.filter(count__lt=limit).update(count=F("count") + 1):
        raise TooMany("Too many tries. Wait a while.", retry_after=_seconds_left(name))


def give_back(scope: str, key: str) -> None:
    """Take one counted try back: it turned out to be right."""
    LimiterBucket.objects.filter(key=_name(scope, key), count__gt=0).update(count=F("count") - 1)


def forget_old() -> int:
    """Drop windows that are over; answers how many."""
    return LimiterBucket.objects.filter(ends_at__lt=timezone.now() - timedelta(hours=1)).delete()[0]


def _seconds_left(name: str) -> int:
    ends_at = LimiterBucket.objects.filter(key=name).values_list("ends_at", flat=True).first() or timezone.now()
    return max(1, math.ceil((ends_at - timezone.now()).total_seconds()))


def _name(scope: str, key: str) -> str:
    return hashlib.sha256(f"{scope}\n{key}".encode()).hexdigest()
