"""Proof of work: a process says "I have just worked", readiness asks how long ago that was."""

from collections.abc import Iterable, Mapping

from django.conf import settings
from django.utils import timezone

from portal.kit.models import Heartbeat

BEAT = "beat"
OBSERVER = "observer"
WORKER = "worker"
FRESH_SECONDS = 30.0


def beat(name: str) -> None:
    """Note that `name` worked now. One upsert, safe from any number of processes."""
    Heartbeat.objects.bulk_create(
        [Heartbeat(name=name, at=timezone.now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["at"],
    )


def ages() -> dict[str, float]:
    """Seconds since each name last worked."""
    now = timezone.now()
    rows = Heartbeat.objects.using(settings.RUNG_HEALTH_DATABASE)
    return {row.name: (now - row.at).total_seconds() for row in rows}


def silent(expected: Iterable[str], known: Mapping[str, float] | None = None) -> list[str]:
    """Those of the expected names that have not worked lately. `known`: ages that were read already."""
    known = ages() if known is None else known
    return [name for name in expected if known.get(name, FRESH_SECONDS) >= FRESH_SECONDS]


def worker_of(queue: str) -> str:
    """Heartbeat name of the consumers of a task queue."""
    return f"{WORKER}:{queue}"


def names_of(kind: str) -> list[str]:
    """The heartbeats of one kind of process: a worker has one per task queue."""
    return [worker_of(queue) for queue in settings.QUEUES] if kind == WORKER else [kind]
