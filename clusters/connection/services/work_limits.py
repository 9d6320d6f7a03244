"""How much work one cluster is given: its circuit breaker and its worker slots (the bulkhead).

A cluster that cannot be reached, or that does not accept Rung's credential or rights, says nothing about one
workload: a starting API server answers 403 until it has read its roles, and an admin may be replacing a role. So its
work waits, with the reason on the cluster's page, while one workload at a time tries whether the cluster takes work
again.

A task that talks to a cluster takes one of its slots first, and leaves the work to a later one where none is free.
Leases expire by the database's clock; a living task renews its own, so that a killed one blocks a slot for seconds.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from random import uniform
from threading import Timer
from typing import Final

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from clusters.connection.models import WorkerSlot
from clusters.inventory.models import Cluster
from clusters.ports.gateway import (
    AddressRefused,
    ClusterError,
    ClusterUnreachable,
    CredentialUnreadable,
    NotAuthorized,
)

log = structlog.get_logger(__name__)

FIRST_RETRY: Final = timedelta(seconds=1)
LONGEST_RETRY: Final = timedelta(seconds=30)
PROBE: Final = timedelta(seconds=60)
"""How long one try has the cluster to itself, should its worker die."""
TRIPPING: Final = (ClusterUnreachable, NotAuthorized, CredentialUnreadable, AddressRefused)


class Admission(Enum):
    """How much work may be sent to a cluster now."""

    ALL = "all"
    ONE = "one"
    NONE = "none"


def is_cluster_failure(error: ClusterError) -> bool:
    """Return whether the error is the trouble of the whole cluster, not of one object."""
    return isinstance(error, TRIPPING)


def admission(cluster: Cluster) -> Admission:
    """Return how much work the cluster may be sent. One caller gets `ONE` when a retry is due."""
    if not cluster.breaker_reason:
        return Admission.ALL
    now, due = timezone.now(), cluster.breaker_retry_at
    if due is not None and due > now:
        return Admission.NONE
    rows = Cluster.objects.filter(pk=cluster.pk, breaker_retry_at=due)
    return Admission.ONE if rows.update(breaker_retry_at=now + PROBE) == 1 else Admission.NONE


def record_result(cluster: Cluster, error: ClusterError) -> None:
    """Stop work after an error that is the cluster's trouble; any other one shows that it answers Rung."""
    if is_cluster_failure(error):
        _trip(cluster, error)
    else:
        close_breaker(cluster)


def _trip(cluster: Cluster, error: ClusterError) -> None:
    """Send no work until the next retry, further away with each failure in a row.

    `cluster` as it was read before the work began: of several workers that fail together the first one counts.
    """
    failures = cluster.breaker_failures + 1
    wait = min(FIRST_RETRY * 2 ** min(failures - 1, 10), LONGEST_RETRY) * uniform(0.8, 1.2)  # noqa: S311 - jitter
    wait = max(wait, min(timedelta(seconds=error.retry_after or 0), LONGEST_RETRY))
    now = timezone.now()
    changed = Cluster.objects.filter(pk=cluster.pk, breaker_failures=cluster.breaker_failures).update(
        breaker_reason=error.message[:500] or error.code,
        breaker_since=Coalesce(F("breaker_since"), now),
        breaker_retry_at=now + wait,
        breaker_failures=failures,
    )
    if changed:
        log.warning(
            "cluster.work_stopped", cluster=cluster.name, code=error.code, message=error.message, failures=failures
        )


def close_breaker(cluster: Cluster) -> None:
    """Send work again: the cluster has taken some."""
    if not cluster.breaker_reason:
        return
    rows = Cluster.objects.filter(pk=cluster.pk).exclude(breaker_reason="")
    if rows.update(breaker_reason="", breaker_since=None, breaker_retry_at=None, breaker_failures=0):
        log.info("cluster.work_resumed", cluster=cluster.name)


LEASE: Final = timedelta(seconds=30)
RENEW_SECONDS: Final = 10.0


@contextmanager
def acquire_slot(cluster: Cluster, *, spare: int = 0) -> Iterator[WorkerSlot | None]:
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


def record_holder(slot: WorkerSlot, owner: int) -> None:
    """Record the owner that the slot works for now."""
    if slot.serving != owner:
        slot.serving = slot.cursor = owner
        WorkerSlot.objects.filter(pk=slot.pk, holder=slot.holder).update(serving=owner, cursor=owner)


def holders_elsewhere(cluster: Cluster, slot: WorkerSlot | None = None) -> Sequence[int]:
    """Return the owners that the cluster's other held slots work for, once per slot."""
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


@contextmanager
def try_slot(cluster: Cluster, work: str) -> Iterator[bool]:
    """False while the cluster holds its share of the workers: a sweep asks for the work again."""
    with acquire_slot(cluster) as slot:
        if slot is None:
            log.info("cluster.busy", cluster=cluster.name, work=work)
        yield slot is not None
