"""Health: `/healthz` says that this process answers, `/readyz` that the portal can serve, `/metrics` both in numbers.

Ready means that requests are answered and what they ask for is carried out: database, workers, beat, observer, and a
first attempt at every cluster. A cluster that was tried and cannot be reached makes the portal degraded, never unready:
its other clusters, its pages and its submissions work, and a balancer that took them away would make one dead cluster
everybody's outage. A portal that no account may administer is degraded, too.

Probes carry no credential and get the status and counts. Names of clusters and why they are in trouble are for who
sends `RUNG_METRICS_TOKEN` as bearer token.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from clusters.inventory.models import Cluster, ClusterState
from clusters.sync.selectors import STALE_AFTER
from portal.kit.messaging import heartbeats
from tenants.access.selectors import has_platform_admin
from workloads.detectors.rules import FindingKind
from workloads.detectors.selectors import open_findings
from workloads.forecast.models import ForecastCount, ForecastQuestion
from workloads.state.models import Workload
from workloads.state.selectors.workloads import FAILED_TO_APPLY

KINDS: Final = (heartbeats.WORKER, heartbeats.BEAT, heartbeats.OBSERVER)
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
FORECASTS: Final = ("cluster__name", "flavour", "result")
CLUSTER: Final = "cluster:"
DEADLINE_SECONDS: Final = 0.8
Value = TypeVar("Value")
NO_ADMIN: Final = "no admin exists: run `python manage.py createsuperuser`"


@dataclass(frozen=True, slots=True)
class Findings:
    """What the database says."""

    ages: Mapping[str, float]
    clusters: Sequence[Cluster]
    has_admin: bool
    failed_applies: int
    forecasts: Sequence[tuple[str, str, str, int]]
    """Cluster, scheduler, result, how many so far."""
    starts: Sequence[tuple[str, str, str, int]]
    """The same of start estimates."""
    detected: Mapping[tuple[str, str], int]
    """Open findings of the detectors by cluster and kind."""


def _read() -> Findings:
    using = settings.RUNG_HEALTH_DATABASE
    active = Cluster.objects.using(using).filter(state=ClusterState.ACTIVE)
    clusters = list(active.only("name", "failures", "synced_at", "observed_at", "breaker_reason"))
    failed = Workload.objects.using(using).filter(FAILED_TO_APPLY).count()
    forecasts, starts = (
        list(
            ForecastCount.objects.using(using)
            .filter(question=question)
            .values_list(*FORECASTS)
            .order_by(*FORECASTS)
            .annotate(Sum("count"))
        )
        for question in (ForecastQuestion.VERDICT, ForecastQuestion.START)
    )
    detected = open_findings(using=using)
    admin = has_platform_admin(using=using)
    return Findings(heartbeats.ages(), clusters, admin, failed, forecasts, starts, detected)


class Probe(Generic[Value]):
    """A read that ends within a second, whatever the database does: refuse, hang, or vanish from the network.

    It runs in a thread and over a connection of its own. One runs at a time; requests meanwhile share its result.

    Where no separate connection is configured (SQLite), it reads in the thread of the request.
    """

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read = read
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(1, "health")
        self._running: Future[Value] | None = None

    def read(self) -> Value:
        """The result; OperationalError where there is none in time."""
        if settings.RUNG_HEALTH_DATABASE == DEFAULT_DB_ALIAS:
            return self._read()
        with self._lock:
            if self._running is None or self._running.done():
                self._running = self._threads.submit(self._read_beside)
            running = self._running
        try:
            return running.result(DEADLINE_SECONDS)
        except TimeoutError:
            raise OperationalError(f"The database did not respond within {DEADLINE_SECONDS} s.") from None

    def _read_beside(self) -> Value:
        """Over the connection of the last read; over another one where that has ended meanwhile."""
        try:
            return self._read()
        except Error:
            connections[settings.RUNG_HEALTH_DATABASE].close()
            return self._read()


_probe: Final = Probe(_read)


@require_safe
def alive(_request: HttpRequest) -> JsonResponse:
    """200 while this process answers."""
    return JsonResponse({"status": "up"})


@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """200 while the portal can serve, with what it cannot serve; else 503 with what is missing. Within a second."""
    degraded: Mapping[str, str] = {}
    try:
        found = _probe.read()
    except Error:
        missing = ["database"]
    else:
        missing = [*heartbeats.silent(_process_names(), found.ages), *untried_clusters(found.clusters)]
        degraded = {**degraded_clusters(found.clusters), **({} if found.has_admin else {"admin": NO_ADMIN})}
        if not _may_read_names(request):
            missing, degraded = _without_names(missing, degraded)
    status = "waiting" if missing else "degraded" if degraded else "ready"
    body = {"status": status, "missing": missing, "degraded": degraded}
    return JsonResponse(body, status=503 if missing else 200)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The same as numbers, in Prometheus' text format; without a database only what this process knows by itself."""
    try:
        found = _probe.read()
    except Error:
        lines = [*_database_metrics(up=False)]
    else:
        lines = [*_database_metrics(up=True), *_process_metrics(found.ages)]
        if _may_read_names(request):
            lines += [*_cluster_metrics(found.clusters), *_forecast_metrics(found.forecasts)]
            lines += _start_metrics(found.starts)
            lines += _detector_metrics(found.clusters, found.detected)
        else:
            lines.append("# Metrics of clusters need RUNG_METRICS_TOKEN as bearer token.")
        lines += _gauge("rung_workloads_failed_to_apply", "Workloads that wait for a retry.", found.failed_applies)
        lines += _gauge("rung_admin_exists", "1 while there is an active platform admin.", int(found.has_admin))
    return HttpResponse("\n".join([*lines, ""]), content_type=TEXT)


