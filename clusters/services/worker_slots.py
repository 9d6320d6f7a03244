"""The bulkhead between clusters: one that hangs or has much to do holds only its share of the workers.

A task that talks to a cluster takes one of its slots first, and leaves the work to a later one where none is free.
Leases expire by the database's clock; a living task renews its own, so that a killed one blocks a slot for seconds.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster, WorkerSlot

LEASE: Final = timedelta(seconds=30)
RENEW_SECONDS: Final = 10.0


@contextmanager
def taken(cluster: Cluster, *, spare: int = 0) -> Iterator[WorkerSlot | None]:
    """Hold one of the cluster's slots for the length of the block; None while all are taken.

    `spare`: how many slots to leave to other kinds of work, of more than one.
    """
    slot = _take(cluster, max(1, settings.RUNG_CLUSTER_WORKERS - spare))
    if slot is None:
        yield None
        return
    renewal = _Renewal(slot)
    try:
        yield slot
    finally:
        renewal.end()
        held = WorkerSlot.objects.filter(pk=slot.pk, holder=slot.holder)
        held.update(holder="", serving=0, expires_at=Now())


def serve(slot: WorkerSlot, owner: int) -> None:
    """Note whom the slot works for now."""
    if slot.serving != owner:
        slot.serving = slot.cursor = owner
        WorkerSlot.objects.filter(pk=slot.pk, holder=slot.holder).update(serving=owner, cursor=owner)


def served_elsewhere(cluster: Cluster, slot: WorkerSlot | None = None) -> Sequence[int]:
    """Return whom the cluster's other held slots work for, once per slot."""
    serving = WorkerSlot.objects.filter(cluster=cluster, expires_at__gte=Now(), serving__gt=0)
    others = serving.exclude(pk=slot.pk) if slot else serving
    return list(others.values_list("serving", flat=True))


def _take(cluster: Cluster, most: int) -> WorkerSlot | None:
    holder = str(uuid.uuid4())
    rows = WorkerSlot.objects.filter(cluster=cluster, number__lt=most)
    free = Q(holder="") | Q(expires_at__lt=Now())
    for slot in rows.filter(free).order_by("number"):
        if rows.filter(free, pk=slot.pk).update(holder=holder, serving=0, expires_at=Now() + LEASE) == 1:
            slot.holder, slot.serving = holder, 0
            return slot
    if rows.count() < most:
        missing = [WorkerSlot(cluster=cluster, number=number, expires_at=Now()) for number in range(most)]
        WorkerSlot.objects.bulk_create(missing, ignore_conflicts=True)
        return _take(cluster, most)
    return None


class _Renewal:
    """Renews a slot's lease every few seconds from a thread, for as long as the process runs."""

    def __init__(self, slot: WorkerSlot) -> None:
        self._slot = slot
        self._timer = self._started()

    def end(self) -> None:
        self._timer.cancel()

    def _started(self) -> Timer:
        timer = Timer(RENEW_SECONDS, self._renew)
        timer.daemon = True
        timer.start()
        return timer

    def _renew(self) -> None:
        try:
            held = WorkerSlot.objects.filter(pk=self._slot.pk, holder=self._slot.holder)
            if held.update(expires_at=Now() + LEASE):
                self._timer = self._started()
        except DatabaseError:
            self._timer = self._started()
        finally:
            connection.close()
