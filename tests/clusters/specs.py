"""Specs and manifests in the fewest words: priority("high", 125), project("vision", deserved=4), state(...)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.inventory.models import Cluster
from clusters.ports.flavour import DesiredState, JobSpec, PoolSpec, PriorityClassSpec, ProjectSpec, QueueSpec
from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import FoundPart, TemplateShape, WorkloadKind, parts_in
from clusters.sync.rules.changes import in_waves
from clusters.sync.rules.diff import Change
from scheduling.model.resources import Amount, Limit

POOL = PoolSpec("a100", "rung.dev/node-pool", "a100", is_default=True)
WORKLOAD = "0b0e5a3c-5f0c-4c39-8d5e-2f7f2c1a9d10"


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Changes one after another, in the order that is safe."""
    return [change for wave in in_waves(changes) for change in wave]


@dataclass
class Wanted:
    """A desired-state source whose answer the test sets."""

    state: DesiredState
    requested: list[str] = field(default_factory=list)

    def __call__(self, cluster: Cluster, *, owner: str = "") -> DesiredState:
        self.requested.append(cluster.name)
        return self.state


def priority(name: str, value: int, *, policy: str = "PreemptLowerPriority", generation: int = 1) -> PriorityClassSpec:
    """A dictionary entry."""
    return PriorityClassSpec(name, value, policy, f"Priority {name}", f"priority.{name}", generation)


def queue(
    owner: str,
    *,
    parent: str | None = "department.1",
    pool: PoolSpec = POOL,
    deserved: Amount | None = 4,
    limit: Amount | None = None,
    generation: int = 1,
    **fields: Any,
) -> QueueSpec:
    """A queue of an owner in a pool, GPUs only unless told."""
    return replace(
        QueueSpec(
            name=f"{owner}.{pool.name}",
            display_name=f"{owner} in {pool.name}",
            parent=f"{parent}.{pool.name}" if parent else None,
            pool=pool,
            deserved=Limit.of(gpu=deserved),
            limit=Limit.of(gpu=limit),
            over_quota_weight=2,
            rank="medium-low",
            owner=owner,
            generation=generation,
        ),
        **fields,
    )


def project(
    name: str, *, owner: str = "project.1", generation: int = 1, caps: dict[str, int] | None = None, **quota: Any
) -> ProjectSpec:
    """A project with one queue in the default pool."""
    leaf = queue(owner, generation=generation, **quota)
    return ProjectSpec(name, f"runai-{name}", (leaf,), caps or {}, owner, generation)


def state(
    *projects: ProjectSpec,
    priorities: tuple[PriorityClassSpec, ...] = (),
    departments: tuple[QueueSpec, ...] = (),
    pools: tuple[PoolSpec, ...] = (),
) -> DesiredState:
    """What one cluster should hold."""
    return DesiredState(priorities=priorities, departments=departments, projects=projects, pools=pools)


def pod_template(**spec: Any) -> dict[str, Any]:
    """A pod template of one container that Pod Security `restricted` admits."""
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never", **spec}}


def job_manifest(**metadata: Any) -> Manifest:
    """A batch/v1 Job as intake would have rebuilt it."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod_template()}}


def job(manifest: Manifest | None = None, **fields: Any) -> JobSpec:
    """A low-priority, preemptible job of project 1."""
    return replace(
        JobSpec(
            id=WORKLOAD,
            type_name="Job",
            name="train-0b0e5a3c",
            namespace="runai-vision",
            manifest=manifest or job_manifest(),
            priority_class="low",
            priority_value=40,
            preemptibility="preemptible",
            queue="project.1.a100",
            pool=POOL,
            min_member=1,
            generation=3,
        ),
        **fields,
    )


@dataclass(frozen=True)
class FoundTemplate:
    """A pod template of a manifest."""

    pointer: str
    template: dict[str, Any]
    replicas: int
    role: str


def templates_in(manifest: Manifest, kind: WorkloadKind) -> list[FoundTemplate]:
    """Every real pod template of a manifest with its pointer, replica count and role."""
    found: list[FoundPart] = [each for each in parts_in(manifest, kind) if each.shape is TemplateShape.TEMPLATE]
    return [FoundTemplate(each.pointer, dict(each.part), each.replicas, each.role) for each in found]
