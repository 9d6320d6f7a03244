"""Specs as intake makes them, workloads as submission stores them, and the rows around them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from clusters.watch.models import ObservedPod
from tests.factories.clusters import ClusterFactory, NodePoolFactory
from tests.factories.tenants import GPU, ProjectFactory
from workloads.detectors.models import Finding
from workloads.dictionary.models import Priority, WorkloadType
from workloads.dictionary.rules.resolution import Request
from workloads.intake import Explicit, ProjectGrants, WorkloadSpec, read_object
from workloads.policies.models import Policy
from workloads.quota_requests.models import QuotaRequest
from workloads.quota_requests.selectors import base_of, impact_of
from workloads.replay.models import Replay
from workloads.reports.models import Report
from workloads.state.models import Phase, Workload
from workloads.workload_templates.models import Asset, WorkloadTemplate

IMAGE = "registry.example/team/train:1"
REFUSAL = "spec.template: Invalid value"
"""What a server said to objects that it did not take."""


def pod(gpus: int = 1, *, container: str = "main", **spec: Any) -> dict[str, Any]:
    """A pod spec of one container."""
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": container, "image": IMAGE, "resources": resources}],
        **spec,
    }


def job(
    name: str = "train", *, gpus: int = 1, pods: int = 1, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A batch/v1 Job: Build, high, non-preemptible by default."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod(gpus)}},
    }


def bare_pod(name: str = "pod", *, gpus: int = 1) -> dict[str, Any]:
    """A v1 Pod: Deploy, very-high, non-preemptible by default."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod(gpus)}


