"""A snapshot of one cluster: nodes, queues and pod groups at one moment. Immutable; larger time stamps are younger."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from scheduling.model.preemptibility import FairSharingStrategy, QueuePreemptionPolicy
from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources

NO_GUARANTEE: Final = Limit(gpu=0)
DEFAULT_RANK: Final = 100


class Strategy(StrEnum):
    """How a node pool fills its nodes."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods without a matching toleration away from its node. A mere preference is none."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a pod bears. `operator` Exists asks for no value; without key or effect any will do."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def bears(self, taint: Taint) -> bool:
        """True when this taint does not keep the pod away."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or self.value == taint.value


def welcome(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """May a pod with these tolerations come to a node with these taints?"""
    borne = tuple(tolerations)
    return all(any(each.bears(taint) for each in borne) for taint in taints)


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A node of one node pool. `order` breaks ties between otherwise equal nodes. max_pods: None is no limit.

    more: what it has beside, by resource name (ephemeral storage, devices by kind); never counted down.
    """

    name: str
    pool: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    order: int = 0
    max_pods: int | None = None
    taints: tuple[Taint, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A project's or department's share of one node pool. Names are unique across pools.

    deserved: guaranteed; None in a dimension is unlimited. rank: a higher one gets surplus first (KAI queue priority).
    weight: share of the surplus beside other queues of its rank. cpu_weight, memory_weight: None is the same.
    owner: whose share it is, of the queues of several pools; empty: it is the only one.
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
    cpu_weight: int | None = None
    memory_weight: int | None = None
    rank: int = DEFAULT_RANK
    created: int = 0
    owner: str = ""
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
    more: what every pod of it needs of a node's `more`.
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
    more: Mapping[str, int] = field(default_factory=dict)

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


class Derivation(NamedTuple):
    """A snapshot is another one without these pod groups, by name, and with those."""

    base: "Snapshot"
    gone: Collection[str]
    come: tuple[PodGroup, ...]


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision may depend on. Raises ValueError when two nodes, queues or pod groups share a name.

    now: the moment of the decision, for what has to have lasted; None: nothing has to.
    leaves_out: causes of evictions that the scheduler's configuration does not have (`decisions.Cause`), and
    `decisions.BELOW_MINIMUM` where nothing is preempted below its minimum.
    fair_sharing: Kueue's strategies in their order; none: its fair sharing is off.
    levels: of each pool's topology the node labels, widest first, where the scheduler goes by them (KAI, Kueue): a
    domain is then a path of values, of nodes that carry all of the labels.
    origin: what it was derived from, so that what is known of that need not be found out again.
    """

    nodes: tuple[SnapshotNode, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    now: int | None = None
    leaves_out: frozenset[str] = frozenset()
    fair_sharing: tuple[FairSharingStrategy, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Derivation | None = field(default=None, init=False, repr=False, compare=False)

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
    def group_by_name(self) -> MappingProxyType[str, PodGroup]:
        return MappingProxyType({group.name: group for group in self.groups})

    def group(self, name: str) -> PodGroup | None:
        """The pod group of this name, without a look at all of them where it is derived."""
        if self.origin is None:
            return self.group_by_name.get(name)
        base, gone, come = self.origin
        found = next((each for each in come if each.name == name), None)
        return base.group(name) if found is None and name not in gone else found

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """Node pools that have nodes, queues or pod groups, in order of appearance."""
        if self.origin is not None:
            base, _gone, come = self.origin
            return tuple(dict.fromkeys((*base.pools, *(group.pool for group in come))))
        named = ((node.pool for node in self.nodes), (queue.pool for queue in self.queues))
        return tuple(dict.fromkeys(chain(*named, (group.pool for group in self.groups))))

    @cached_property
    def parents(self) -> frozenset[str]:
        """Queues that have children: they hold quota, but no workload."""
        return frozenset(queue.parent for queue in self.queues if queue.parent is not None)

    @cached_property
    def waiting(self) -> tuple[PodGroup, ...]:
        """The pod groups that have a pod without a node, in their order."""
        if self.origin is None:
            return tuple(group for group in self.groups if _waits(group))
        base, gone, come = self.origin
        return (*(each for each in base.waiting if each.name not in gone), *filter(_waits, come))

    @cached_property
    def has_min_runtimes(self) -> bool:
        """Do pods of any group carry one?"""
        if self.origin is None:
            return any(group.min_runtime for group in self.groups)
        return self.origin.base.has_min_runtimes or any(group.min_runtime for group in self.origin.come)

    @cached_property
    def ending(self) -> tuple[PodGroup, ...]:
        """The pod groups that have a pod on its way out."""
        if self.origin is None:
            return tuple(group for group in self.groups if _ends(group))
        base, gone, come = self.origin
        return (*(each for each in base.ending if each.name not in gone), *filter(_ends, come))

    @cached_property
    def workspaces(self) -> dict[Hashable, Any]:
        """What rules have made of it to work on (`scheduling.state.workspace`). No part of its value."""
        return {}

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Fingerprints of its nodes and of its quotas: a later snapshot shows by them whether those have changed."""
        if self.origin is not None:
            return self.origin.base.digests
        by_pool = (sorted(self.strategies.items()), sorted(self.levels.items()))
        settings = (self.queues, by_pool, sorted(self.leaves_out), self.fair_sharing)
        nodes = [replace(node, order=0) for node in self.nodes]
        return {"nodes": _digest(nodes), "quotas": _digest(settings)}

    @cached_property
    def shards(self) -> dict[str, "Snapshot"]:
        """Those that somebody has asked for, by pool."""
        return {}

    def shard(self, pool: str) -> "Snapshot":
        """The part of one node pool: schedulers with shards never look beyond it."""
        if self.pools == (pool,):
            return self
        if pool not in self.shards:
            self.shards[pool] = self._shard(pool)
        return self.shards[pool]

    def _shard(self, pool: str) -> "Snapshot":
        if self.origin is not None:
            base, gone, come = self.origin
            return base.shard(pool).changed(gone, (each for each in come if each.pool == pool), now=self.now)
        return Snapshot(
            nodes=tuple(node for node in self.nodes if node.pool == pool),
            queues=tuple(queue for queue in self.queues if queue.pool == pool),
            groups=tuple(group for group in self.groups if group.pool == pool),
            strategies=self.strategies,
            now=self.now,
            leaves_out=self.leaves_out,
            fair_sharing=self.fair_sharing,
            levels=self.levels,
        )

    def with_groups(self, groups: Iterable[PodGroup]) -> "Snapshot":
        """The same cluster with more pod groups; those of the same names are replaced. ValueError: two share a name."""
        return self.changed((), groups, now=self.now)

    def without_groups(self, names: Iterable[str]) -> "Snapshot":
        """The same cluster without these pod groups, as far as it has them."""
        return self.changed(names, (), now=self.now)

    def at(self, now: int | None) -> "Snapshot":
        """The same cluster at another moment."""
        return self.changed((), (), now=now)

    def exchanged(self, gone: Collection[str], come: tuple[PodGroup, ...], *, now: int | None) -> "Snapshot":
        """As `changed`, but not derived from this one, and without a look at every pod group."""
        known, left = self.group_by_name.copy(), {*gone, *(group.name for group in come)}
        for name in left:
            known.pop(name, None)
        known.update((group.name, group) for group in come)
        new = object.__new__(Snapshot)
        shared = {name: value for name, value in vars(self).items() if name not in _OF_GROUPS}
        vars(new).update(
            shared,
            groups=tuple(known.values()),
            group_by_name=MappingProxyType(known),
            now=now,
            origin=None,
            pools=tuple(dict.fromkeys((*self.pools, *(group.pool for group in come)))),
            waiting=(*(each for each in self.waiting if each.name not in left), *filter(_waits, come)),
            ending=(*(each for each in self.ending if each.name not in left), *filter(_ends, come)),
            has_min_runtimes=self.has_min_runtimes or any(group.min_runtime for group in come),
        )
        return new

    def changed(self, gone: Iterable[str], come: Iterable[PodGroup], *, now: int | None) -> "Snapshot":
        """Without the pod groups of these names, with those (which replace others of their names), at this moment."""
        more = tuple(come)
        names = {group.name for group in more}
        if len(names) != len(more):
            raise ValueError(f"more than one pod group is named {', '.join(sorted(names))}")
        left = frozenset(name for name in {*gone, *names} if self.group(name))
        stay = tuple(group for group in self.groups if group.name not in left) if left else self.groups
        new = object.__new__(Snapshot)  # the rest has been looked at: two of one name are found without a look at all
        shared = {name: value for name, value in vars(self).items() if name not in _OF_GROUPS}
        vars(new).update(shared, groups=stay + more, now=now, origin=Derivation(self, left, more))
        return new


_OF_GROUPS: Final = frozenset(
    {"group_by_name", "pools", "waiting", "ending", "has_min_runtimes", "workspaces", "shards"}
)
"""What is kept of a snapshot and does not hold for another that is derived from it."""


def _digest(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()[:16]


def _waits(group: PodGroup) -> bool:
    return any(pod.node is None for pod in group.pods)


def _ends(group: PodGroup) -> bool:
    return any(pod.terminating for pod in group.pods)
