"""B11: plans of quotas over 10,000 workloads in 200 projects, against 1,000; seconds and queries of each.

    python -m benchmarks.bench_plan [--workloads 10000] [--projects 200] [--rounds 5]

A project's quota, the department's, and 20 projects' at once are lowered on KAI Scheduler, and the limit of the
department is raised, so that the model is asked what starts: half of the workloads run with a pod each, half wait. What
takes more than 2 s, or more queries with more workloads, is marked OVER and ends the run with 1. PostgreSQL; wall
seconds of `plan_change`, and beside them processor seconds of this process, which other work on the machine does not
change. Samples go to benchmarks/results/plan.json.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from benchmarks import stage
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ObservedPod
from portal.demo.organisation import ACTOR
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tests.support import database, postgres
from workloads.plans.models import Plan
from workloads.plans.services.plans import plan_change
from workloads.state.models import Phase, Workload

LIMIT: Final = 2.0
SMALL: Final = 1_000
GPUS: Final = 8_000


def fill(workloads: int, projects: int) -> None:
    """Half of the workloads run, half wait; the quotas hold all that runs."""
    stage.organisation(projects)
    stage.fill(workloads, projects)
    pool, now = NodePool.objects.get(), timezone.now()
    DepartmentQuota.objects.create(
        department=Department.objects.get(),
        node_pool=pool,
        gpu_deserved=workloads * GPUS // 2,
        gpu_limit=workloads * GPUS // 2,
    )
    ProjectQuota.objects.update(gpu_deserved=workloads * GPUS // projects)
    Node.objects.create(
        cluster=pool.cluster,
        pool=pool,
        name="n0",
        uid="n0",
        gpu_milli=workloads * GPUS,
        observed_at=now,
        cpu_milli=10**9,
        memory_bytes=10**16,
        max_pods=10**6,
    )
    Cluster.objects.update(observed_at=now)
    rows = list(Workload.objects.order_by("project", "pk").values_list("pk", "project__namespace"))  # half of each
    half = [pk for pk, _namespace in rows[::2]]
    Workload.objects.update(phase=Phase.PENDING, running_pods=0, pool_name="h100", node_pools=["h100"])
    Workload.objects.filter(pk__in=half).update(phase=Phase.RUNNING, running_pods=1, started_at=now)
    shown = {"cluster": pool.cluster, "node_name": "n0", "pool_name": "h100", "phase": "Running", "gpu_milli": GPUS}
    times = {"created_at": now, "started_at": now, "observed_at": now}
    ObservedPod.objects.bulk_create(
        ObservedPod(
            uid=str(pk), namespace=space, name=f"pod-{pk}", owner_id=str(pk), preemptible=True, **shown, **times
        )
        for pk, space in rows[::2]
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def plans() -> Mapping[str, Callable[[], Plan]]:
    """The plans that are measured. Most lower what is deserved to one GPU."""
    lower: dict[str, Any] = {"pool": "h100", "values": {"gpu_deserved": 1_000}}
    names = list(Project.objects.order_by("pk").values_list("name", flat=True)[:20])
    batch = {"quotas": [{"project": name, **lower} for name in names], "reason": "benchmark"}
    of_project = {"project": names[0], "reason": "benchmark", **lower}
    of_department = {"department": "bench", "reason": "benchmark", **lower}
    more = {"department": "bench", "pool": "h100", "values": {"gpu_limit": GPUS * 10**5}, "reason": "benchmark"}
    return {
        "a higher limit": partial(plan_change, kind="department_quota", change=more, actor=ACTOR),
        "one project": partial(plan_change, kind="project_quota", change=of_project, actor=ACTOR),
        "the department": partial(plan_change, kind="department_quota", change=of_department, actor=ACTOR),
        "20 projects": partial(plan_change, kind="quotas", change=batch, actor=ACTOR),
    }


def queries(act: Callable[[], Plan]) -> int:
    with CaptureQueriesContext(connection) as captured:
        act()
    return len(captured)


def measured(act: Callable[[], Plan], rounds: int) -> list[tuple[float, float]]:
    """Wall and processor seconds of each round."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        wall, _plan = stage.timed(act)
        found.append((wall, time.process_time() - start))
    return found


def main() -> int:
    """Fill both, measure, report; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--projects", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    samples: dict[int, dict[str, list[tuple[float, float]]]] = {}
    counts: dict[int, dict[str, int]] = {}
    with stage.server() as folder:
        for size in (SMALL, options.workloads):
            with stage.stage(folder, f"plan_{size}"):
                fill(size, options.projects)
            with database.default_database(postgres.url(folder, f"plan_{size}")):
                acts = plans()
                counts[size] = {name: queries(act) for name, act in acts.items()}
                samples[size] = {name: measured(act, options.rounds) for name, act in acts.items()}
    over = 0
    for name, found in samples[options.workloads].items():
        before, after = counts[SMALL][name], counts[options.workloads][name]
        wall, processor = (statistics.median(each) for each in zip(*found, strict=True))
        small = statistics.median(each for _wall, each in samples[SMALL][name])
        bad = wall > LIMIT or after > before
        over += bad
        print(
            f"{name:<16} {wall:6.3f} s   processor {processor:.3f} s ({SMALL} workloads {small:.3f})"
            f"   limit {LIMIT} s   queries {before} {after}   {'OVER' if bad else 'ok'}"
        )
    stage.keep("plan", {"seconds": samples, "queries": counts})
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
