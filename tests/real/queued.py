"""A control plane on which Kueue runs, and the jobs that are put to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clusters.flavours.registry import FLAVOURS
from clusters.ports.gateway import Kind, Manifest
from tenants.organisation.models import Project
from tests.clusters.watch.streaming import Watching
from tests.factories.tenants import GPU
from tests.real.product import PATIENCE, Product, fresh
from tests.support.kube import KubeError
from tests.support.lab import LabCluster, own_cluster
from tests.support.processes import eventually
from workloads.state.models import Workload


@contextmanager
def with_kueue(*options: str) -> Iterator[LabCluster]:
    """A control plane on which Kueue runs, with these further options of `lab/cluster up`."""
    with own_cluster("--kueue", *options, flavour="kueue") as cluster:
        eventually(lambda: all(is_listed(cluster, kind) for kind in FLAVOURS["kueue"].kinds()), seconds=30)
        yield cluster


def is_listed(cluster: LabCluster, kind: Kind) -> bool:
    """A server initializes the storage of a kind a moment after the kind is there."""
    try:
        cluster.admin.list(kind)
    except KubeError as error:
        if error.status != 429:
            raise
        return False
    return True


def a_job(name: str, *, pods: int = 1, grace: int = 1) -> Manifest:
    """A Job whose pods take a node each, and run until they are ended. `grace`: seconds."""
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def two_projects(product: Product, *, deserved: int = 8) -> tuple[Project, Project]:
    """Of one department, which deserves no more than they do: so many GPUs each."""
    product.department.quotas.update(gpu_deserved=2 * deserved * GPU)
    projects = product.project("one", deserved=deserved), product.project("two", deserved=deserved)
    product.reconcile()
    return projects


def in_phase(workload: Workload, phase: str, reason: str = "") -> Callable[[], bool]:
    def is_so() -> bool:
        found = fresh(workload)
        return found.phase == phase and found.phase_reason == reason

    return is_so


def running(product: Product, watching: Watching, project: Project, manifest: Manifest, *, priority: str) -> Workload:
    """A workload that Kueue has let go."""
    workload = product.submit(project, manifest, priority=priority, preemptibility="preemptible")
    watching.until(in_phase(workload, "Running"), seconds=PATIENCE)
    return workload
