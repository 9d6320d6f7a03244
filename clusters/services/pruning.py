"""What was observed long ago goes, in chunks: pods that have left, and events. Records and timelines stay."""

import time
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import ClusterEvent, ObservedPod
from clusters.retention import needed
from clusters.services.looks import CHUNK

UNOWNED: Final = timedelta(hours=1)
"""How long an event waits for the object it is about; API servers keep events as long."""
PATIENCE: Final = 60.0
"""Seconds after which the rest is left to the next time."""


def prune() -> tuple[int, int]:
    """Drop what is past its time by the database's clock; how many pods and events."""
    deadline = time.monotonic() + PATIENCE
    return _prune_pods(deadline), _prune_events(deadline)


def _prune_pods(deadline: float) -> int:
    """Gone for long and needed by nobody. Walks by key, so that rows which stay are not asked about twice."""
    old = ObservedPod.objects.filter(gone_at__lt=Now() - timedelta(days=settings.RUNG_KEEP_PODS_DAYS)).order_by("pk")
    last, dropped = 0, 0
    while time.monotonic() < deadline and (rows := list(old.filter(pk__gt=last)[:CHUNK])):
        last = rows[-1].pk
        dropped += _delete_pods({row.pk for row in rows} - needed(rows))
    return dropped


def _delete_pods(keys: set[int]) -> int:
    return ObservedPod.objects.filter(pk__in=keys, gone_at__isnull=False).delete()[0]


def _prune_events(deadline: float) -> int:
    past = Q(at__lt=Now() - timedelta(days=settings.RUNG_KEEP_EVENTS_DAYS)) | Q(owner_id="", at__lt=Now() - UNOWNED)
    keys_past = ClusterEvent.objects.filter(past).values_list("pk", flat=True)
    dropped = 0
    while time.monotonic() < deadline and (keys := list(keys_past[:CHUNK])):
        dropped += ClusterEvent.objects.filter(pk__in=keys).delete()[0]
    return dropped
