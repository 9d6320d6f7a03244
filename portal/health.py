"""Health: `/healthz` says that this process answers, `/readyz` that the whole portal works and what is missing."""

from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from clusters.models import Cluster, ClusterState
from portal.core import heartbeats

KINDS = (heartbeats.WORKER, heartbeats.BEAT, heartbeats.OBSERVER)


@require_safe
def alive(_request: HttpRequest) -> JsonResponse:
    """200 while this process answers."""
    return JsonResponse({"status": "up"})


@require_safe
def ready(_request: HttpRequest) -> JsonResponse:
    """200 once web, workers, beat and observer work and every active cluster is synced; else 503 and what is not."""
    try:
        missing = [*silent_processes(), *unsynced_clusters()]
    except DatabaseError:
        missing = ["database"]
    body = {"status": "waiting" if missing else "ready", "missing": missing}
    return JsonResponse(body, status=503 if missing else 200)


def silent_processes() -> list[str]:
    """Heartbeats that are absent or old: a process is proved by the work it does, not by its id."""
    return heartbeats.silent(name for kind in KINDS for name in heartbeats.names_of(kind))


def unsynced_clusters() -> list[str]:
    """Active clusters that no reconcile has completed yet."""
    waiting = Cluster.objects.filter(state=ClusterState.ACTIVE, synced_at__isnull=True)
    return [f"cluster:{name}" for name in waiting.values_list("name", flat=True)]
