"""What every flavour writes alike: namespaces and PriorityClasses, names of queues, sums of quotas."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from clusters.ownership import owned
from clusters.ports import DesiredState, Kind, Manifest, PoolSpec, PriorityLevel, ProjectSpec
from clusters.topologies import told_levels

POOL: Final = "rung.dev/node-pool"
TOPOLOGY_KEY: Final = "rung.dev/topology-key"
"""Annotation of a workload: a node label; the whole gang runs on nodes with one value of it."""
PLACEMENT: Final = "rung.dev/placement"
"""Annotation of a workload: `binpack` keeps its pods on few nodes, `spread` on as many as there are."""
PLACEMENTS: Final = ("binpack", "spread")
SECURITY_MODES: Final = ("enforce", "audit", "warn")
RANK_TO_PRIORITY: Final = {
    "very-low": 80,
    "low": 90,
    "medium-low": 100,
    "medium": 110,
    "medium-high": 120,
    "high": 130,
    "very-high": 140,
}


def priority_class(level: PriorityLevel, policy: str = "") -> Manifest:
    """scheduling.k8s.io/v1 PriorityClass, with this preemption policy instead of the entry's own.

    Never the global default: a pod that names none is not ours to rank.
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": owned(level.name, owner=level.owner, generation=level.generation),
        "value": level.value,
        "preemptionPolicy": policy or level.preemption_policy,
        "globalDefault": False,
        "description": level.description,
    }


def namespace(project: ProjectSpec) -> Manifest:
    """A project's namespace under the Pod Security level of its cluster."""
    labels = {**_pod_security(project.pod_security), "rung.dev/project": project.name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": owned(project.namespace, owner=project.owner, generation=project.generation, labels=labels),
    }


def _pod_security(level: str) -> dict[str, str]:
    """What the level forbids is refused, and warned of and audited alike."""
    sides = (("", level), ("-version", "latest"))
    return {f"pod-security.kubernetes.io/{mode}{side}": text for mode in SECURITY_MODES for side, text in sides}


def shared_objects(state: DesiredState, *, policy: str = "") -> Iterator[Manifest]:
    """PriorityClasses, all of this preemption policy where one is given, and namespaces."""
    yield from (priority_class(level, policy) for level in state.levels)
    yield from map(namespace, state.projects)


def topology(kind: Kind, name: str, pool: PoolSpec) -> Manifest:
    """A pool's levels, as both schedulers that have such an object take them."""
    levels = [{"nodeLabel": key} for key in told_levels(pool.topology_levels)]
    metadata = owned(name, owner=f"pool.{pool.name}", generation=0)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {"levels": levels}}


def queue_name(owner: str, pool: str) -> str:
    """`<owner>.<pool>`; pools hold no dot, so no two pairs share a name. Cut to a label's length with a digest."""
    name = f"{owner}.{pool}".lower()
    return name if len(name) <= 63 else f"{name[:52]}-{sha256(name.encode()).hexdigest()[:10]}"


def sum_or_unlimited(amounts: Iterable[int | None]) -> int | None:
    """The sum, or None (unlimited) as soon as one of them is."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