def _may_read_names(request: HttpRequest) -> bool:
    """Whether the request carries the token; always False if none is set."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    expected = settings.RUNG_METRICS_TOKEN
    return bool(expected) and scheme.lower() == "bearer" and constant_time_compare(token.strip(), expected)


def _without_names(missing: Sequence[str], degraded: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The same with one entry for all clusters: how many they are."""
    untried = sum(name.startswith(CLUSTER) for name in missing)
    troubled = sum(name.startswith(CLUSTER) for name in degraded)
    plain = [name for name in missing if not name.startswith(CLUSTER)]
    others = {name: why for name, why in degraded.items() if not name.startswith(CLUSTER)}
    counted = {"clusters": f"{troubled} in trouble"} if troubled else {}
    return [*plain, *(["clusters"] if untried else [])], {**counted, **others}


def untried_clusters(clusters: Iterable[Cluster]) -> list[str]:
    """Clusters of which no reconcile has ended yet, neither well nor badly."""
    return [f"{CLUSTER}{cluster.name}" for cluster in clusters if cluster.synced_at is None and not cluster.failures]


def degraded_clusters(clusters: Iterable[Cluster]) -> dict[str, str]:
    """Clusters that Rung does not reach as it should, each with why."""
    described = ((cluster, "; ".join(_troubles(cluster))) for cluster in clusters)
    return {f"{CLUSTER}{cluster.name}": why for cluster, why in described if why}


def _troubles(cluster: Cluster) -> Iterator[str]:
    if cluster.breaker_reason:
        yield f"does not accept work: {cluster.breaker_reason}"
    if cluster.failures:
        yield f"the last {cluster.failures} sync runs failed"
    age = _age(cluster)
    if cluster.synced_at and (age is None or age > STALE_AFTER.total_seconds()):
        yield "never observed" if age is None else f"not observed for {age:.0f} s"


def _age(cluster: Cluster) -> float | None:
    """Seconds since it was observed."""
    return None if cluster.observed_at is None else (timezone.now() - cluster.observed_at).total_seconds()


def _process_names() -> list[str]:
    return [name for kind in KINDS for name in heartbeats.names_of(kind)]


