"""Kueue: a ClusterQueue per project with one flavor per node pool, a Cohort per department; jobs are queued, not pods.

Sources: Kueue 0.19 (`kueue.x-k8s.io/v1beta2`). A job is created and Kueue alone holds it back or lets it go, so its
field `suspend` is never written here; a workload that is stopped is no object at all.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from clusters.flavours import kueue_capabilities, kueue_status
from clusters.flavours import objects as flavours_objects
from clusters.flavours.kueue_capabilities import GUARANTEES, QUEUED_WHOLE, guarantees_of, warnings_for
from clusters.flavours.kueue_status import VISIBILITY_API
from clusters.flavours.rendering import render_job
from clusters.ports.flavour import (
    DesiredState,
    Guarantee,
    JobSpec,
    PodStatusReason,
    PoolSpec,
    PriorityClassSpec,
    ProjectSpec,
    QueueSpec,
    SchedulerConfiguration,
    Traits,
)
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import (
    KUEUE_COHORT,
    KUEUE_FLAVOR,
    KUEUE_LOCAL_QUEUE,
    KUEUE_PRIORITY,
    KUEUE_QUEUE,
    KUEUE_TOPOLOGY,
    KUEUE_WORKLOAD,
    NAMESPACE,
    PRIORITY_CLASS,
    owned,
)
from clusters.ports.pod_templates import parts_in
from clusters.ports.workload_kinds import KINDS, kind_for
from scheduling.model.resources import Limit, decimal_text, per_dimension

ROOT: Final = "rung"
"""The cohort above all departments. It has no object: Kueue takes the name for one without a quota of its own."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
ANY_PLACES: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
"""Places on nodes, wherever they are: in a queue with other pools too, a flavor with a topology takes only who asks."""
GROUP: Final = "kueue.x-k8s.io/podset-group-name"
VERSION: Final = KUEUE_QUEUE.api_version
MOST: Final = Limit(gpu=10**9, cpu=10**9, memory=2**50)
"""What is unlimited: Kueue wants a number, and sums them in 64 bits."""
RESOURCES: Final = (("nvidia.com/gpu", "gpu"), ("cpu", "cpu"), ("memory", "memory"))
PREEMPTION: Final = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
    "borrowWithinCohort": {"policy": "Never"},
}
POD_POLICY: Final = "Never"
"""Preemption policy of every PriorityClass. Kueue evicts by the WorkloadPriorityClass and admits a preemptor while its
victims still have their grace period; pods that preempt as well would then evict the weakest pods of any project."""
SINGLY: Final = tuple(kind.name for kind in KINDS if kind.kind == "Deployment" or kind.kind not in QUEUED_WHOLE)
"""Types whose pods it queues one by one: a Deployment hands its queue on to each of them."""


