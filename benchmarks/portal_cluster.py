"""A large observed cluster in the portal's database: nodes, quotas, running workloads with their pods, waiting ones."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.test import Client

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ObservedPod
from portal.demo.organisation import ACTOR
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Snapshot
from tenants.access.models import Role
from tenants.access.services.credentials import exchange
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from workloads.dictionary.models import Priority, WorkloadType
from workloads.state.models import Phase, Workload

API: Final = "/api/v2/workloads"
DRY_RUN: Final = f"{API}?dryRun=true"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
PRIORITIES: Final = {25: "very-low", 40: "low", 65: "medium-low", 80: "medium", 90: "medium-high", 125: "high"}


def store(snapshot: Snapshot, *, waiting: int) -> None:
    """Rows of everything in the snapshot, and so many workloads submitted through the API."""
    found = Cluster.objects.create(name="bench", flavour="kai", backend="kubernetes", observed_at=datetime.now(UTC))
    pool = NodePool.objects.create(cluster=found, name="default", label_value="default", is_default=True)
    labels = {pool.label_key: pool.label_value}
    Node.objects.bulk_create(
        Node(
            cluster=found,
            pool=pool,
            name=node.name,
            uid=node.name,
            max_pods=110,
            labels=labels,
            observed_at=START,
            **_amounts(node.capacity),
        )
        for node in snapshot.nodes
    )
    projects = _organisation(snapshot, found, pool)
    _running(snapshot, found, projects)
    client = signed_in()
    for index in range(waiting):
        body = gang_body(index, name=f"waiting-{index}", pods=1 + index % 4)
        answer = client.post(API, body, "application/json")
        assert answer.status_code == 202, answer.content


def _amounts(amount: Resources) -> dict[str, int]:
    return {"gpu_milli": amount.gpu, "cpu_milli": amount.cpu, "memory_bytes": amount.memory}


def _organisation(snapshot: Snapshot, cluster: Cluster, pool: NodePool) -> dict[str, Project]:
    """Departments and projects with the quotas of their queues, by the queue's name."""
    departments: dict[str, Department] = {}
    projects: dict[str, Project] = {}
    for queue in snapshot.queues:
        bounds = {"gpu_deserved": queue.deserved.gpu or 0, "gpu_limit": queue.limit.gpu}
        if queue.parent is None:
            row = departments[queue.name] = Department.objects.create(cluster=cluster, name=queue.name)
            DepartmentQuota.objects.create(department=row, node_pool=pool, **bounds)
        else:
            projects[queue.name] = Project.objects.create(
                department=departments[queue.parent],
                cluster=cluster,
                name=queue.name,
                namespace=f"runai-{queue.name}",
            )
            weight = queue.weight
            ProjectQuota.objects.create(
                project=projects[queue.name], node_pool=pool, over_quota_weight=weight, **bounds
            )
    return projects


def _running(snapshot: Snapshot, cluster: Cluster, projects: dict[str, Project]) -> None:
    """A workload and its pod for each pod group that runs."""
    kind = WorkloadType.objects.get(name="PyTorchJob")
    priorities = {row.name: row for row in Priority.objects.all()}
    pairs = [(group, _workload(group, projects[group.queue], kind, priorities)) for group in snapshot.groups]
    Workload.objects.bulk_create([workload for _group, workload in pairs], batch_size=1000)
    ObservedPod.objects.bulk_create([_pod(group, row, cluster) for group, row in pairs], batch_size=1000)


def _workload(group: PodGroup, project: Project, kind: WorkloadType, priorities: dict[str, Priority]) -> Workload:
    at = START + timedelta(seconds=group.created)
    return Workload(
        id=uuid.uuid5(uuid.NAMESPACE_DNS, group.name),
        name=group.name,
        project=project,
        type=kind,
        spec={"min_member": 1, "annotations": None, "roles": []},
        priority=priorities[PRIORITIES[group.priority]],
        priority_value=group.priority,
        priority_source="explicit",
        preemptibility="preemptible" if group.preemptible else "non-preemptible",
        preemptibility_source="explicit",
        phase=Phase.RUNNING,
        phase_at=at,
        pool_name="default",
        running_pods=1,
        submitted_by="admin",
        submitted_by_kind="user",
        channel="api",
        created_at=at,
        started_at=at,
        applied_generation=1,
        **_amounts(group.total),
    )


def _pod(group: PodGroup, workload: Workload, cluster: Cluster) -> ObservedPod:
    (pod,) = group.pods
    return ObservedPod(
        cluster=cluster,
        uid=str(workload.pk),
        namespace=workload.project.namespace,
        name=group.name,
        owner_id=str(workload.pk),
        node_name=pod.node,
        pool_name="default",
        phase="Running",
        priority=group.priority,
        priority_class=PRIORITIES[group.priority],
        preemptible=group.preemptible,
        created_at=workload.created_at,
        started_at=workload.created_at,
        observed_at=START,
        **_amounts(pod.requests),
    )


def signed_in() -> Client:
    """A script with the rights of a platform admin."""
    account, secret = create_service_account(
        name=f"robot-{uuid.uuid4().hex[:8]}", actor=ACTOR, role=Role.PLATFORM_ADMIN
    )
    return Client(headers={"Authorization": f"Bearer {exchange(account.client_id, secret).text}"})


def gang_body(number: int, *, name: str = "candidate", pods: int = 8) -> str:
    """What is sent for a gang of pods with 8 GPUs each, for another project and priority each time."""
    projects = list(Project.objects.order_by("pk").values_list("pk", flat=True))
    container = {
        "name": "pytorch",
        "image": "docker.io/pytorch/pytorch:2.8.0",
        "command": ["torchrun", "train.py"],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 8}},
    }
    template = {"spec": {"containers": [container]}}
    replicas = {"Master": {"replicas": 1, "template": template}}
    if pods > 1:
        replicas["Worker"] = {"replicas": pods - 1, "template": template}
    manifest: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }
    priorities = list(PRIORITIES.values())[:5]
    metadata = {
        "projectId": str(projects[number * 7 % len(projects)]),
        "priority": priorities[number % len(priorities)],
    }
    return json.dumps({"metadata": metadata, "manifest": manifest})


def change_one_pod(number: int) -> None:
    """Its deletion is seen, as the observer would write it, seconds after that of the pod before."""
    row = ObservedPod.objects.order_by("pk")[number]
    row.deletion_at = row.observed_at = datetime.now(UTC) + timedelta(seconds=number)
    row.save(update_fields=["deletion_at", "observed_at"])