def deployment(name: str = "serve", *, gpus: int = 1) -> dict[str, Any]:
    """An apps/v1 Deployment of one replica; its kind cannot be suspended."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**pod(gpus), "restartPolicy": "Always"}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def pytorch_job(
    name: str = "train", *, gpus: int = 1, workers: int = 0, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A kubeflow.org/v1 PyTorchJob: Train, low, preemptible by default. One master and its workers."""
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": _pytorch(gpus)}}
    replicas = {"Master": replica, **({"Worker": {**replica, "replicas": workers}} if workers else {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def _pytorch(gpus: int) -> dict[str, Any]:
    spec = pod(gpus, container="pytorch")
    spec.pop("restartPolicy")
    return spec


def spec_of(
    manifest: Mapping[str, Any],
    *,
    namespace: str = "runai-llm-team",
    priority: str | None = None,
    preemptibility: str | None = None,
    node_pools: tuple[str, ...] = (),
) -> WorkloadSpec:
    """The spec intake makes of a manifest."""
    scope = ProjectGrants(namespace=namespace, allowed_registries=("*",))
    explicit = Explicit(priority=priority, preemptibility=preemptibility)
    return replace(read_object(manifest, scope=scope, explicit=explicit), node_pools=node_pools)


def of_type(name: str, request: Request) -> WorkloadSpec:
    """A spec of any type with any request: what intake would say if the manifest had been of that type."""
    return replace(spec_of(job("any")), type_name=name, request=request)


class WorkloadFactory(DjangoModelFactory[Workload]):
    """A preemptible training of one GPU that waits in its project's default pool."""

    project = factory.SubFactory(ProjectFactory)
    name = factory.Sequence(lambda n: f"workload-{n}")
    type = factory.LazyFunction(lambda: WorkloadType.objects.get(name="PyTorchJob"))
    priority = factory.LazyFunction(lambda: Priority.objects.get(name="low"))
    priority_value = factory.SelfAttribute("priority.value")
    priority_source = "type"
    preemptibility = "preemptible"
    preemptibility_source = "type"
    category = "Train"
    classification = factory.SelfAttribute("category")
    spec = factory.LazyFunction(lambda: spec_of(pytorch_job()).as_json())
    node_pools = factory.LazyAttribute(lambda row: [row.pool_name])
    pool_name = "h100"
    gpu_milli = GPU
    phase = Phase.PENDING
    phase_at = factory.LazyFunction(timezone.now)
    created_at = factory.LazyFunction(timezone.now)
    submitted_by = "somebody"
    submitted_by_kind = "user"
    channel = "ui"
    applied_generation = 1

    class Params:
        failed_to_apply = factory.Trait(
            phase=Phase.FAILED,
            phase_reason="cluster_refused",
            phase_message=REFUSAL,
            apply_error=REFUSAL,
            completed_at=factory.LazyFunction(timezone.now),
            applied_generation=0,
        )

    class Meta:
        model = Workload


class ObservedPodFactory(DjangoModelFactory[ObservedPod]):
    """A running pod of a workload, as the observer keeps it."""

    class Params:
        workload = factory.SubFactory(WorkloadFactory)

    cluster = factory.SelfAttribute("workload.project.cluster")
    uid = factory.Faker("uuid4")
    namespace = factory.SelfAttribute("workload.project.namespace")
    name = factory.Sequence(lambda n: f"pod-{n}")
    owner_id = factory.LazyAttribute(lambda row: str(row.workload.pk))
    node_name = "node-000"
    pool_name = factory.SelfAttribute("workload.pool_name")
    phase = "Running"
    priority_class = factory.SelfAttribute("workload.priority.name")
    priority = factory.SelfAttribute("workload.priority_value")
    preemptible = factory.LazyAttribute(lambda row: row.workload.preemptibility == "preemptible")
    gpu_milli = GPU
    created_at = factory.LazyFunction(timezone.now)
    started_at = factory.LazyFunction(timezone.now)
    observed_at = factory.LazyFunction(timezone.now)

    class Meta:
        model = ObservedPod


class PolicyFactory(DjangoModelFactory[Policy]):
    """Training everywhere: low unless somebody chooses."""

    name = "everywhere"
    kind = "training"
    scope = "tenant"
    document = factory.LazyFunction(lambda: {"defaults": {"priorityClass": "low"}})
    created_by = updated_by = "somebody"
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.LazyFunction(timezone.now)

    class Meta:
        model = Policy


class ReportFactory(DjangoModelFactory[Report]):
    """The last hour by cluster, not made yet."""

    name = "use of the last hour"
    subject_kind = "user"
    subject_id = "0"
    subject_name = "somebody"
    end = factory.LazyFunction(timezone.now)
    start = factory.LazyAttribute(lambda row: row.end - timedelta(hours=1))
    created_at = factory.LazyFunction(timezone.now)
    status_at = due_at = factory.SelfAttribute("created_at")

    class Meta:
        model = Report


class FindingFactory(DjangoModelFactory[Finding]):
    """Open since a minute, about no workload."""

    kind = "priority-inversion"
    key = factory.Sequence(lambda number: f"finding-{number}")
    evidence = factory.LazyFunction(lambda: ["It waits."])
    advice = "Wait."
    first_seen = factory.LazyFunction(lambda: timezone.now() - timedelta(minutes=1))
    last_seen = factory.LazyFunction(timezone.now)

    class Meta:
        model = Finding


class QuotaRequestFactory(DjangoModelFactory[QuotaRequest]):
    """One GPU more, open; by nobody in particular."""

    project = factory.SubFactory(ProjectFactory)
    node_pool = factory.SubFactory(NodePoolFactory, cluster=factory.SelfAttribute("..project.cluster"))
    gpu_milli = GPU
    reason = "Paper deadline"
    author_kind = "user"
    author_id = "0"
    author_name = "somebody"
    created_at = impact_at = factory.LazyFunction(timezone.now)
    base = factory.LazyAttribute(lambda row: base_of(row.project, row.node_pool))
    impact = factory.LazyAttribute(lambda row: impact_of(row.project, row.node_pool, row.gpu_milli))

    class Meta:
        model = QuotaRequest


class ReplayFactory(DjangoModelFactory[Replay]):
    """Of a day of the record, not run yet."""

    name = "what if"
    cluster = factory.SubFactory(ClusterFactory)
    subject_kind = "user"
    subject_id = "0"
    subject_name = "somebody"
    request = factory.LazyFunction(lambda: {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-02T00:00:00+00:00"})
    created_at = factory.LazyFunction(timezone.now)
    status_at = due_at = factory.SelfAttribute("created_at")

    class Meta:
        model = Replay


class AssetFactory(DjangoModelFactory[Asset]):
    """One GPU, for everybody."""

    name = factory.Sequence(lambda number: f"asset-{number}")
    kind = "compute"
    scope = "tenant"
    spec = factory.LazyFunction(lambda: {"gpuDevicesRequest": 1})
    created_by = updated_by = "somebody"
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.LazyFunction(timezone.now)

    class Meta:
        model = Asset


class WorkloadTemplateFactory(DjangoModelFactory[WorkloadTemplate]):
    """A training of an image, for everybody."""

    name = factory.Sequence(lambda number: f"template-{number}")
    kind = "trainings"
    scope = "tenant"
    spec = factory.LazyFunction(lambda: {"image": "docker.io/team/train:1"})
    created_by = updated_by = "somebody"
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.LazyFunction(timezone.now)

    class Meta:
        model = WorkloadTemplate
