"""Proof of work: a process says "I have just worked", readiness asks how long ago that was."""

from django.utils import timezone

from portal.core.models import Heartbeat

BEAT = "beat"
OBSERVER = "observer"
WORKER = "worker"


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
    return {row.name: (now - row.at).total_seconds() for row in Heartbeat.objects.all()}


def worker_of(queue: str) -> str:
    """Heartbeat name of whoever consumes a task queue."""
    return f"{WORKER}:{queue}"
