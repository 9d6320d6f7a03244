"""B10: every page, REST route and periodic task on a small and on a large estate, in turns on one PostgreSQL.

    python -m benchmarks.bench_pages [--workloads 100000] [--projects 1000] [--clusters 50] [--rounds 12] [--only TEXT]

Small: 200 workloads, 100 projects, 2 clusters. Whole requests through Django's test client, without a socket, in
processor time of this process and of its connection's PostgreSQL process: other work on the machine makes requests
wait, which says nothing about them. A machine that others share also changes its speed from second to second, so that
each is measured once a round. What grows beyond the limit (the fastest of each), has a p95 over 150 ms or takes more
queries is marked OVER and ends the run with 1. Pages that are longer on the large estate, or of more clusters, are
asked for as many rows of as many clusters as the small one has, and whole. Samples go to benchmarks/results/pages.json.

Pages and routes are those of the URL configuration, tasks those of the beat: what is new is measured, or the run ends
with an error that names it.
"""

import argparse
import itertools
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from benchmarks import stage
from benchmarks.page_estates import SMALL, Size, fill

# isort: split
from django.db import connection, connections, transaction
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.watch.services.usage import EVERY, average, batch_of, sample_clusters, thin
from portal.audit.chain import seal
from portal.celery import app
from portal.demo.organisation import ACTOR
from portal.kit.db.keyset_pagination import cursor_of
from portal.kit.messaging.gc_tuning import tune_gc
from portal.kit.messaging.tasks import period_start
from tenants.access.models import Role, User
from tenants.access.services.credentials import exchange
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Department, Project
from tests.support import database, postgres
from tests.support.route_matrix import World, cells, world_of
from workloads.detectors.services import detect_on, request_checks
from workloads.dictionary.services.plans import plan_priority_change
from workloads.forecast.services.scoring import score
from workloads.forecast.services.start_estimates import compute_requested
from workloads.lifecycle.services import apply_queue, relocation, run_limits
from workloads.notifications.services.delivery import collect
from workloads.quota_requests.services import refresh_open
from workloads.reports.services import sweep as sweep_reports

