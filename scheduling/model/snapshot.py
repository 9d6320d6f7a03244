"""A snapshot of one cluster: nodes, queues and pod groups at one moment. Immutable; larger time stamps are younger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Final

from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources
from scheduling.model.taints import Taint, Toleration

NO_GUARANTEE: Final = Limit(gpu=0)
DEFAULT_RANK: Final = 100


class Strategy(StrEnum):
    """How a node pool fills its nodes."""

    BINPACK = "binpack"
    SPREAD = "spread"


class QueuePreemptionPolicy(StrEnum):
    """Whom a queue's workloads may evict, in Kueue's words. Newer: created after the one that wants to start."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A node of one node pool. `order` breaks ties between otherwise equal nodes. max_pods: None is no limit."""

    name: str
    pool: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    order: int = 0
    max_pods: int | None = None
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """A project's or department's share of one node pool. Names are unique across pools.

    deserved: guaranteed; None in a dimension is unlimited. rank: a higher one gets surplus first (KAI queue priority).
    preempts, reclaims, reclaims_over_quota: Kueue's withinClusterQueue, reclaimWithinCohort and borrowWithinCohort
    (Never or LowerPriority), with the values that Rung writes; other schedulers ignore them.
    reclaimable: may other queues take from it what is over its deserved (Volcano asks)?
    preempt_min_runtime, reclaim_min_runtime: how long its work has run at least before it may be taken, in the unit of
    the time stamps; None: the queue above says (KAI asks).
    """

    name: str
    parent: str | None = None
    pool: str = "default"
    deserved: Limit = NO_GUARANTEE
    limit: Limit = UNLIMITED
    weight: int = 1
    rank: int = DEFAULT_RANK
    created: int = 0
    preempts: QueuePreemptionPolicy = QueuePreemptionPolicy.LOWER
    reclaims: QueuePreemptionPolicy = QueuePreemptionPolicy.ANY
    reclaims_over_quota: QueuePreemptionPolicy = QueuePreemptionPolicy.NEVER
    reclaimable: bool = True
    preempt_min_runtime: int | None = None
    reclaim_min_runtime: int | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod; `node` is None while it waits. A terminating pod still holds its room, but is about to free it.

    nominated: the node on which somebody was evicted for it (kube-scheduler's nominatedNodeName).
    started: when this pod started; None: when its group did.
    device: which shared GPU of its node it has a part of; empty: it shares none, or which is not known.
    """

    name: str
    requests: Resources
    node: str | None = None
    terminating: bool = False
    nominated: str | None = None
    started: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What starts together: at least `min_member` pods at once, the rest when there is room.

    `name` is unique in a snapshot. preemptible: may the scheduler evict it. never_preempts: its PriorityClass says
    Never (kube-scheduler obeys, KAI ignores it). started: when its pods started; None while it waits.
    topology: all its pods on nodes with the same value of this label (kube with gangs, KAI, Kueue, Volcano).
    Of kube-scheduler with gangs: gang: it is a PodGroup of scheduling.k8s.io, decided about as one; whole: its
    disruptionMode is PodGroup, evicted whole or not at all.
    placement: its own pods on few nodes or on many, whatever the pool's strategy is (soft affinity of pods); kin: pods
    of groups of the same kin count as its own; empty: only those of the group.
    min_runtime: how long its pods have run at least before they may be taken, whoever wants the room, in the unit of
    the time stamps (Volcano, where it is configured to ask).
    let_in: when a queue of jobs let it in, where its scheduler says so: it may have waited for a node since (Kueue).
    made: all its pods exist, and a ResourceQuota counts them from then on until they are gone (kube); else whoever
    waits asks it first.
    """

    name: str
    queue: str
    namespace: str
    priority: int
    preemptible: bool
    pods: tuple[Pod, ...]
    min_member: int = 1
    started: int | None = None
    created: int = 0
    pool: str = "default"
    never_preempts: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    gang: bool = False
    topology: str | None = None
    whole: bool = False
    placement: Strategy | None = None
    kin: str = ""
    min_runtime: int = 0
    let_in: int | None = None
    made: bool = False

    @property
    def waiting(self) -> tuple[Pod, ...]:
        """Pods without a node."""
        return tuple(pod for pod in self.pods if pod.node is None)

    @property
    def holding(self) -> tuple[Pod, ...]:
        """Pods on a node that are not on their way out."""
        return tuple(pod for pod in self.pods if pod.node is not None and not pod.terminating)

    @property
    def total(self) -> Resources:
        """What all its pods ask for."""
        return total(self.pods)

    @property
    def age_key(self) -> int:
        """When it was let in or else started, else when it was created."""
        return next((each for each in (self.let_in, self.started) if each is not None), self.created)


def total(pods: tuple[Pod, ...]) -> Resources:
    """Sum of the requests."""
    return sum((pod.requests for pod in pods), ZERO)


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision may depend on. Raises ValueError when two nodes, queues or pod groups share a name.

    now: the moment of the decision, for what has to have lasted; None: nothing has to.
    leaves_out: causes of evictions that the scheduler's configuration does not have (`decisions.Cause`), and
    `decisions.BELOW_MINIMUM` where nothing is preempted below its minimum.
    levels: of each pool's topology the node labels, widest first, where the scheduler goes by them (KAI, Kueue): a
    domain is then a path of values, of nodes that carry all of the labels.
    """

    nodes: tuple[SnapshotNode, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    now: int | None = None
    leaves_out: frozenset[str] = frozenset()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, named in (("node", self.nodes), ("queue", self.queues), ("pod group", self.groups)):
            names = [item.name for item in named]
            if len(set(names)) != len(names):
                twice = sorted({name for name in names if names.count(name) > 1})
                raise ValueError(f"more than one {what} is named {', '.join(twice)}")

    @cached_property
    def queue_by_name(self) -> Mapping[str, Queue]:
        return MappingProxyType({queue.name: queue for queue in self.queues})

    @cached_property
    def group_by_name(self) -> Mapping[str, PodGroup]:
        return MappingProxyType({group.name: group for group in self.groups})

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """SnapshotNode pools that have nodes, queues or pod groups, in order of appearance."""
        named = ((node.pool for node in self.nodes), (queue.pool for queue in self.queues))
        return tuple(dict.fromkeys(chain(*named, (group.pool for group in self.groups))))

    @cached_property
    def parents(self) -> frozenset[str]:
        """Queues that have children: they hold quota, but no workload."""
        return frozenset(queue.parent for queue in self.queues if queue.parent is not None)

    def shard(self, pool: str) -> "Snapshot":
        """The part of one node pool: schedulers with shards never look beyond it."""
        return Snapshot(
            nodes=tuple(node for node in self.nodes if node.pool == pool),
            queues=tuple(queue for queue in self.queues if queue.pool == pool),
            groups=tuple(group for group in self.groups if group.pool == pool),
            strategies=self.strategies,
            now=self.now,
            leaves_out=self.leaves_out,
            levels=self.levels,
        )

    def with_groups(self, groups: Iterable[PodGroup]) -> "Snapshot":
        """The same cluster with more pod groups; those of the same names are replaced."""
        more = {group.name: group for group in groups}
        others = (other for other in self.groups if other.name not in more)
        return replace(self, groups=(*others, *more.values()))
