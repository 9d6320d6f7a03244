"""A snapshot of one cluster: nodes, queues and pod groups at one moment. Immutable; larger time stamps are later."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from scheduling.model.preemptibility import EvictionExemptions, FairSharingStrategy, QueuePreemptionPolicy
from scheduling.model.resources import UNLIMITED, Limit, Resources, sum_of

NO_GUARANTEE: Final = Limit(gpu=0)
DEFAULT_RANK: Final = 100


class Strategy(StrEnum):
    """How a node pool fills its nodes."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods without a matching toleration off its node. `PreferNoSchedule` is not included."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a pod tolerates. `operator` Exists ignores the value; an empty key or effect matches any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def bears(self, taint: Taint) -> bool:
        """Whether the pod tolerates this taint."""
        matched = self.effect in {"", taint.effect} and self.key in {"", taint.key}
        return matched and (self.operator == "Exists" or self.value == taint.value)


def welcome(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> bool:
    """Whether a pod with these tolerations may run on a node with these taints."""
    return all(any(each.bears(taint) for each in tolerations) for taint in taints)


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A node of one node pool. `order` breaks ties between otherwise equal nodes. max_pods: None is no limit.

    more: other resources by name (ephemeral storage, devices by kind); their use is not tracked.
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

    deserved: guaranteed; None in a dimension is unlimited. rank: higher ranks get surplus first (KAI queue priority).
    weight: share of the surplus among queues of its rank. cpu_weight, memory_weight: None means the same.
    owner: identifies queues of one owner in several pools; empty: it has no others.
    preempts, reclaims, reclaims_over_quota: Kueue's withinClusterQueue, reclaimWithinCohort and borrowWithinCohort
    (Never or LowerPriority), with the values that Rung writes; other schedulers ignore them.
    reclaimable: whether other queues may reclaim its use above deserved quota (Volcano).
    preempt_min_runtime, reclaim_min_runtime: minimum runtime of its work before it may be evicted, in the unit of the
    time stamps; None: that of the parent (KAI).
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


@dataclass(slots=True, unsafe_hash=True)
class Pod:
    """One pod; `node` is None while it waits. A terminating pod still holds its resources.

    nominated: the node on which pods were evicted for it (kube-scheduler's nominatedNodeName).
    started: when this pod started; None: when its group did.
    device: the shared GPU of which it holds a fraction; empty: none, or not known.
    """

    name: Final[str]
    requests: Final[Resources]
    node: Final[str | None] = None
    terminating: Final[bool] = False
    nominated: Final[str | None] = None
    started: Final[int | None] = None
    device: Final[str] = ""


@dataclass(slots=True, unsafe_hash=True)
class PodGroup:
    """Pods that start together: at least `min_member` at once, the rest when they fit.

    `name` is unique in a snapshot. preemptible: whether the scheduler may evict it. never_preempts: its PriorityClass
    has the policy Never (kube-scheduler obeys, KAI ignores it). started: when its pods started; None while it waits.
    topology: all its pods need nodes with the same value of this label (kube with gangs, KAI, Kueue, Volcano).
    kube-scheduler with gangs only: gang: it is a PodGroup of scheduling.k8s.io, scheduled as one; whole: its
    disruptionMode is PodGroup, evicted whole or not at all.
    placement: packs or spreads its own pods, overriding the pool's strategy (soft pod affinity); kin: pods of groups of
    the same kin count as its own; empty: only those of the group.
    min_runtime: of its pods, before any workload may evict them, in the unit of time stamps (Volcano, if configured).
    let_in: when a queue of jobs let it in, where its scheduler says so: it may have waited for a node since (Kueue).
    made: all its pods exist, and a ResourceQuota counts them until they are gone (kube); else it is asked first.
    more: what every pod needs of a node's `more`. sort_name: orders groups of one second; empty: `name`.
    """

    name: Final[str]
    queue: Final[str]
    namespace: Final[str]
    priority: Final[int]
    preemptible: Final[bool]
    pods: Final[tuple[Pod, ...]]
    min_member: Final[int] = 1
    started: Final[int | None] = None
    created: Final[int] = 0
    pool: Final[str] = "default"
    never_preempts: Final[bool] = False
    node_selector: Final[Mapping[str, str]] = field(default_factory=dict)
    tolerations: Final[tuple[Toleration, ...]] = ()
    gang: Final[bool] = False
    topology: Final[str | None] = None
    whole: Final[bool] = False
    placement: Final[Strategy | None] = None
    kin: Final[str] = ""
    min_runtime: Final[int] = 0
    let_in: Final[int | None] = None
    made: Final[bool] = False
    more: Final[Mapping[str, int]] = field(default_factory=dict)
    sort_name: Final[str] = ""

    @property
    def age(self) -> tuple[int, str]:
        """Sort key: of the same priority the older is served first."""
        return (self.created, self.sort_name or self.name)

    @property
    def waiting(self) -> tuple[Pod, ...]:
        """Pods without a node."""
        return tuple([pod for pod in self.pods if pod.node is None])

    @property
    def holding(self) -> tuple[Pod, ...]:
        """Pods on a node that are not terminating."""
        return tuple([pod for pod in self.pods if pod.node is not None and not pod.terminating])

    @property
    def total(self) -> Resources:
        """Sum of the requests of all its pods."""
        return total(self.pods)

    @property
    def age_key(self) -> int:
        """When it was admitted, else started, else created."""
        began = self.created if self.started is None else self.started
        return began if self.let_in is None else self.let_in


def total(pods: tuple[Pod, ...]) -> Resources:
    """Sum of the pods' requests."""
    return pods[0].requests if len(pods) == 1 else sum_of(pod.requests for pod in pods)


class Derivation(NamedTuple):
    """The snapshot that another one was derived from, with the names of removed and the added pod groups."""

    base: "Snapshot"
    gone: Collection[str]
    come: tuple[PodGroup, ...]


class _GroupsOfChanged:
    """The pod groups of a changed snapshot, built once something asks for all: its rules exchange them in a state."""

    def __get__(self, snapshot: "Snapshot | None", _owner: type["Snapshot"]) -> tuple[PodGroup, ...]:
        if snapshot is None:
            return ()
        base, gone, come = snapshot.origin or Derivation(snapshot, (), ())
        groups = base.groups if snapshot.origin else snapshot.group_by_name.values()
        found = vars(snapshot)["groups"] = (*(each for each in groups if each.name not in gone), *come)
        return found


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision may depend on. Raises ValueError if two nodes, queues or pod groups share a name.

    now: time of the decision; None: minimum runtimes do not count. exempt: what configuration keeps from eviction.
    fair_sharing: Kueue's strategies in order; empty: fair sharing is off.
    levels: node labels of each pool's topology, the widest first, if the scheduler uses levels (KAI, Kueue): a domain
    is then a path of values, of nodes that carry all labels.
    origin: the snapshot it was derived from, whose working states can be reused.
    """

    nodes: tuple[SnapshotNode, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[PodGroup, ...] = cast("tuple[PodGroup, ...]", _GroupsOfChanged())
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    now: int | None = None
    exempt: EvictionExemptions = field(default_factory=EvictionExemptions)
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
    def queue_by_name(self) -> dict[str, Queue]:
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def group_by_name(self) -> dict[str, PodGroup]:
        return {group.name: group for group in self.groups}

    def group(self, name: str) -> PodGroup | None:
        """The pod group of this name; cheap for derived snapshots."""
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
        named: Iterable[SnapshotNode | Queue | PodGroup] = chain(self.nodes, self.queues, self.groups)
        return tuple(dict.fromkeys(each.pool for each in named))

    @cached_property
    def parents(self) -> frozenset[str]:
        """Queues that have children: they hold quota, but no workload."""
        return frozenset(queue.parent for queue in self.queues if queue.parent is not None)

    @cached_property
    def waiting(self) -> tuple[PodGroup, ...]:
        """Pod groups with a pod without a node, in order."""
        return tuple(self._waiting.values())

    @cached_property
    def _waiting(self) -> dict[str, PodGroup]:
        if self.origin is None:
            return _exchanged({}, (), filter(_waits, self.groups))
        base, gone, come = self.origin
        return _exchanged(base._waiting, gone, filter(_waits, come))

    @cached_property
    def has_min_runtimes(self) -> bool:
        """Whether pods of any group carry a minimum runtime."""
        if self.origin is None:
            return any(group.min_runtime for group in self.groups)
        return self.origin.base.has_min_runtimes or any(group.min_runtime for group in self.origin.come)

    @cached_property
    def ending(self) -> tuple[PodGroup, ...]:
        """Pod groups with a terminating pod."""
        if self.origin is None:
            return tuple(filter(_ends, self.groups))
        base, gone, come = self.origin
        return (*(each for each in base.ending if each.name not in gone), *filter(_ends, come))

    @cached_property
    def workspaces(self) -> dict[Hashable, Any]:
        """Working states of rules (`scheduling.state.workspace`). Not part of its value."""
        return {}

    @cached_property
    def digests(self) -> Mapping[tuple[str, str], str]:
        """Fingerprints by which a later snapshot detects changes: ("node", name), ("quotas", pool), ("rules", "")."""
        if self.origin is not None:
            return self.origin.base.digests
        values: dict[tuple[str, str], Any] = {("node", node.name): replace(node, order=0) for node in self.nodes}
        by_pool = (sorted(self.strategies.items()), sorted(self.levels.items()))
        values["rules", ""] = (by_pool, self.exempt.ordered, self.fair_sharing)
        for queue in self.queues:
            values.setdefault(("quotas", queue.pool), []).append(queue)
        return {key: sha256(repr(value).encode()).hexdigest()[:16] for key, value in values.items()}

    @cached_property
    def shards(self) -> dict[str, "Snapshot"]:
        """Shards created so far, by pool."""
        return {}

    def shard(self, pool: str) -> "Snapshot":
        """The part of one node pool, for schedulers that decide per pool."""
        if self.pools == (pool,):
            return self
        if pool not in self.shards:
            self.shards[pool] = self._shard(pool)
        return self.shards[pool]

    def _shard(self, pool: str) -> "Snapshot":
        if self.origin is not None:
            base, gone, come = self.origin
            return base.shard(pool).changed(gone, (each for each in come if each.pool == pool), now=self.now)
        nodes = tuple(node for node in self.nodes if node.pool == pool)
        queues = tuple(queue for queue in self.queues if queue.pool == pool)
        groups = tuple(group for group in self.groups if group.pool == pool)
        return replace(self, nodes=nodes, queues=queues, groups=groups)

    def with_groups(self, groups: Iterable[PodGroup]) -> "Snapshot":
        """The same cluster with more pod groups; those of equal names are replaced. ValueError: two share a name."""
        return self.changed((), groups, now=self.now)

    def without_groups(self, names: Iterable[str]) -> "Snapshot":
        """The same cluster without these pod groups; unknown names are ignored."""
        return self.changed(names, (), now=self.now)

    def at(self, now: int | None) -> "Snapshot":
        """The same cluster at another time."""
        return self.changed((), (), now=now)

    def exchanged(self, gone: Collection[str], come: tuple[PodGroup, ...], *, now: int | None) -> "Snapshot":
        """As `changed`, but not derived from this one, and without visiting every pod group."""
        left = {*gone, *(group.name for group in come)}
        return self._made(
            group_by_name=_exchanged(self.group_by_name, left, come),
            now=now,
            origin=None,
            pools=tuple(dict.fromkeys((*self.pools, *(group.pool for group in come)))),
            _waiting=_exchanged(self._waiting, left, filter(_waits, come)),
            ending=(*(each for each in self.ending if each.name not in left), *filter(_ends, come)),
            has_min_runtimes=self.has_min_runtimes or any(group.min_runtime for group in come),
        )

    def changed(self, gone: Iterable[str], come: Iterable[PodGroup], *, now: int | None) -> "Snapshot":
        """The cluster without the pod groups of these names and with the given ones, which replace equal names."""
        more = tuple(come)
        names = {group.name for group in more}
        if len(names) != len(more):
            raise ValueError(f"more than one pod group is named {', '.join(sorted(names))}")
        left = frozenset(name for name in {*gone, *names} if self.group(name))
        return self._made(now=now, origin=Derivation(self, left, more))

    def _made(self, **values: object) -> "Snapshot":
        """The same cluster with other groups, whose names the caller has compared."""
        new = object.__new__(Snapshot)
        vars(new).update({name: value for name, value in vars(self).items() if name not in _CACHED}, **values)
        return new


_OF_GROUPS: Final = ("groups", "group_by_name", "pools", "waiting", "_waiting", "ending", "has_min_runtimes")
_CACHED: Final = frozenset({*_OF_GROUPS, "workspaces", "shards"})
"""What is kept of a snapshot and does not hold for another that is derived from it."""


def _exchanged(groups: dict[str, PodGroup], gone: Iterable[str], come: Iterable[PodGroup]) -> dict[str, PodGroup]:
    """These groups by name, without some and with others."""
    found = groups.copy()
    for name in gone:
        found.pop(name, None)
    found.update((group.name, group) for group in come)
    return found


def _waits(group: PodGroup) -> bool:
    return any(pod.node is None for pod in group.pods)


def _ends(group: PodGroup) -> bool:
    return any(pod.terminating for pod in group.pods)