GROWTH: Final = 1.3
P95: Final = 0.150  # seconds of processor time
STARTABLE: Final = "startable=true"
VARIANTS: Final[Mapping[str, Sequence[str]]] = {
    "/workloads/": ("?phase=Pending", "?q=rare", "?suggest=project&project=p1"),
    "/projects/": ("?cluster=c0",),
    "/clusters/<slug:name>/": ("?tab=activity&span=7d",),
    "/api/v1/org-unit/projects": (f"?{STARTABLE}&filterBy=parentName==d0", f"?{STARTABLE}"),
    "/audit/": ("?action=workload.created",),
    "/api/v1/workloads": ("?search=rare",),
    "/api/v1/nodes/telemetry": ("?telemetryType=ALLOCATED_GPUS",),
    "/api/v1/org-unit/projects/telemetry": ("?telemetryType=GPU_ALLOCATION",),
    "/api/v1/org-unit/departments/telemetry": ("?telemetryType=GPU_ALLOCATION",),
}
"""More than the plain address: searches, and figures that are read in another way."""
REQUIRED: Final[Mapping[str, str]] = {
    "/api/v1/audit/log": "?start=2026-01-01T00:00:00Z&end=2036-01-01T00:00:00Z&numberOfSamples=50",
    "/api/v1/audit/log/file": "?start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z",
    "/api/v1/workloads/telemetry": "?telemetryType=WORKLOADS_COUNT",
    "/api/v1/nodes/telemetry": "?telemetryType=TOTAL_GPUS",
    "/api/v1/org-unit/projects/telemetry": "?telemetryType=GPU_QUOTA",
    "/api/v1/org-unit/departments/telemetry": "?telemetryType=GPU_QUOTA",
    "/api/v1/eviction-matrix": "?project=p3",
    "/api/v2/policy/<policy:kind>": "?scope=tenant",
    "/api/v1/workload-templates/name-availability": "?templateName=new&scopeType=tenant",
}
"""Parameters without which a route refuses."""
FULL: Final[Mapping[str, str]] = {
    "/api/v1/clusters": "?limit=2",
    "/api/v1/node-pools": "?limit=2",
    "/api/v1/org-unit/departments": "?limit=20",
    "/api/v1/org-unit/departments/node-pool-resources": "?limit=20",
    "/api/v1/org-unit/idle-limits": "?limit=10",
    "/api/v1/org-unit/time-limits": "?limit=10",
    "/api/v1/quotas": "?cluster=c0&limit=20",
}
"""Pages as large as the small estate can fill."""
LAST: Final[Mapping[str, tuple[type[Model], str, int]]] = {
    "/clusters/": (Cluster, "name", 2),
    "/plans/approval/": (Department, "name", 20),
}
"""The same of pages without a length: rows of their last page, and how many the small estate has."""
LARGER: Final = frozenset({f"/api/v1/org-unit/projects?{STARTABLE}"})
"""What could start in the clusters of these projects follows from all pods of these clusters."""
TOTALS: Final = ("/count", "/telemetry")
"""Routes that are no list: they count or add up everything."""
WHOLE: Final = " (whole)"
"""Ends the name of each of these as it is asked for otherwise: its answer grows, and its growth is not limited."""
NAMES: Final = {"projects": "p3", "clusters": "c0", "priorities": "high", "channels": "mail", "webhooks": "hook"}
"""What `<name>` is by the word before it."""
NO_PAGES: Final = ("admin/", "api/", "static/", "login/single-sign-on/", "metrics", "security/<")
"""Not measured here: the console, the routes (measured by their own list), the metrics and what is no page."""
LACKING: Final = frozenset(
    {
        "/priorities/preset/<slug:name>/",
        "/types/<uuid:type_id>/offer/",
        "/policies/<uuid:policy_id>/",
        "/policies/<uuid:policy_id>/lift/",
        "/reports/<uuid:report_id>/file/",
        "/replay/<uuid:replay_id>/file/",
        "/clusters/<slug:name>/difference/",
        "/clusters/<slug:name>/runs/<int:number>/",
        "/readyz",
        "/api/v1/replays/<uuid:replay_id>/file",
        "/api/v1/org-unit/reports/<uuid:report_id>",
        "/api/v1/org-unit/reports/<uuid:report_id>/file",
        "/api/v1/access-keys/<uuid:key_id>",
        "/api/v1/user-applications/<uuid:key_id>",
        "/api/v1/clusters/<uuid:cluster_id>/connection",
        "/api/v1/nodes/<int:node_id>/metrics",
        "/api/v2/policy/<policy:kind>",
    }
)
"""What the estates have no row for."""
NO_LISTS: Final = ("/stream", "/logs", "/openapi.json")


def plan() -> None:
    """A plan as the page makes it, without a trace."""
    with transaction.atomic():
        plan_priority_change(change={"op": "change", "name": "very-high", "value": 151}, actor=ACTOR)
        transaction.set_rollback(True)


def detect_one() -> None:
    """The check of the cluster of project p3, as if it had just been observed."""
    cluster = Project.objects.select_related("cluster").get(name="p3").cluster
    detect_on(str(cluster.pk), now=cluster.observed_at)


def tidy() -> None:
    """A turn of one cluster."""
    clusters = [Cluster.objects.get(name="c0").pk]
    thin(clusters)
    average(clusters)


LATER: Final = count()


def sample() -> None:
    """A run of the task, in a minute that has no sample yet."""
    clusters = list(Cluster.objects.order_by("name").values_list("pk", flat=True))
    at = period_start(timezone.now(), EVERY) + next(LATER) * timedelta(seconds=EVERY)
    sample_clusters(clusters[: batch_of(len(clusters))], at=at)


TASKS: Final[Mapping[str, Callable[[], object]]] = {
    "workloads.limits": run_limits.enforce,
    "workloads.pools": relocation.try_next_pools,
    "workloads.sweep": apply_queue.sweep,
    "workloads.score_forecasts": score,
    "workloads.compute_starts": compute_requested,
    "workloads.detect": request_checks,
    "workloads.detect_cluster": detect_one,
    "workloads.notify": collect,
    "workloads.quota_requests": refresh_open,
    "workloads.make_reports": sweep_reports,
    "clusters.sample": sample,
    "clusters.sample: tidy": tidy,
    "audit.seal": seal,
    f"change plan{WHOLE}": plan,
}
"""The services of periodic tasks. A plan is none, and costs as much; it is about all clusters and workloads."""
NOT_MEASURED: Final = {
    "clusters.sweep": "wakes reconciles: bench_sync",
    "clusters.observe_all": "bench_observe",
    "clusters.tick_sandboxes": "simulated clusters only",
    "clusters.measure_gpus": "asks a metrics server",
    "clusters.prune": "deletes what is old",
    "workloads.forget_keys": "deletes what is old",
    "workloads.run_replays": "bench_replay",
    "core.maintenance": "deletes what is old",
    "core.canary": "one row a queue",
}
Act = Callable[[], object]