class Kueue:
    """Kueue's dialect."""

    name: str = "kueue"
    title: str = "Kueue"
    preemptibilities: tuple[str, ...] = ("preemptible", "non-preemptible")
    traits: Traits = Traits(
        installed=KUEUE_QUEUE,
        simulated=True,
        queues_by_pool=True,
        weights="queue",
        root_above=True,
        sums_projects=True,
        queues_jobs=True,
        singly=SINGLY,
        placements=flavours_objects.PLACEMENTS,
        minimum="all",
        event_sources={KUEUE_WORKLOAD: kueue_status.workload_events},
        topologies=KUEUE_TOPOLOGY,
        fixed_topologies=True,
        inquiries=VISIBILITY_API,
        configuration=SchedulerConfiguration(
            kueue_capabilities.CONF,
            "kinds that Kueue manages, and its eviction settings",
            facts_of=kueue_capabilities.facts_of,
            warnings_of=kueue_capabilities.admin_warnings,
            guarantees_of=guarantees_of,
            cautions_of=kueue_capabilities.forecast_warnings,
            fair_sharing=kueue_capabilities.fair_sharing,
            assumption=kueue_capabilities.assumption,
            unmanaged=kueue_capabilities.unmanaged,
            kind_cautions_of=kueue_capabilities.kind_warnings,
            proposals=kueue_capabilities.PROPOSALS,
        ),
    )

    def kinds(self) -> Sequence[Kind]:
        return (
            PRIORITY_CLASS,
            NAMESPACE,
            KUEUE_PRIORITY,
            KUEUE_TOPOLOGY,
            KUEUE_FLAVOR,
            KUEUE_COHORT,
            KUEUE_QUEUE,
            KUEUE_LOCAL_QUEUE,
        )

    def objects_for(self, state: DesiredState) -> Iterable[Manifest]:
        """Classes, namespaces, a flavor per pool with its topology, a Cohort per department, queues per project."""
        yield from flavours_objects.shared_objects(state, policy=POD_POLICY)
        yield from map(_workload_class, state.priorities)
        yield from (
            flavours_objects.topology(KUEUE_TOPOLOGY, _flavor_name(each), each)
            for each in state.pools
            if each.topology_levels
        )
        yield from map(_flavor, state.pools)
        yield from _cohorts(state.departments)
        for project in state.projects:
            yield _cluster_queue(project)
            yield from (_local_queue(project, queue) for queue in project.queues)

    def queue_name(self, owner: str, pool: str) -> str:
        """Deterministic name of a LocalQueue, short enough for the label that names it on jobs."""
        return flavours_objects.queue_name(owner, pool)

    def render(self, job: JobSpec) -> list[Manifest]:
        """The workload's object in its queue; nothing where it is stopped, since `suspend` is Kueue's own."""
        if job.suspended:
            return []
        kind = kind_for(str(job.manifest["apiVersion"]), str(job.manifest["kind"]))
        mine = {QUEUE_LABEL: job.queue, PRIORITY_LABEL: job.priority_class}
        is_whole = kind is not None and kind.kind in QUEUED_WHOLE
        manifests = render_job(job, labels={} if is_whole else mine, annotations=_places(job))
        for manifest in manifests:
            manifest["metadata"]["labels"] |= mine
            _let_be(manifest, kind.suspend if kind else None)
        return manifests

    def interpret(self, pod: Manifest, events: Sequence[Manifest] = ()) -> PodStatusReason:
        """Evicted by which workload and how, waiting in which queue for how much, or admitted and without a node."""
        return kueue_status.interpret(pod, events)

    def guarantees(self) -> Sequence[Guarantee]:
        return GUARANTEES

    def cautions(self, *, value: int, preemptibility: str) -> Sequence[str]:
        """What Kueue will not keep for one workload."""
        return warnings_for(preemptibility=preemptibility)


def _places(job: JobSpec) -> dict[str, str]:
    """All pods on nodes with one value of a label. Two roles must be configured to share it; Kueue joins no more."""
    key = ((job.manifest.get("metadata") or {}).get("annotations") or {}).get(flavours_objects.TOPOLOGY_KEY)
    kind = kind_for(str(job.manifest["apiVersion"]), str(job.manifest["kind"]))
    if not key or kind is None:
        return {ANY_PLACES: "true"} if job.pool and job.pool.topology_levels else {}
    shared = {GROUP: "all"} if len(parts_in(job.manifest, kind)) > 1 else {}
    return {REQUIRED_TOPOLOGY: key, **shared}


def _let_be(manifest: Manifest, pointer: str | None) -> None:
    """Take out what holds the job back: it is for Kueue to write."""
    if pointer:
        *above, last = pointer.split("/")[1:]
        node: Any = manifest
        for step in above:
            node = node.get(step) or {}
        node.pop(last, None)


def _workload_class(priority: PriorityClassSpec) -> Manifest:
    return {
        "apiVersion": VERSION,
        "kind": KUEUE_PRIORITY.kind,
        "metadata": owned(priority.name, owner=priority.owner, generation=priority.generation),
        "value": priority.value,
        "description": priority.description,
    }


def _flavor(pool: PoolSpec) -> Manifest:
    """A pool has no generation: whatever changes in it is a reason to look at everything."""
    return {
        "apiVersion": VERSION,
        "kind": KUEUE_FLAVOR.kind,
        "metadata": owned(_flavor_name(pool), owner=f"pool.{pool.name}", generation=0),
        "spec": {
            "nodeLabels": {pool.label_key: pool.label_value},
            **({"topologyName": _flavor_name(pool)} if pool.topology_levels else {}),
        },
    }


def _flavor_name(pool: PoolSpec) -> str:
    """Of its topology too. A flavor that has one never changes: with other levels or another label it is another."""
    name = pool.name.lower()
    return f"{name}.{pool.topology_revision}" if pool.topology_revision else name