def _gauge(name: str, description: str, value: int) -> list[str]:
    """A gauge without labels."""
    return [f"# HELP {name} {description}", f"# TYPE {name} gauge", f"{name} {value}"]


def _database_metrics(*, up: bool) -> Iterator[str]:
    """Whether the database answers, and how this process shares its connections."""
    yield from _gauge("rung_database_up", "1 while the database answers health within a second.", int(up))
    pool = getattr(connections["default"], "pool", None)
    if pool is not None:
        shared = pool.get_stats()
        yield from _gauge("rung_database_pool_size", "Pooled connections of this process.", shared["pool_size"])
        waiting = "Requests of this process that wait for a connection."
        yield from _gauge("rung_database_pool_waiting", waiting, shared["requests_waiting"])


def _process_metrics(ages: Mapping[str, float]) -> Iterator[str]:
    yield "# HELP rung_process_silence_seconds Seconds since the last sign of life of the process; absent: never."
    yield "# TYPE rung_process_silence_seconds gauge"
    for name in _process_names():
        if name in ages:
            yield f'rung_process_silence_seconds{{process="{name}"}} {ages[name]:.3f}'


def _forecast_metrics(forecasts: Iterable[tuple[str, str, str, int]]) -> Iterator[str]:
    yield "# HELP rung_forecasts_total Forecasts that were followed by a submission, by what became of them."
    yield "# TYPE rung_forecasts_total counter"
    for cluster, flavour, result, count in forecasts:
        yield f'rung_forecasts_total{{cluster="{cluster}",scheduler="{flavour}",result="{result}"}} {count}'


def _start_metrics(starts: Iterable[tuple[str, str, str, int]]) -> Iterator[str]:
    yield "# HELP rung_start_estimates_total Start estimates that were shown, by when the workload started."
    yield "# TYPE rung_start_estimates_total counter"
    for cluster, flavour, result, count in starts:
        yield f'rung_start_estimates_total{{cluster="{cluster}",scheduler="{flavour}",result="{result}"}} {count}'


def _detector_metrics(clusters: Iterable[Cluster], detected: Mapping[tuple[str, str], int]) -> Iterator[str]:
    yield "# HELP rung_findings_open Open findings of the detectors."
    yield "# TYPE rung_findings_open gauge"
    for cluster in clusters:
        for kind in FindingKind:
            count = detected.get((cluster.name, kind.value), 0)
            yield f'rung_findings_open{{cluster="{cluster.name}",kind="{kind.value}"}} {count}'


def _cluster_metrics(clusters: Sequence[Cluster]) -> Iterator[str]:
    """Names of clusters are DNS labels: nothing in them needs an escape."""
    yield "# HELP rung_cluster_ok 1 while Rung can reach, sync and observe the active cluster."
    yield "# TYPE rung_cluster_ok gauge"
    for cluster in clusters:
        good = cluster.synced_at is not None and not any(_troubles(cluster))
        yield f'rung_cluster_ok{{cluster="{cluster.name}"}} {int(good)}'
    yield "# HELP rung_cluster_takes_work 0 while its circuit breaker is open and no workloads are sent to it."
    yield "# TYPE rung_cluster_takes_work gauge"
    for cluster in clusters:
        yield f'rung_cluster_takes_work{{cluster="{cluster.name}"}} {int(not cluster.breaker_reason)}'
    yield "# HELP rung_cluster_failed_runs Consecutive failed sync runs."
    yield "# TYPE rung_cluster_failed_runs gauge"
    for cluster in clusters:
        yield f'rung_cluster_failed_runs{{cluster="{cluster.name}"}} {cluster.failures}'
    yield "# HELP rung_cluster_observation_age_seconds Age of the last observation in seconds; absent: none."
    yield "# TYPE rung_cluster_observation_age_seconds gauge"
    for cluster in clusters:
        if (age := _age(cluster)) is not None:
            yield f'rung_cluster_observation_age_seconds{{cluster="{cluster.name}"}} {age:.3f}'
