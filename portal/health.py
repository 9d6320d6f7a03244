"""Health: `/healthz` says that this process answers, `/readyz` that the portal can serve, `/metrics` both in numbers.

Ready means that requests are answered and what they ask for is carried out: database, workers, beat, observer, and a
first attempt at every cluster. A cluster that was tried and cannot be reached makes the portal degraded, never unready:
its other clusters, its pages and its submissions work, and a balancer that took them away would make one dead cluster
everybody's outage.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from clusters.models import Cluster, ClusterState
from clusters.selectors import STALE_AFTER
from portal.core import heartbeats

KINDS: Final = (heartbeats.WORKER, heartbeats.BEAT, heartbeats.OBSERVER)
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@require_safe
def alive(_request: HttpRequest) -> JsonResponse:
    """200 while this process answers."""
    return JsonResponse({"status": "up"})


@require_safe
def ready(_request: HttpRequest) -> JsonResponse:
    """200 while the portal can serve, with the clusters that it cannot serve; else 503 with what is missing."""
    degraded: Mapping[str, str] = {}
    try:
        missing = [*silent_processes(), *untried_clusters()]
        degraded = degraded_clusters()
    except DatabaseError:
        missing = ["database"]
    status = "waiting" if missing else "degraded" if degraded else "ready"
    body = {"status": status, "missing": missing, "degraded": degraded}
    return JsonResponse(body, status=503 if missing else 200)


@require_safe
def metrics(_request: HttpRequest) -> HttpResponse:
    """The same as numbers, in Prometheus' text format. 503 without a database."""
    try:
        lines = [*_process_metrics(), *_cluster_metrics()]
    except DatabaseError:
        return HttpResponse("", content_type=TEXT, status=503)
    return HttpResponse("\n".join([*lines, ""]), content_type=TEXT)


def silent_processes() -> list[str]:
    """Heartbeats that are absent or old: a process is proved by the work it does, not by its id."""
    return heartbeats.silent(_process_names())


def untried_clusters() -> list[str]:
    """Active clusters of which no reconcile has ended yet, neither well nor badly."""
    waiting = _active().filter(synced_at__isnull=True, failures=0)
    return [f"cluster:{cluster.name}" for cluster in waiting]


def degraded_clusters() -> dict[str, str]:
    """Active clusters that Rung does not reach as it should, each with why."""
    told = ((cluster, "; ".join(_troubles(cluster))) for cluster in _active())
    return {f"cluster:{cluster.name}": why for cluster, why in told if why}


def _troubles(cluster: Cluster) -> Iterator[str]:
    if cluster.failures:
        yield f"{cluster.failures} runs in a row did not succeed"
    age = _age(cluster)
    if cluster.synced_at and (age is None or age > STALE_AFTER.total_seconds()):
        yield "never observed" if age is None else f"not observed for {age:.0f} s"


def _active() -> QuerySet[Cluster]:
    return Cluster.objects.filter(state=ClusterState.ACTIVE).only("name", "failures", "synced_at", "observed_at")


def _age(cluster: Cluster) -> float | None:
    """Seconds since it was observed."""
    return None if cluster.observed_at is None else (timezone.now() - cluster.observed_at).total_seconds()


def _process_names() -> list[str]:
    return [name for kind in KINDS for name in heartbeats.names_of(kind)]


def _process_metrics() -> Iterator[str]:
    ages = heartbeats.ages()
    yield "# HELP rung_process_silence_seconds How long ago the process last proved its work; absent: never."
    yield "# TYPE rung_process_silence_seconds gauge"
    for name in _process_names():
        if name in ages:
            yield f'rung_process_silence_seconds{{process="{name}"}} {ages[name]:.3f}'


def _cluster_metrics() -> Iterator[str]:
    """Names of clusters are DNS labels: nothing in them needs an escape."""
    clusters = list(_active())
    yield "# HELP rung_cluster_ok 1 while Rung reaches the active cluster, syncs and observes it."
    yield "# TYPE rung_cluster_ok gauge"
    for cluster in clusters:
        good = cluster.synced_at is not None and not any(_troubles(cluster))
        yield f'rung_cluster_ok{{cluster="{cluster.name}"}} {int(good)}'
    yield "# HELP rung_cluster_failed_runs Runs in a row that did not succeed."
    yield "# TYPE rung_cluster_failed_runs gauge"
    for cluster in clusters:
        yield f'rung_cluster_failed_runs{{cluster="{cluster.name}"}} {cluster.failures}'
    yield "# HELP rung_cluster_observation_age_seconds How old the last observation is; absent: there is none."
    yield "# TYPE rung_cluster_observation_age_seconds gauge"
    for cluster in clusters:
        if (age := _age(cluster)) is not None:
            yield f'rung_cluster_observation_age_seconds{{cluster="{cluster.name}"}} {age:.3f}'
