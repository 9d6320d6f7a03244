"""One step of the sandbox's time: kubelets, queues of jobs, controllers, scheduler, in one transaction.

Killed in the middle, nothing of the step is left. Two tickers never do the same step twice: the first one moves the
clock's `ticked_at` forward under its lock, the other one finds nothing to do.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from clusters.models import Cluster, SandboxClock
from clusters.sandbox import controllers, kubelet, kueue, scheduler
from clusters.sandbox.scene import ScenePool
from clusters.sandbox.store import Store
from scheduling.model import Strategy

CLOCK_JUMPED_BACK: Final = timedelta(seconds=60)  # a `ticked_at` this far ahead was written by a wrong clock


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick did. `claimed` is False when another ticker had already done it."""

    claimed: bool = False
    started: int = 0
    evicted: int = 0
    waiting: int = 0
    written: int = 0


def tick(cluster: Cluster, *, now: datetime) -> TickResult:
    """Move the sandbox to `now`."""
    with transaction.atomic():
        SandboxClock.objects.get_or_create(cluster=cluster)
        if not _claim(cluster, now):
            return TickResult()
        store = Store.open(cluster, now=now)
        store.load()
        kubelet.run(store)
        queued = kueue.run(store, flavour=cluster.flavour)
        controllers.run(store)
        counts = queued + scheduler.run(store, flavour=cluster.flavour, pools=_pools(cluster))
        written = store.flush()
        if written:
            store.prune()
    return TickResult(
        claimed=True, started=counts.started, evicted=counts.evicted, waiting=counts.waiting, written=written
    )


def _pools(cluster: Cluster) -> list[ScenePool]:
    return [
        ScenePool(pool.name, pool.label_key, pool.label_value, Strategy(pool.gpu_placement))
        for pool in cluster.node_pools.all()
    ]


def _claim(cluster: Cluster, now: datetime) -> bool:
    due = Q(ticked_at__isnull=True) | Q(ticked_at__lt=now) | Q(ticked_at__gt=now + CLOCK_JUMPED_BACK)
    return SandboxClock.objects.filter(due, cluster=cluster).update(ticked_at=now) == 1
