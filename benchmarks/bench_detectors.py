"""What the detectors cost with 50 clusters: seconds a minute of one worker. Goal: 1 % (0.6 s a minute).

    python -m benchmarks.bench_detectors [--clusters 50] [--workloads 200] [--repeats 5]

Each cluster has two pools of 16 nodes, ten projects, and that many workloads of one pod: four fifths run, a fifth
waits, and a tenth was evicted in the last two hours. The first check opens findings and is shown apart; a later one, as
every 15 minutes, refreshes them. SQLite. Samples go to benchmarks/results/detectors.json.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import statistics
import time
import uuid
from datetime import timedelta

from django.utils import timezone

from benchmarks.many import organisation
from clusters.inventory.models import Cluster, Node
from clusters.watch.models import ObservedPod
from tenants.organisation.models import Project
from tests.factories.workloads import pytorch_job, spec_of
from workloads.detectors.models import Finding
from workloads.detectors.services import detect
from workloads.dictionary.models import Priority, WorkloadType
from workloads.lifecycle.tasks import DETECT_SECONDS
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

POOLS, NODES, PROJECTS = ("h100", "h200"), 16, 10
SHARE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    requested = parser.parse_args()
    with stage.template() as template, stage.copy_of(template):
        for number in range(requested.clusters):
            history(f"bench-{number}", requested.workloads)
        first = spent(0)
        samples = [spent(minute) for minute in range(1, requested.repeats + 1)]
        found = Finding.objects.count()
    median = statistics.median(samples) * 60 / DETECT_SECONDS
    verdict = "ok" if median <= 60 * SHARE else "OVER"
    print(f"{requested.clusters} clusters of {requested.workloads} workloads, {found} findings")
    print(f"one check of all: {statistics.median(samples):.2f} s of processor time, the first {first:.2f} s")
    print(f"seconds a minute: {median:.3f} (limit {60 * SHARE:.2f}, {verdict})")
    stage.keep("detectors", {"first": first, "samples": samples, "clusters": requested.clusters, "findings": found})


def spent(minutes: int) -> float:
    """Processor seconds of a check that many minutes later."""
    now = timezone.now() + timedelta(minutes=minutes)
    Cluster.objects.update(observed_at=now)
    began = time.process_time()
    for cluster in Cluster.objects.all():
        detect(cluster, now)
    return time.process_time() - began


def history(name: str, count: int) -> None:
    """One cluster with what has happened on it."""
    cluster, now = Cluster.objects.create(name=name, flavour="kai", backend="memory"), timezone.now()
    organisation(cluster, PROJECTS, pools=2)
    pools = {pool.name: pool for pool in cluster.node_pools.all()}
    Node.objects.bulk_create(
        Node(
            cluster=cluster,
            pool=pools[pool],
            name=f"{pool}-{number}",
            uid=uuid.uuid4(),
            gpu_milli=8000,
            observed_at=now,
        )
        for pool in POOLS
        for number in range(NODES)
    )
    rows = workloads(cluster, count)
    ObservedPod.objects.bulk_create(
        ObservedPod(
            cluster=cluster,
            uid=uuid.uuid4(),
            namespace=row.project.namespace,
            name=row.name,
            owner_id=str(row.pk),
            node_name=f"{row.pool_name}-{number % NODES}",
            pool_name=row.pool_name,
            phase="Running",
            gpu_milli=1000,
            created_at=now,
            started_at=row.started_at,
            observed_at=now,
        )
        for number, row in enumerate(rows)
        if row.phase == Phase.RUNNING
    )
    PreemptionRecord.objects.bulk_create(
        PreemptionRecord(
            cluster=cluster,
            pod_uid=uuid.uuid4(),
            pod_name=row.name,
            at=now - timedelta(minutes=number % 110),
            victim=row,
            preemptor=rows[0],
            preemptor_name=rows[0].name,
            cause="preempt",
            gpu_milli=1000,
            ran_seconds=7200,
            lost_gpu_seconds=7200,
        )
        for number, row in enumerate(rows[::10])
    )


def workloads(cluster: Cluster, count: int) -> list[Workload]:
    """A fifth waits for eight GPUs, the others run on one."""
    now, spec = timezone.now(), spec_of(pytorch_job()).as_json()
    projects = list(Project.objects.filter(cluster=cluster))
    priorities = list(Priority.objects.filter(name__in=("low", "high")).order_by("value"))
    kind = WorkloadType.objects.get(name="PyTorchJob")
    made = []
    for number in range(count):
        waits, priority = number % 5 == 0, priorities[number % 5 == 0 and number % 2]
        since = now - timedelta(minutes=30 if waits else 20 + number % 20)
        made.append(
            Workload(
                project=projects[number % len(projects)],
                name=f"{cluster.name}-{number}",
                type=kind,
                spec=spec,
                priority=priority,
                priority_value=priority.value,
                preemptibility="preemptible",
                pool_name=POOLS[number // 5 % 2],
                gpu_milli=8000 if waits else 1000,
                allocated_gpu_milli=0 if waits else 1000,
                phase=Phase.PENDING if waits else Phase.RUNNING,
                phase_reason="NoRoom" if waits else "",
                phase_at=since,
                created_at=since,
                started_at=None if waits else since,
                submitted_by="bench",
                submitted_by_kind="user",
                channel="api",
            )
        )
    return Workload.objects.bulk_create(made)


if __name__ == "__main__":
    main()
