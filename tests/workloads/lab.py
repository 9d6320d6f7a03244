"""A sandbox cluster that the whole product works on: reconcile, apply, tick, observe, each when the test says so."""

from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.backends.sandbox import SandboxGateway
from clusters.flavours.volcano_conf import CONF, KEY
from clusters.kinds import kind_for
from clusters.kinds_core import kind_of_workload
from clusters.models import Cluster, SandboxClock
from clusters.ports import Kind, Manifest, ObjectRef
from clusters.sandbox.tick import tick
from clusters.services.observe import observe_cluster
from clusters.services.reconcile import reconcile
from portal.core.actors import SYSTEM, Actor
from tenants.models import Project
from tests.factories.tenants import (
    GPU,
    ClusterFactory,
    DepartmentFactory,
    DepartmentQuotaFactory,
    NodePoolFactory,
    ProjectFactory,
    ProjectQuotaFactory,
)
from tests.factories.workloads import pytorch_job, spec_of
from workloads.models import Workload
from workloads.queues import object_name
from workloads.services.apply_turns import drain
from workloads.services.submission import submit


class Lab:
    """One cluster with the pool h100 and its time."""

    def __init__(self, flavour: str = "kai", *, nodes: int = 1) -> None:
        self.cluster: Cluster = ClusterFactory(name="lab", flavour=flavour, backend="sandbox")
        self.pool = NodePoolFactory(cluster=self.cluster, name="h100", is_default=True)
        SandboxClock.objects.create(cluster=self.cluster, speed=1)
        self.department = DepartmentFactory(cluster=self.cluster, name="research")
        DepartmentQuotaFactory(department=self.department, node_pool=self.pool, gpu_deserved=64 * GPU)
        self.now = datetime.now(tz=UTC)
        for number in range(nodes):
            self.node(f"node-{number}")

    def node(self, name: str, *, gpus: int = 8, **labels: str) -> None:
        """One more node of the pool."""
        status = {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "128", "memory": "1Ti"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        labels = {"rung.dev/node-pool": "h100", **labels}
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
        SandboxGateway(self.cluster).create(manifest)

    def project(self, name: str, *, deserved: int = 8, limit: int | None = None) -> Project:
        """A project with its queue in the pool."""
        project: Project = ProjectFactory(department=self.department, name=name)
        gpu_limit = None if limit is None else limit * GPU
        ProjectQuotaFactory(project=project, node_pool=self.pool, gpu_deserved=deserved * GPU, gpu_limit=gpu_limit)
        return project

    def submit(self, project: Project, name: str, *, gpus: int = 1, actor: Actor = SYSTEM, **asked: Any) -> Workload:
        """A training of one pod, or what `manifest` says."""
        manifest = asked.pop("manifest", None) or pytorch_job(name, gpus=gpus)
        manifest["metadata"].setdefault("annotations", {})["rung.dev/run-seconds"] = asked.pop("seconds", "86400")
        spec = spec_of(manifest, namespace=project.namespace, **asked)
        return submit(spec=spec, project=project, actor=actor)

    def settle(self, rounds: int = 3, *, seconds: float = 1) -> None:
        """Reconcile, then that many rounds of: workers, a tick, a look."""
        self.now = max(self.now, datetime.now(tz=UTC))
        reconcile(self.cluster)
        for _ in range(rounds):
            drain()
            self.now += timedelta(seconds=seconds)
            tick(self.cluster, now=self.now)
            self.look()

    def look(self) -> None:
        """What the observer does."""
        observe_cluster(Cluster.objects.get(pk=self.cluster.pk))


def configure(lab: Lab, text: str) -> None:
    """Volcano's configuration on the cluster."""
    gateway, metadata = SandboxGateway(lab.cluster), {"name": CONF.name, "namespace": CONF.namespace}
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONF.namespace}})
    gateway.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}})


def fresh(workload: Workload) -> Workload:
    """The row as it is now, with what stands around it."""
    rows = Workload.objects.select_related("project__cluster", "project__department", "type", "priority")
    return rows.get(pk=workload.pk)


def made(lab: Lab, workload: Workload, kind: Kind | None = None) -> Manifest | None:
    """The workload's own object, or what stands beside it."""
    manifest = fresh(workload).spec
    known = kind_for(manifest["api_version"], manifest["manifest"]["kind"])
    assert known is not None
    ref = ObjectRef(kind or kind_of_workload(known), object_name(workload), workload.project.namespace)
    return SandboxGateway(lab.cluster).get(ref)