def acts() -> dict[str, Act]:
    """Everything measured, as calls on the database that is the default now. AssertionError names what cannot be."""
    beat = {each["task"] for each in app.conf.beat_schedule.values()}
    assert beat <= TASKS.keys() | NOT_MEASURED.keys(), beat - TASKS.keys() - NOT_MEASURED.keys()
    admin, member = Client(), Client()
    admin.force_login(User.objects.get(username="admin"))
    member.force_login(User.objects.get(username="member"))
    account, secret = create_service_account(name=f"robot-{os.urandom(4).hex()}", actor=ACTOR, role=Role.PLATFORM_ADMIN)
    robot = Client(headers={"Authorization": f"Bearer {exchange(account.client_id, secret).text}"})
    world = world_of(Project.objects.get(name="p3"))
    tasks = {f"task: {name}": task for name, task in TASKS.items()}
    return _page_acts(admin, member, world) | _route_acts(robot, world) | tasks


def _page_acts(admin: Client, member: Client, world: World) -> dict[str, Act]:
    found: dict[str, Act] = {}
    for route, address in pages(world):
        if route in LAST:
            found |= measured("page", admin, route, address + last(*LAST[route]))
        for more in ("", *VARIANTS.get(route, ())):
            name = route + more + WHOLE * (route + more in LARGER | LAST.keys())
            found |= measured("page", admin, name, address + more)
    for path in ("/", "/workloads/", "/projects/", "/workloads/submit/"):
        found |= measured("member's page", member, path, path)
    return found


def _route_acts(robot: Client, world: World) -> dict[str, Act]:
    found: dict[str, Act] = {}
    for cell in cells():
        route = f"/api/{cell.path}"
        if cell.method == "GET" and not route.endswith(NO_LISTS):
            address = f"/api/{cell.address(world.of(cell.path))}"
            for more in (needed(route), *VARIANTS.get(route, ())):
                name = route + more + WHOLE * (route.endswith(TOTALS) or route + more in LARGER)
                found |= measured("REST", robot, name, address + more)
            if route in FULL:
                found |= measured("REST", robot, route + WHOLE, address)
    return found


def last(model: type[Model], column: str, count: int) -> str:
    """The query of the page that has the last `count` rows."""
    rows = model._default_manager.order_by(f"-{column}", "-pk")[count : count + 1]
    return "".join(f"?after={cursor_of(row, column)}" for row in rows)


def pages(world: World) -> Iterator[tuple[str, str]]:
    """Every page of the URL configuration, and its address in the estate. What answers only POST is none."""
    for route in _routes("", get_resolver().url_patterns):
        if not route.startswith(NO_PAGES):
            yield f"/{route}", f"/{_address(route, world)}"


def _address(route: str, world: World) -> str:
    before = route.partition("<slug:name>")[0].rstrip("/").rpartition("/")[2]
    department = str(world.project.department_id)
    values = {
        **world.of(route),
        "department_id": department,
        "name": NAMES.get(before, ""),
        "pool": "h100",
        "flavour": "kai",
        "number": "1",
    }
    return re.sub(r"<\w+:(\w+)>", lambda found: values.get(found[1], "0"), route)


def _routes(prefix: str, patterns: Sequence[URLPattern | URLResolver]) -> Iterator[str]:
    for each in patterns:
        path = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _routes(path, each.url_patterns)
        else:
            yield path


def needed(route: str) -> str:
    """The parameters without which a route refuses, or without which its page is not full on both estates."""
    if route in REQUIRED or route in FULL:
        return {**REQUIRED, **FULL}[route]
    span = "start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"
    if route.endswith("/metrics"):
        return f"?{span}&metricType=" + ("TOTAL_GPU" if "node" in route or "clusters" in route else "GPU_ALLOCATION")
    return ""


