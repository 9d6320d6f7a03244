"""B10: every page, REST list and periodic task on a small and on a large estate, in turns on one PostgreSQL.

    python -m benchmarks.bench_pages [--workloads 100000] [--projects 1000] [--clusters 50] [--rounds 5] [--only TEXT]

Small: 200 workloads, 100 projects, 2 clusters. Whole requests through Django's test client, without a socket. What
grows beyond the limit (the fastest of each), has a p95 over 150 ms or takes more queries is marked OVER and ends the
run with 1. Samples go to benchmarks/results/pages.json.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from benchmarks import stage

# isort: split
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Concat
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.services.usage import take_samples
from portal.audit.chain import seal
from portal.demo.organisation import ACTOR
from tenants.access.models import Membership, Role, User
from tenants.access.services.credentials import exchange
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, ProjectQuota, TimeLimit
from tests.support import database, postgres
from workloads.dictionary.services.plans import plan_priority_change
from workloads.lifecycle.services import apply_queue, relocation, run_limits
from workloads.state.models import Workload

GROWTH: Final = 1.3
P95: Final = 0.150  # seconds
NODES: Final = 120
RARE: Final = 60
"""The oldest workloads, whose names are searched for: a full page on either estate."""
PROJECTS_PER_DEPARTMENT: Final = 5
PAGES: Final = (
    "/",
    "/workloads/",
    "/workloads/?phase=Pending",
    "/workloads/?q=rare",
    "/workloads/?suggest=project&project=p1",
    "/workloads/{workload}/",
    "/workloads/submit/",
    "/workloads/submit/yaml/",
    "/priorities/",
    "/eviction-matrix/",
    "/types/",
    "/types/{type}/",
    "/policies/",
    "/policies/add/",
    "/templates/",
    "/templates/add/",
    "/notifications/",
    "/reports/",
    "/projects/",
    "/projects/p3/",
    "/clusters/",
    "/clusters/c0/",
    "/clusters/c0/pools/",
    "/access-keys/",
    "/audit/",
    "/audit/?action=workload.created",
    "/security/",
)
ROUTES: Final = (
    "/api/v1/workloads?limit=50",
    "/api/v1/workloads?limit=50&search=rare",
    "/api/v1/workloads/count",
    "/api/v1/workloads/pods?limit=50",
    "/api/v1/workloads/telemetry?telemetryType=WORKLOADS_COUNT",
    "/api/v1/workloads/{workload}/alternatives",
    "/api/v1/workload-types",
    "/api/v1/workload-priorities",
    "/api/v1/org-unit/projects?limit=20",
    "/api/v1/org-unit/projects/count",
    "/api/v1/org-unit/departments?limit=20",
    "/api/v1/org-unit/projects/node-pool-resources?limit=20",
    "/api/v1/authorization/access-rules?limit=50",
    "/api/v1/users?limit=50",
    "/api/v1/clusters",
    "/api/v1/nodes?limit=50",
    "/api/v1/node-pools?limit=2",
    "/api/v1/audit/log?start=2026-01-01T00:00:00Z&end=2036-01-01T00:00:00Z&numberOfSamples=50",
)


def plan() -> None:
    """A plan as the page makes it, without a trace."""
    with transaction.atomic():
        plan_priority_change(change={"op": "change", "name": "very-high", "value": 151}, actor=ACTOR)
        transaction.set_rollback(True)


TASKS: Final[Mapping[str, Callable[[], object]]] = {
    "task: time and idle limits": run_limits.enforce,
    "task: next node pools": relocation.try_next_pools,
    "task: due workloads": apply_queue.sweep,
    "task: samples": take_samples,
    "task: sealing the audit chain": seal,
    "change plan": plan,
}
Act = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Size:
    """How much an estate holds."""

    workloads: int
    projects: int
    clusters: int

    @property
    def database(self) -> str:
        """Its name in the server."""
        return f"pages_{self.workloads}"


SMALL: Final = Size(200, 100, 2)


def fill(size: Size) -> None:
    """The estate: an admin, a member of one project, a robot's roles, clusters with nodes, projects, workloads."""
    now = timezone.now()
    clusters = [
        Cluster.objects.create(name=f"c{number}", flavour="kai", observed_at=now) for number in range(size.clusters)
    ]
    pools = NodePool.objects.bulk_create(
        NodePool(cluster=each, name="h100", label_value="h100", is_default=True) for each in clusters
    )
    Node.objects.bulk_create(
        Node(
            cluster=pool.cluster,
            pool=pool,
            uid=f"{pool.pk}-{number}",
            name=f"n{number}",
            gpu_milli=8000,
            cpu_milli=96_000,
            memory_bytes=2**40,
            observed_at=now,
        )
        for pool in pools
        for number in range(NODES)
    )
    _projects(size, pools)
    stage.fill(size.workloads, size.projects)
    ended = Workload.objects.filter(phase__in=("Running", "Pending")).order_by("-created_at")
    keep = list(ended.values_list("pk", flat=True)[: 80 * size.clusters // SMALL.clusters])
    ended.exclude(pk__in=keep).update(phase="Completed")
    Workload.objects.filter(phase="Running").update(started_at=now)
    for kind in (TimeLimit, IdleLimit):
        kind.objects.bulk_create(
            kind(department=each, category="Train", minutes=1440) for each in Department.objects.all()
        )
    oldest = Workload.objects.order_by("created_at").values("pk")[:RARE]
    Workload.objects.filter(pk__in=list(oldest.values_list("pk", flat=True))).update(
        name=Concat(Value("rare-"), "name")
    )
    User.objects.create_superuser("admin", password="bench")
    member = User.objects.create_user("member", password="bench")
    Membership.objects.create(user=member, project=Project.objects.get(name="p3"), role_id=Role.MEMBER)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _projects(size: Size, pools: list[NodePool]) -> None:
    departments: list[Department] = []
    projects: list[Project] = []
    for number in range(size.projects):
        pool = pools[number % len(pools)]
        if number < len(pools) or number // len(pools) % PROJECTS_PER_DEPARTMENT == 0:
            departments.append(Department.objects.create(cluster=pool.cluster, name=f"d{number}"))
        place = next(each for each in reversed(departments) if each.cluster_id == pool.cluster_id)
        projects.append(
            Project(department=place, cluster=pool.cluster, name=f"p{number}", namespace=f"runai-p{number}")
        )
    Project.objects.bulk_create(projects)
    by_cluster = {pool.cluster_id: pool for pool in pools}
    ProjectQuota.objects.bulk_create(
        ProjectQuota(project=each, node_pool=by_cluster[each.cluster_id], gpu_deserved=40_000) for each in projects
    )


def acts() -> dict[str, Act]:
    """Everything measured, as calls on the database that is the default now."""
    known = {
        "{workload}": str(Workload.objects.filter(phase="Pending").latest("created_at").pk),
        "{type}": str(Workload.objects.latest("created_at").type_id),
    }
    admin, member = Client(), Client()
    admin.force_login(User.objects.get(username="admin"))
    member.force_login(User.objects.get(username="member"))
    account, secret = create_service_account(name=f"robot-{os.urandom(4).hex()}", actor=ACTOR, role=Role.PLATFORM_ADMIN)
    robot = Client(headers={"Authorization": f"Bearer {exchange(account.client_id, secret).text}"})
    found: dict[str, Act] = {}
    for path in PAGES:
        found[f"page {path}"] = _get(admin, path, known)
    for path in ("/", "/workloads/", "/projects/", "/workloads/submit/"):
        found[f"member's page {path}"] = _get(member, path, known)
    for path in ROUTES:
        found[f"REST {path}"] = _get(robot, path, known)
    return found | dict(TASKS)


def _get(client: Client, path: str, known: Mapping[str, str]) -> Act:
    for name, value in known.items():
        path = path.replace(name, value)

    def act() -> object:
        response = client.get(path)
        assert response.status_code == 200, (path, response.status_code, response.content[:300])
        return response

    return act


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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="measure only what has this text in its name")
    options = parser.parse_args()
    large = Size(options.workloads, options.projects, options.clusters)
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
    for size in samples:
        with database.default_database(postgres.url(folder, size.database)):
            known[size] = {name: act for name, act in acts().items() if options.only in name}
            counts[size] = {name: queries(act) for name, act in known[size].items()}
    for number in range(options.rounds):
        for size in (SMALL, large) if number % 2 else (large, SMALL):
            with database.default_database(postgres.url(folder, size.database)):
                for name, act in known[size].items():
                    samples[size][name] += stage.seconds(act, 2)
    return samples, counts


def report(large: Size, samples: dict[Size, dict[str, list[float]]], counts: dict[Size, dict[str, int]]) -> int:
    """A line each: growth, p95 on the large estate, queries on both."""
    over = 0
    for name, slow in sorted(samples[large].items(), key=lambda each: -statistics.median(each[1])):
        growth = min(slow) / min(samples[SMALL][name])  # other work on the machine only adds
        p95 = statistics.quantiles(slow, n=20)[-1]
        before, after = counts[SMALL][name], counts[large][name]
        bad = growth > GROWTH or p95 > P95 or after > before
        over += bad
        print(
            f"{name:<66} {growth:6.2f} x   p95 {p95 * 1e3:7.1f} ms   queries {before:4} {after:4}"
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
