"""An organisation of many projects in the database, its cluster, and the very objects Rung wants there."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plane import Plane
from clusters.connection.services.gateways import forget_gateways
from clusters.connection.services.registration import register_cluster
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest
from clusters.ports.objects import NAMESPACE, PRIORITY_CLASS, stamped
from clusters.sync.models import SyncRun
from clusters.sync.selectors import desired_state
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Department, Project
from tenants.quotas.models import PriorityCap, ProjectQuota

FIRST = (PRIORITY_CLASS.kind, NAMESPACE.kind)


def organisation(cluster: Cluster, projects: int, pools: int = 1) -> None:
    """That many projects, each with a limit and a deserved quota in each pool, and two caps.

    kube writes 6 objects for each: namespace, default requests, four quotas. With queues by pool it takes 5 pools to
    write as many (KAI, Volcano: a queue in each, and the namespace), or 4 (Kueue: a queue over all pools besides).
    """
    names = [f"h{100 * (number + 1)}" for number in range(pools)]
    made = NodePool.objects.bulk_create(
        NodePool(cluster=cluster, name=name, label_value=name, is_default=name == names[0]) for name in names
    )
    department = Department.objects.create(cluster=cluster, name=f"bench-{cluster.name}")
    rows = Project.objects.bulk_create(
        Project(department=department, cluster=cluster, name=name, namespace=f"runai-{name}")
        for name in (f"{cluster.name}-p{number}" for number in range(projects))
    )
    ProjectQuota.objects.bulk_create(
        ProjectQuota(project=row, node_pool=pool, gpu_deserved=4000, gpu_limit=8000) for row in rows for pool in made
    )
    PriorityCap.objects.bulk_create(
        PriorityCap(project=row, priority=name, gpu_limit=2000) for row in rows for name in ("high", "very-high")
    )


def registered(plane: Plane, projects: int, name: str = "bench", *, flavour: str = "kube", pools: int = 1) -> Cluster:
    """The API server taken into the estate as an admin would, with its projects."""
    forget_gateways()
    plane.learn(flavour)
    source = plane.kubeconfig.read_bytes()
    cluster, _report = register_cluster(name=name, flavour=flavour, source=source, actor=SYSTEM)
    organisation(cluster, projects, pools)
    return cluster


def wanted(cluster: Cluster) -> list[Manifest]:
    """Every object as Rung writes it, what others stand on first."""
    found = [stamped(each) for each in flavour_for(cluster.flavour).objects_for(desired_state(cluster))]
    return sorted(found, key=lambda each: FIRST.index(each["kind"]) if each["kind"] in FIRST else len(FIRST))


def as_file(manifests: Sequence[Manifest], folder: Path) -> Path:
    """One file of many documents, as `kubectl apply -f` takes it."""
    file = folder / "all.yaml"
    file.write_text("\n---\n".join(json.dumps(each) for each in manifests))
    return file


def check(run: SyncRun, *, written: int) -> None:
    """A run that did something else than it should is no measurement."""
    if (run.state, run.written, run.failed) != ("succeeded", written, 0):
        failures = list(run.outcomes.filter(ok=False).values_list("kind", "name", "message")[:3])
        raise RuntimeError(f"{run.state}: {run.written} written, {run.failed} failed, {run.error} {failures}")