def measured(kind: str, client: Client, route: str, address: str) -> dict[str, Act]:
    """The request as a call; none where nothing answers a GET. AssertionError where it is refused."""
    status = client.get(address).status_code
    if status in {302, 405} or route.partition("?")[0] in LACKING:
        return {}
    assert status in {200, 204}, (address, status)

    def act() -> object:
        return client.get(address)

    return {f"{kind} {route}": act}


def queries(act: Act) -> int:
    """How many statements it takes when warm."""
    act()
    with CaptureQueriesContext(connection) as captured:
        act()
        return len(captured)


def main() -> int:
    """Fill both, measure in turns, report; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=100_000)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", action="append", help="measure only what has this text in its name; repeatable")
    options = parser.parse_args()
    large = Size(options.workloads, options.projects, options.clusters)
    tune_gc()  # as every process of the portal does
    print(f"PostgreSQL, {os.cpu_count()} cores, {options.rounds} rounds")
    with stage.server() as folder:
        for size in (SMALL, large):
            with stage.stage(folder, size.database):
                fill(size)
        return report(large, *measure(folder, large, options))


def measure(
    folder: Path, large: Size, options: Any
) -> tuple[dict[Size, dict[str, list[float]]], dict[Size, dict[str, int]]]:
    """Seconds and queries of each by size."""
    samples: dict[Size, dict[str, list[float]]] = {size: defaultdict(list) for size in (SMALL, large)}
    counts: dict[Size, dict[str, int]] = {SMALL: {}, large: {}}
    known: dict[Size, dict[str, Act]] = {}
    places: dict[Size, tuple[Any, Any]] = {}
    only = options.only or [""]
    for size in samples:
        with database.default_database(address_of(folder, size)):
            known[size] = {name: act for name, act in acts().items() if any(text in name for text in only)}
            counts[size] = {name: queries(act) for name, act in known[size].items()}
            places[size] = connections.settings["default"], connections["default"]
    with database.default_database(address_of(folder, large)):
        for number, name in itertools.product(range(options.rounds), known[large]):
            for size in (SMALL, large) if number % 2 else (large, SMALL):
                connections.settings["default"], connections["default"] = places[size]
                samples[size][name].append(seconds(known[size][name]))
        places[SMALL][1].close()
    return samples, counts


def seconds(act: Act) -> float:
    """Processor seconds, after an uncounted one."""
    act()
    start = processor_seconds()
    act()
    return processor_seconds() - start


def processor_seconds() -> float:
    """What this process and the PostgreSQL process of its connection have used so far."""
    connection.ensure_connection()
    backend = connection.connection.info.backend_pid
    return time.process_time() + int(Path(f"/proc/{backend}/schedstat").read_text().split()[0]) / 1e9


def address_of(folder: Path, size: Size) -> str:
    """Of the database, with what the portal's connections to PostgreSQL set; one process does all of a query."""
    options = quote("-c random_page_cost=1.1 -c max_parallel_workers_per_gather=0")
    return f"{postgres.url(folder, size.database)}&options={options}"


def report(large: Size, samples: dict[Size, dict[str, list[float]]], counts: dict[Size, dict[str, int]]) -> int:
    """A line each: growth, p95 on the large estate, queries on both."""
    over = 0
    for name, slow in sorted(samples[large].items(), key=lambda each: -statistics.median(each[1])):
        growth = min(slow) / min(samples[SMALL][name])  # other work on the machine makes processors slower, too
        p95 = stage.p95(slow)
        before, after = counts[SMALL][name], counts[large][name]
        grows = growth > GROWTH and not name.endswith(WHOLE)
        bad = grows or p95 > P95 or after > before
        over += bad
        print(
            f"{name:<66} {growth:6.2f} x   {min(slow) * 1e3:7.1f} ms   p95 {p95 * 1e3:7.1f} ms"
            f"   queries {before:4} {after:4}"
            f"   {'OVER' if bad else 'ok'}"
        )
    plain = {
        str(size.workloads): {name: [round(s * 1e3, 1) for s in each] for name, each in found.items()}
        for size, found in samples.items()
    }
    stage.keep("pages", {"milliseconds": plain})
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
