"""Stop sending work to a cluster that does not take it, try it again with backoff, resume without an admin.

A cluster that cannot be reached, or that does not accept Rung's credential or rights, says nothing about one workload:
a starting API server answers 403 until it has read its roles, and an admin may be replacing a role. So its work waits,
with the reason on the cluster's page, while one workload at a time tries whether the cluster takes work again.
"""

from datetime import timedelta
from enum import Enum
from random import uniform
from typing import Final

import structlog
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from clusters.errors import (
    AddressRefused,
    ClusterError,
    ClusterUnreachable,
    CredentialUnreadable,
    NotAuthorized,
)
from clusters.models import Cluster

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


def trips(error: ClusterError) -> bool:
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


def record(cluster: Cluster, error: ClusterError) -> None:
    """Stop work after an error that is the cluster's trouble; any other one shows that it answers Rung."""
    if trips(error):
        _trip(cluster, error)
    else:
        reset(cluster)


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


def reset(cluster: Cluster) -> None:
    """Send work again: the cluster has taken some."""
    if not cluster.breaker_reason:
        return
    rows = Cluster.objects.filter(pk=cluster.pk).exclude(breaker_reason="")
    if rows.update(breaker_reason="", breaker_since=None, breaker_retry_at=None, breaker_failures=0):
        log.info("cluster.work_resumed", cluster=cluster.name)