def _cohorts(departments: Iterable[QueueSpec]) -> Iterable[Manifest]:
    """One per department: what it deserves beyond its projects, since theirs adds up to it."""
    pools: dict[str, list[QueueSpec]] = {}
    for queue in departments:
        pools.setdefault(queue.owner, []).append(queue)
    for owner, queues in pools.items():
        bounds = [(queue.pool, *_department_bounds(queue)) for queue in queues]
        yield {
            "apiVersion": VERSION,
            "kind": KUEUE_COHORT.kind,
            "metadata": owned(owner, owner=owner, generation=queues[0].generation),
            "spec": {"parentName": ROOT, "resourceGroups": _groups(bounds), "fairSharing": _fair_weight(queues)},
        }


def _cluster_queue(project: ProjectSpec) -> Manifest:
    spec: dict[str, Any] = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": project.namespace}},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": PREEMPTION,
    }
    if project.queues:
        spec["resourceGroups"] = _groups([(queue.pool, *_project_bounds(queue)) for queue in project.queues])
        spec["fairSharing"] = _fair_weight(project.queues)
    if cohort := next((_owner_in(queue.parent) for queue in project.queues if queue.parent), ""):
        spec["cohortName"] = cohort
    return {
        "apiVersion": VERSION,
        "kind": KUEUE_QUEUE.kind,
        "metadata": owned(project.owner, owner=project.owner, generation=project.generation),
        "spec": spec,
    }


def _fair_weight(queues: Iterable[QueueSpec]) -> dict[str, str]:
    """One for all pools; it counts where fair sharing is on."""
    return {"weight": str(flavours_objects.plain_number(max(queue.over_quota_weight for queue in queues)))}


def _local_queue(project: ProjectSpec, queue: QueueSpec) -> Manifest:
    """One per pool, all of one ClusterQueue: the pool's node selector on a job chooses the flavor."""
    metadata = owned(queue.name, owner=project.owner, generation=project.generation, namespace=project.namespace)
    return {
        "apiVersion": VERSION,
        "kind": KUEUE_LOCAL_QUEUE.kind,
        "metadata": metadata,
        "spec": {"clusterQueue": project.owner},
    }


def _owner_in(queue: str) -> str:
    """`department.7` in the name of one of its queues."""
    return ".".join(queue.split(".")[:2])


def _project_bounds(queue: QueueSpec) -> tuple[Limit, Limit]:
    """What it deserves, at most its limit; and what it may borrow beyond."""
    nominal = per_dimension(_at_most, queue.deserved, queue.limit)
    return nominal, per_dimension(_rest, queue.limit, nominal)


def _department_bounds(queue: QueueSpec) -> tuple[Limit, Limit]:
    """What it deserves beyond its projects, and what all of it may borrow beyond what it and they deserve."""
    own = per_dimension(_at_most, queue.deserved, queue.limit)
    spare = per_dimension(_beyond, own, queue.promised)
    return spare, per_dimension(_rest, queue.limit, per_dimension(_larger, own, queue.promised))


def _at_most(amount: int | None, limit: int | None) -> int | None:
    return limit if amount is None else amount if limit is None else min(amount, limit)


def _rest(limit: int | None, used: int | None) -> int | None:
    """None: no bound."""
    return None if limit is None else max(limit - used, 0) if used is not None else 0


def _beyond(amount: int | None, used: int | None) -> int | None:
    return 0 if used is None else None if amount is None else max(amount - used, 0)


def _larger(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _groups(bounds: Sequence[tuple[PoolSpec, Limit, Limit]]) -> list[dict[str, Any]]:
    """One group of the three resources with a flavor per pool."""
    flavors = [{"name": _flavor_name(pool), "resources": _amounts(*both)} for pool, *both in bounds]
    return [{"coveredResources": [name for name, _ in RESOURCES], "flavors": flavors}]


def _amounts(nominal: Limit, borrowing: Limit) -> list[dict[str, str]]:
    found = []
    for name, part in RESOURCES:
        amount, more = getattr(nominal, part), getattr(borrowing, part)
        entry = {"name": name, "nominalQuota": _text(name, getattr(MOST, part) if amount is None else amount)}
        if more is not None:
            entry["borrowingLimit"] = _text(name, more)
        found.append(entry)
    return found


def _text(resource: str, amount: int) -> str:
    """Bytes as they are; GPUs and cores whole or in thousandths."""
    if resource == "memory":
        return str(amount)
    return decimal_text(amount) if amount % 1000 == 0 else f"{amount}m"
