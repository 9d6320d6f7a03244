"""What the newest pages need: a cluster with every kind of difference, and a workload on a plain kube-scheduler."""

from datetime import timedelta

from django.utils import timezone

from clusters.backends.memory import MemoryGateway, store_of
from clusters.inventory.models import Cluster
from clusters.sync.models import Drift, SyncOutcome, SyncRun
from clusters.web.selectors import ObjectVisibility, drifts_of
from portal.kit.db.keyset_pagination import page_of
from tenants.access.models import User
from tests.factories.clusters import ClusterFactory
from tests.factories.tenants import DepartmentFactory, ProjectFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, job, spec_of
from workloads.dictionary.models import Priority, WorkloadType
from workloads.state.models import Phase

LONG = {"cpu": "4", "labels": [f"value-{number}-" + "x" * 60 for number in range(80)]}
CLASS = "PriorityClass.scheduling.k8s.io"


def differences(cluster: Cluster) -> dict[str, str]:
    """More differences and runs than fit one page; the addresses of one of each sort."""
    now = timezone.now()
    page = f"/clusters/{cluster.name}"
    seen = {"cluster": cluster, "seen_at": now}
    limits = [["/spec/limits", LONG, {"cpu": "2"}]]
    Drift.objects.create(
        category="changed", kind="LimitRange", namespace="runai-a", name="long", changes=limits, **seen
    )
    Drift.objects.create(category="conflict", kind=CLASS, name="high", object_uid="u-1", message="Foreign.", **seen)
    Drift.objects.create(category="conflict", kind=CLASS, name="late", message="A later generation.", **seen)
    Drift.objects.create(
        category="stale", kind="Pod", namespace="runai-a", name="old-0", message="Runs with 40.", **seen
    )
    Drift.objects.bulk_create(Drift(category="missing", kind="Queue", name=f"q{n:03}", **seen) for n in range(51))
    following = page_of(drifts_of(cluster, ObjectVisibility(everything=True)), column="name", after="", size=50).next
    return {
        "difference": f"{page}/difference/?kind=LimitRange&namespace=runai-a&name=long",
        "foreign object": f"{page}/difference/?kind={CLASS}&namespace=&name=high",
        "difference beyond repair": f"{page}/difference/?kind={CLASS}&namespace=&name=late",
        "second page of drift": f"{page}/?tab=drift&after={following}",
        "dry run": f"{page}/runs/{_run(cluster, dry_run=True, objects=101).pk}/",
        "failed run": f"{page}/runs/{_run(cluster, error='The server did not answer within 10 s.').pk}/",
        "quiet run": f"{page}/runs/{_run(cluster).pk}/",
    }


def on_kube(user: User) -> dict[str, str]:
    """A paused cluster of kube-scheduler where a job of two containers runs and writes; the addresses of both."""
    ClusterFactory.create(name="measured", backend="kubernetes")
    paused = {"state": "paused", "paused_reason": "Another cluster answers at its address."}
    cluster = ClusterFactory.create(name="plain", flavour="kube", **paused)
    project = ProjectFactory.create(name="plain-team", department=DepartmentFactory.create(cluster=cluster))
    manifest = job("two-containers", gpus=2)
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"].append({**pod["containers"][0], "name": "metrics", "resources": {}})
    high = Priority.objects.get(name="high")
    now = timezone.now()
    workload = WorkloadFactory.create(
        project=project,
        name="two-containers",
        type=WorkloadType.objects.get(name="Job"),
        spec=spec_of(manifest, namespace=project.namespace).as_json(),
        priority=high,
        preemptibility="non-preemptible",
        phase=Phase.RUNNING,
        started_at=now - timedelta(hours=3),
        allocated_gpu_milli=2000,
        running_pods=1,
        submitted_by=user.username,
        submitted_by_id=str(user.pk),
    )
    ObservedPodFactory.create(workload=workload, name="two-containers-0", gpu_milli=2000)
    _wrote(
        cluster, project.namespace, "two-containers-0", [f"step {number} loss 0.{number:03}" for number in range(300)]
    )
    Drift.objects.create(cluster=cluster, category="missing", kind="Queue", name="gone", seen_at=now)
    return {
        "job on kube": f"/workloads/{workload.pk}/",
        "where its use is read": "/clusters/measured/gpu-use/",
        "its logs": f"/workloads/{workload.pk}/?tab=logs&container=metrics",
        "its yaml": f"/workloads/{workload.pk}/?tab=yaml",
        "guarantees of kube": "/clusters/plain/?tab=guarantees",
        "no run yet": "/clusters/plain/?tab=sync",
        "difference while paused": "/clusters/plain/difference/?kind=Queue&namespace=&name=gone",
    }


def _wrote(cluster: Cluster, namespace: str, pod: str, lines: list[str]) -> None:
    store = store_of(str(cluster.pk))
    gateway = MemoryGateway(store)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    gateway.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": namespace}})
    store.logs[namespace, pod] = lines


def _run(cluster: Cluster, *, dry_run: bool = False, objects: int = 0, error: str = "") -> SyncRun:
    now = timezone.now()
    run: SyncRun = SyncRun.objects.create(
        cluster=cluster,
        state="failed" if error else "succeeded",
        dry_run=dry_run,
        scope="project.7\npriority.3",
        error=error,
        listed=objects,
        started_at=now,
        heartbeat_at=now,
        finished_at=now,
    )
    changes = [["/spec/hard/requests.nvidia.com~1gpu", "24", "16"], ["/metadata/labels/team", None, "x" * 60]]
    SyncOutcome.objects.bulk_create(
        SyncOutcome(
            run=run, action="update", kind="ResourceQuota", namespace="a", name=f"q{n:03}", ok=True, changes=changes
        )
        for n in range(objects)
    )
    return run
