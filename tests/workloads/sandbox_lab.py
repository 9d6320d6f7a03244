"""A sandbox cluster that the whole product works on: reconcile, apply, tick, observe, each when the test says so."""

from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.flavours.volcano_config import CONF, KEY
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import kind_of_workload
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services.simulation import SandboxGateway, tick
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services.informers import observe_cluster
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory, NodePoolFactory
from tests.factories.tenants import GPU, DepartmentFactory, DepartmentQuotaFactory, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import pytorch_job, spec_of
from workloads.lifecycle.services.apply_queue import drain
from workloads.state.models import Workload
from workloads.state.selectors.workloads import object_name
from workloads.submission.services import submit


class Lab:
    """One cluster with the pool h100 and its time."""

    def __init__(self, flavour: str = "kai", *, nodes: int = 1, name: str = "lab") -> None:
        self.cluster: Cluster = ClusterFactory(name=name, flavour=flavour, backend="sandbox")
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

    def submit(
        self, project: Project, name: str, *, gpus: int = 1, actor: Actor = SYSTEM, **requested: Any
    ) -> Workload:
        """A training of one pod, or what `manifest` says."""
        manifest = requested.pop("manifest", None) or pytorch_job(name, gpus=gpus)
        manifest["metadata"].setdefault("annotations", {})["rung.dev/run-seconds"] = requested.pop("seconds", "86400")
        spec = spec_of(manifest, namespace=project.namespace, **requested)
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
