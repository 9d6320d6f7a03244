"""The whole product on a real control plane: reconcile, apply, look, each when the test says so."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.connection.models import ClusterCredential
from clusters.connection.rules.rights import manifests_for
from clusters.connection.services.gateways import encrypt_connection, forget_gateways, gateway_for
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import POOL_LABEL
from clusters.ports.connection import Connection
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import NAMESPACE, NODE, POD, RESOURCE_QUOTA, kind_of, ref_of
from clusters.sync.services.reconcile import reconcile
from clusters.watch.models import ObserverLease
from clusters.watch.services.informers import observe_cluster
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Department, Project
from tests.factories.clusters import NodePoolFactory, build_cluster
from tests.factories.tenants import GPU, DepartmentFactory, DepartmentQuotaFactory, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import spec_of
from tests.support.kube import KubeClient, KubeError
from tests.support.lab import ACCOUNT, POOL, LabCluster, own_cluster
from tests.support.lab import NAMESPACE as SYSTEM_NAMESPACE
from tests.support.processes import eventually
from workloads.lifecycle.services.actions import stop
from workloads.lifecycle.services.apply import apply
from workloads.state.models import Phase, Workload
from workloads.state.selectors.workloads import object_name
from workloads.submission.services import submit

CRDS = Path(__file__).parents[2] / "lab" / "crds"
OPERATORS = ("kubeflow.org", "jobset.x-k8s.io", "ray.io", "serving.kserve.io")
PATIENCE = 60.0


def cluster_with_operators() -> AbstractContextManager[LabCluster]:
    """A control plane of its own that serves every kind a tenant may submit; no operator runs in it."""
    return _serving(*sorted(CRDS.glob("*.yaml")))


def cluster_with_schedulers() -> AbstractContextManager[LabCluster]:
    """A control plane that serves the queues of KAI and Volcano, and some kinds of workloads; neither runs in it."""
    schedulers = [CRDS / "schedulers" / f"{name}.yaml" for name in ("kai", "volcano")]
    return _serving(*schedulers, *(CRDS / f"{name}.yaml" for name in OPERATORS))


@contextmanager
def _serving(*files: Path) -> Iterator[LabCluster]:
    with own_cluster() as cluster:
        crds = [crd for file in files for crd in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
        for crd in crds:
            cluster.admin.apply(crd, manager="lab")
        for crd in crds:
            ref = cluster.admin.ref(crd)
            cluster.admin.wait_until(ref, lambda found: "Established" in str(found.get("status")))
        eventually(lambda: all(_listed(cluster.admin, crd["spec"]) for crd in crds), seconds=30)
        yield cluster


def _listed(admin: KubeClient, spec: Manifest) -> bool:
    """A kind is established a moment before the server can list it."""
    group, version, names = spec["group"], spec["versions"][0]["name"], spec["names"]
    try:
        admin.list(Kind(group, version, names["kind"], names["plural"], namespaced=False))
    except KubeError as error:
        if error.status != 429:
            raise
        return False
    return True


def grant(lab: LabCluster, flavour: str, *, beside: str = "") -> None:
    """The least rights for this flavour, or for going from one to another."""
    for manifest in manifests_for(flavour, beside=beside, namespace=SYSTEM_NAMESPACE, account=ACCOUNT):
        lab.admin.apply(manifest, manager="lab")


class Product:
    """One registered cluster with the pool of the lab's nodes, and its people's side."""

    def __init__(self, lab: LabCluster, mark: str, flavour: str = "kube") -> None:
        forget_gateways()
        self.admin: KubeClient = lab.admin
        self.mark = mark
        self.cluster: Cluster = build_cluster(name=f"real-{mark}", flavour=flavour, backend="kubernetes")
        row = ClusterCredential(cluster=self.cluster)
        encrypt_connection(row, Connection(lab.server, ca=lab.ca, token=lab.token), expires_at=None)
        row.save()
        self.pool: NodePool = NodePoolFactory(cluster=self.cluster, name=POOL, is_default=True)
        self.department: Department = DepartmentFactory(cluster=self.cluster, name=f"department-{mark}")
        DepartmentQuotaFactory(department=self.department, node_pool=self.pool, gpu_deserved=64 * GPU)

    actor = SYSTEM

    @property
    def gateway(self) -> KubernetesGateway:
        """The product's own way to the cluster."""
        gateway = gateway_for(self.cluster)
        assert isinstance(gateway, KubernetesGateway)
        return gateway

    def project(self, name: str, *, deserved: int = 8, limit: int | None = None, **fields: Any) -> Project:
        """A project with its quota; `reconcile` brings its namespace."""
        project: Project = ProjectFactory(department=self.department, name=f"{name}-{self.mark}", **fields)
        bounds = {"gpu_deserved": deserved * GPU, "gpu_limit": None if limit is None else limit * GPU}
        ProjectQuotaFactory(project=project, node_pool=self.pool, **bounds)
        return project

    def reconcile(self) -> None:
        """Everything the database wants is in the cluster; namespaces take pods, and their quotas count them.

        Of all owners: a test that writes rows without a service marks none, and a run may look only at the marked ones.
        """
        Cluster.objects.filter(pk=self.cluster.pk).update(resync_due_at=None)
        run = reconcile(Cluster.objects.get(pk=self.cluster.pk))
        assert run.failed == 0, [outcome.message for outcome in run.outcomes.all()]
        account = self.admin.ref({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).kind
        for namespace in Project.objects.filter(cluster=self.cluster).values_list("namespace", flat=True):
            self.admin.wait_until(ObjectRef(account, "default", namespace))
            for quota in self.admin.list(RESOURCE_QUOTA, namespace=namespace):
                self.admin.wait_until(ref_of(quota), lambda found: found.get("status", {}).get("hard"))

    def submit(self, project: Project, manifest: Manifest, *, actor: Actor = SYSTEM, **requested: Any) -> Workload:
        """Through the service, and handed to the cluster by a worker."""
        spec = spec_of(manifest, namespace=project.namespace, **requested)
        workload = submit(spec=spec, project=project, actor=actor)
        self.apply(workload)
        return workload

    def apply(self, workload: Workload) -> None:
        """What a worker does when the row is due."""
        Workload.objects.filter(pk=workload.pk).update(due_at=workload.created_at)
        apply(workload.pk)

    def look(self) -> None:
        """What the observer does, by lists: forty watches that do not wait would take seconds."""
        ObserverLease.objects.filter(cluster=self.cluster).update(versions={})
        observe_cluster(Cluster.objects.get(pk=self.cluster.pk))

    def until(self, workload: Workload, wanted: Callable[[Workload], object], *, work: bool = False) -> Workload:
        """Look until the workload's row is as wanted; `work`: workers bring due rows about meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.look()
            if work:
                self.apply(workload)
            if wanted(found := fresh(workload)):
                return found
            time.sleep(0.2)
        said = f"{found.phase} {found.phase_reason}: {found.phase_message} {found.apply_error}"
        raise AssertionError("\n".join([said, *self.everyone()]))

    def stop(self, workload: Workload) -> None:
        """Stop it, until its GPUs are free."""
        stop(workload=fresh(workload), actor=self.actor)
        self.apply(workload)
        self.until(workload, lambda row: row.phase == Phase.STOPPED and not row.allocated_gpu_milli)

    def ref_to(self, workload: Workload) -> ObjectRef:
        """Where the workload's own object is."""
        kind = kind_of(workload.spec["manifest"])
        return ObjectRef(kind, object_name(workload), workload.project.namespace)

    def object_of(self, workload: Workload) -> Manifest | None:
        """The workload's live object."""
        return self.admin.get(self.ref_to(workload))

    def pods_of(self, workload: Workload) -> list[Manifest]:
        """Its live pods."""
        label = f"rung.dev/owner=workload.{workload.pk}"
        return self.admin.list(POD, namespace=workload.project.namespace, labels=label)

    def everyone(self) -> list[str]:
        """A line per pod of the whole cluster: who holds what a waiting one needs."""
        return [_line(pod) for pod in self.admin.list(POD)]

    def end(self, *kinds: Kind) -> None:
        """Take the namespaces away, pods and these kinds at once: the next test has the lab's nodes to itself."""
        for namespace in Project.objects.filter(cluster=self.cluster).values_list("namespace", flat=True):
            self.admin.delete(ObjectRef(NAMESPACE, namespace))
        for kind in (POD, *kinds):
            self._clear(kind)
        for node in self.admin.list(NODE, labels=f"{POOL_LABEL}!={POOL}"):
            self.admin.delete(ref_of(node))
        forget_gateways()

    def _clear(self, kind: Kind) -> None:
        deadline = time.monotonic() + PATIENCE
        while left := self.admin.list(kind):
            assert time.monotonic() < deadline, "\n".join([f"{kind.plural} stay:", *self.everyone()])
            for each in left:
                self._take(ref_of(each))
            time.sleep(0.1)

    def _take(self, ref: ObjectRef) -> None:
        """Also one whose job went with the namespace: the Job controller may leave its finalizer there."""
        with suppress(KubeError):  # gone in between
            self.admin.patch(ref, {"metadata": {"finalizers": None}})
        self.admin.delete(ref, grace=0)


def _line(pod: Manifest) -> str:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    waits = status.get("nominatedNodeName") and f"nominated to {status['nominatedNodeName']}"
    leaves = metadata.get("deletionTimestamp") and f"leaving since {metadata['deletionTimestamp']}"
    where = spec.get("nodeName", "nowhere")
    said = (status.get("phase"), where, spec.get("priority"), waits, leaves, metadata.get("finalizers"))
    return " ".join(str(word) for word in (f"{metadata['namespace']}/{metadata['name']}", *said) if word)


def fresh(workload: Workload) -> Workload:
    """The row as it is now."""
    rows = Workload.objects.select_related("project__cluster", "project__department", "type", "priority")
    return rows.get(pk=workload.pk)


def quick(manifest: Manifest) -> Manifest:
    """The same with one second of grace."""
    for spec in _pod_specs(manifest):
        spec["terminationGracePeriodSeconds"] = 1
    return manifest


def _pod_specs(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for child in node.values():
            yield from _pod_specs(child)
