"""Pure builders: the smallest sensible value of each kind, GPUs as plain numbers. No database, no clock."""

from collections.abc import Mapping
from typing import Final

from scheduling.model.resources import Amount, Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode
from scheduling.state.queue_usage import QueueUsage
from workloads.dictionary.rules.resolution import Dictionary, PriorityEntry

RUNAI_VALUES: Final = {
    "very-low": 25,
    "low": 40,
    "medium-low": 65,
    "medium": 80,
    "medium-high": 90,
    "high": 125,
    "very-high": 150,
}
RUNAI: Final = Dictionary(PriorityEntry(name, value) for name, value in RUNAI_VALUES.items())


def node(
    name: str, gpus: Amount = 8, *, pool: str = "default", order: int = 0, max_pods: int | None = None, **labels: str
) -> SnapshotNode:
    """A ready node with GPUs and no end of CPU and memory."""
    capacity = Resources.of(gpu=gpus, cpu=1000, memory="16Ti")
    return SnapshotNode(name, pool, capacity, labels=labels, order=order, max_pods=max_pods)


def queue(  # one keyword per quota field
    name: str,
    parent: str | None = None,
    *,
    deserved: Amount | None = 0,
    limit: Amount | None = None,
    weight: int = 1,
    rank: int = 100,
    created: int = 0,
    pool: str = "default",
) -> Queue:
    """A queue whose quota and limit speak of GPUs only."""
    return Queue(
        name, parent, pool, Limit.of(gpu=deserved), Limit.of(gpu=limit), weight=weight, rank=rank, created=created
    )


def gang(  # one keyword per property a test may care about
    name: str,
    *,
    gpus: Amount = 1,
    pods: int = 1,
    min_member: int | None = None,
    queue: str = "team",
    priority: str | int = "medium",
    preemptible: bool | None = None,
    nodes: tuple[str, ...] = (),
    terminating: bool = False,
    nominated: str | None = None,
    started: int | None = None,
    created: int = 0,
    pool: str = "default",
    namespace: str = "team",
    never: bool = False,
    node_selector: Mapping[str, str] | None = None,
) -> PodGroup:
    """A pod group of equal pods, the first of them on `nodes`. Preemptible follows the threshold if unsaid."""
    value = RUNAI_VALUES[priority] if isinstance(priority, str) else priority
    requests = Resources.of(gpu=gpus)
    places = (*nodes, *[None] * (pods - len(nodes)))
    return PodGroup(
        name=name,
        queue=queue,
        namespace=namespace,
        priority=value,
        preemptible=value < 100 if preemptible is None else preemptible,
        pods=tuple(
            Pod(f"{name}-{index}", requests, place, terminating=terminating and place is not None, nominated=nominated)
            for index, place in enumerate(places)
        ),
        min_member=len(places) if min_member is None else min_member,
        started=started,
        created=created,
        pool=pool,
        never_preempts=never,
        node_selector=node_selector or {},
    )


def running(
    name: str,
    on: str,
    *,
    gpus: Amount = 1,
    queue: str = "team",
    priority: str | int = "medium",
    preemptible: bool | None = None,
    start: int = 0,
    namespace: str = "team",
    pool: str = "default",
) -> PodGroup:
    """A pod group of one running pod; `start` is both its creation and its start."""
    return gang(
        name,
        gpus=gpus,
        queue=queue,
        priority=priority,
        preemptible=preemptible,
        nodes=(on,),
        started=start,
        created=start,
        namespace=namespace,
        pool=pool,
    )


def snapshot(*items: SnapshotNode | Queue | PodGroup) -> Snapshot:
    """A cluster of these nodes, queues and pod groups."""
    return Snapshot(
        nodes=tuple(item for item in items if isinstance(item, SnapshotNode)),
        queues=tuple(item for item in items if isinstance(item, Queue)),
        groups=tuple(item for item in items if isinstance(item, PodGroup)),
    )


def usage(*, used: Amount = 0, non_preemptible: Amount = 0) -> QueueUsage:
    """GPUs in use; the non-preemptible ones are part of them."""
    return QueueUsage(Resources.of(gpu=used) + Resources.of(gpu=non_preemptible), Resources.of(gpu=non_preemptible))
