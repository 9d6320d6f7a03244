"""What Kueue counts: quotas, and capacity of nodes in pools with topology levels.

Source: Kueue 0.19. A queue's nominalQuota is `Queue.deserved` (at most its limit), its borrowingLimit what the limit
has over that, its cohort `Queue.parent`. A department's row is a cohort with its total quota; the cohort's own
nominalQuota is the total minus the sum of its children, at least zero. A parent without a row is a cohort without quota
of its own, as in Kueue. There are no lending limits: all unused quota can be borrowed, so use counts at every level.

Topology-aware scheduling: in a pool with topology levels Kueue admits only workloads that fit on nodes. Source: Kueue
0.19 (its flavor assigner and its snapshot of a flavor's topology).

- Nodes that lack the label of a level are not used; pods of others count for the capacity they hold.
- A domain in which all pods can start now precedes one whose capacity is being freed; of several, the one that fits
  fewest pods. In pools without levels everything fits.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from scheduling.model.reasons import PendingReason
from scheduling.model.resources import DIMENSIONS, UNLIMITED, ZERO, Limit, Resources, per_dimension, sum_of
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.assignments import PlacedPods
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, slots
from scheduling.state.refusals import impossible, no_room, pods_without_node
from scheduling.state.topology_domains import KueueDomains

ENDLESS: Final = 2**80
"""Larger than any sum of amounts: "unlimited" in sums and differences."""


class QuotaShare:
    """A queue or cohort. nominal: nominal quota including everything below. Changed by `charge` only.

    most: what may be used here at most, borrowing included; of the root, its quota. capacity: the same, and no more
    than any cohort above has.
    kin: the shares of its owner in all pools, itself included. lendable: cached denominator of `dominant_share`.
    path: this queue and its cohorts, the root last. height: number of levels below it.
    used: without terminating work, with work that waits for it; leaving: the difference.
    """

    __slots__ = (
        "capacity",
        "children",
        "height",
        "kin",
        "leaving",
        "lendable",
        "limit",
        "most",
        "name",
        "nominal",
        "parent",
        "path",
        "used",
        "weight",
    )

    def __init__(self, name: str, queue: Queue | None) -> None:
        self.limit = _amounts(queue.limit if queue else UNLIMITED)
        self.name = name
        self.nominal = per_dimension(min, _amounts(queue.deserved), self.limit) if queue else ZERO
        self.most = self.capacity = self.nominal
        self.parent: QuotaShare | None = None
        self.path: tuple[QuotaShare, ...] = (self,)
        self.children: list[QuotaShare] = []
        self.height = 0
        self.kin: list[QuotaShare] = [self]
        self.lendable: Resources | None = None
        self.weight = queue.weight if queue else 1
        self.used = ZERO
        self.leaving = ZERO

    def release(self, amount: Resources) -> None:
        """Subtract `amount` from the use at every level."""
        for share in self.path:
            share.used -= amount

    def charge(self, amount: Resources, *, leaving: Resources = ZERO) -> None:
        """Add `amount` to the use at every level; negative amounts subtract."""
        for share in self.path:
            share.used += amount
        if leaving is not ZERO:
            for share in self.path:
                share.leaving += leaving

    def free(self) -> Resources:
        """Unused quota, borrowing included; negative if overcommitted."""
        gpu = cpu = memory = ENDLESS
        for share in self.path:
            most, used = share.most, share.used
            gpu = min(gpu, most.gpu - used.gpu)
            cpu = min(cpu, most.cpu - used.cpu)
            memory = min(memory, most.memory - used.memory)
        return Resources(gpu, cpu, memory)

    def gpus_in_reach(self) -> int:
        """GPUs to get without evicting in the own queue where borrowers evict none: unused, or lent below the root."""
        unused, lent = ENDLESS, -ENDLESS
        for share in self.path:
            left = share.most.gpu - share.used.gpu
            unused = left if left < unused else unused
            left = share.nominal.gpu - share.used.gpu
            lent = left if left > lent and share.parent else lent
        return unused if unused > lent else lent

    def has_free(self, needed: Resources, *, now: bool = False) -> bool:
        """Whether `needed` more fits into `free()`. now: terminating work still counts."""
        for share in self.path:
            if not _has_room(share.most, share.used + share.leaving if now else share.used, needed):
                return False
        return True

    def has_free_beside(self, needed: Resources, more: Resources, user: "QuotaShare") -> bool:
        """Whether `needed` would fit into `free()` if the queue `user` used so much more."""
        for share in self.path:
            if not _has_room(share.most, share.used + more if share in user.path else share.used, needed):
                return False
        return True

    def deserves(self, needed: Resources) -> bool:
        """Whether `needed` more stays inside its nominal quota in the requested dimensions."""
        return _has_room(self.nominal, self.used, needed)

    def over_quota(self, dimensions: Collection[str]) -> bool:
        """Whether it borrows in one of these dimensions."""
        used, nominal = self.used, self.nominal
        return (
            (used.gpu > nominal.gpu and "gpu" in dimensions)
            or (used.cpu > nominal.cpu and "cpu" in dimensions)
            or (used.memory > nominal.memory and "memory" in dimensions)
        )

    @property
    def borrows(self) -> bool:
        """Whether its owner uses more than its nominal quota of any resource in any pool."""
        return any(share.over_quota(DIMENSIONS) for share in self.kin)

    def dominant_share(self) -> tuple[bool, float]:
        """Its owner's borrowed part of what it could borrow, divided by its weight. Larger shares lose work first.

        The resource with the largest borrowed part counts, over all pools. (True, _): it borrows with weight 0, which
        ranks above every other share.
        """
        largest = max(map(self._borrowed_part, DIMENSIONS))
        weight = max(share.weight for share in self.kin)
        if largest == 0 or weight == 0:
            return largest > 0, largest
        return False, largest / weight

    def _borrowed_part(self, dimension: str) -> float:
        """In thousandths of the most that its cohort could use."""
        if self.lendable is None:
            self.lendable = (self.parent or self).of_all_pools()
        borrowed = sum(max(getattr(share.used - share.nominal, dimension), 0) for share in self.kin)
        lendable = getattr(self.lendable, dimension)
        return borrowed * 1000 / lendable if borrowed and lendable > 0 else 0.0

    def of_all_pools(self) -> Resources:
        """The most that its owner could use; the whole tree in pools where it has no share."""
        own = {share.root: share for share in self.kin}
        return sum_of(own.get(root, root).capacity for root in self.root.kin)

    @property
    def root(self) -> "QuotaShare":
        return self if self.parent is None else self.parent.root

    def smallest_that_deserves(self, needed: Resources) -> "QuotaShare | None":
        """This queue or the nearest cohort whose quota could hold `needed` more; None if even the root's could not."""
        return next((share for share in self.path if share.deserves(needed)), None)


def _has_room(most: Resources, used: Resources, needed: Resources) -> bool:
    """Whether `needed` more stays within `most` in the requested dimensions."""
    return (
        (not needed.gpu or needed.gpu <= most.gpu - used.gpu)
        and (not needed.cpu or needed.cpu <= most.cpu - used.cpu)
        and (not needed.memory or needed.memory <= most.memory - used.memory)
    )


def tree_of(queues: Iterable[Queue]) -> dict[str, QuotaShare]:
    """All queues and cohorts by name. A cycle of parents is cut where it closes."""
    rows = {queue.name: queue for queue in queues}
    parents = (queue.parent for queue in rows.values() if queue.parent is not None)
    shares = {name: QuotaShare(name, rows.get(name)) for name in dict.fromkeys((*rows, *parents))}
    for name, row in rows.items():
        parent = shares.get(row.parent or "")
        if parent is not None and shares[name] not in _cohorts(parent):
            shares[name].parent = parent
            parent.children.append(shares[name])
    kin: dict[str, list[QuotaShare]] = defaultdict(list)
    for name, row in rows.items():
        kin[row.owner or name].append(shares[name])
    for found in kin.values():
        for share in found:
            share.kin = found
        _join([share.parent for share in found if share.parent is not None and share.parent.name not in rows])
    for root in [share for share in shares.values() if share.parent is None]:
        _add_up(root)
        root.capacity = per_dimension(min, root.most, Resources(ENDLESS, ENDLESS, ENDLESS))
        _derive(root)
    return shares


def _cohorts(share: QuotaShare) -> Iterator[QuotaShare]:
    """It and its cohorts while the tree is being built."""
    step: QuotaShare | None = share
    while step is not None:
        yield step
        step = step.parent


def beyond(needed: Resources, free: Resources) -> Resources:
    """The requested part that is not free."""
    return Resources(
        max(min(needed.gpu - free.gpu, needed.gpu), 0),
        max(min(needed.cpu - free.cpu, needed.cpu), 0),
        max(min(needed.memory - free.memory, needed.memory), 0),
    )


def lacking(needed: Resources, free: Resources) -> tuple[str, ...]:
    """The dimensions in which more is requested than is free."""
    pairs = (("gpu", needed.gpu, free.gpu), ("cpu", needed.cpu, free.cpu), ("memory", needed.memory, free.memory))
    return tuple([name for name, part, left in pairs if part and part > left])


def bounds(amounts: Resources) -> Limit:
    """Amounts for display: unlimited as None, negative as zero."""
    shown = [None if each >= ENDLESS // 2 else max(each, 0) for each in (amounts.gpu, amounts.cpu, amounts.memory)]
    return Limit(*shown)


def _add_up(share: QuotaShare) -> None:
    """Set a cohort's height, and its quota: that of its children and the rest of its own row."""
    for child in share.children:
        _add_up(child)
        share.height = max(share.height, child.height + 1)
    children = sum_of(child.nominal for child in share.children)
    share.nominal = per_dimension(max, share.nominal, children)
    share.most = per_dimension(max, share.nominal, share.limit) if share.parent else share.nominal


def _derive(share: QuotaShare) -> None:
    """Set paths and capacities in the tree below a share that has both."""
    for child in share.children:
        child.path = (child, *share.path)
        child.capacity = per_dimension(min, child.most, share.capacity)
        _derive(child)


def _join(cohorts: list[QuotaShare]) -> None:
    """Join cohorts without rows that hold queues of one owner in several pools."""
    joined = list(dict.fromkeys(each for cohort in cohorts for each in cohort.kin))
    for each in joined:
        each.kin = joined


def _amounts(limit: Limit) -> Resources:
    parts = (limit.gpu, limit.cpu, limit.memory)
    return Resources(*(ENDLESS if each is None else each for each in parts))


ANYWHERE: Final = PlacedPods({}, now=True)
"""For pools in which nodes do not count."""


class DomainTally:
    """How many identical pods fit in each domain. Only nodes that have changed are counted again."""

    def __init__(self, state: SchedulingState, group: PodGroup) -> None:
        self._capacities = state.capacities
        self._each = group.waiting[0].requests
        self._homes: dict[int, int] = {}
        self._slots = Counter[int]()
        self._sums = Counter[int]()
        self._seen = len(state.capacities.changes)
        for number, domain in enumerate(state.domains(group)):
            for capacity in state.capacities.matching(domain):
                self._homes[capacity.index] = number
                self._count(capacity)

    def _count(self, capacity: NodeCapacity) -> None:
        if (home := self._homes.get(capacity.index)) is not None:
            found = min(slots(capacity.future, self._each), max(capacity.pods_left, 0))
            self._sums[home] += found - self._slots[capacity.index]
            self._slots[capacity.index] = found

    def most(self) -> int:
        """The number in the domain that fits most."""
        for capacity in {capacity.index: capacity for capacity in self._capacities.changes[self._seen :]}.values():
            self._count(capacity)
        self._seen = len(self._capacities.changes)
        return max(self._sums.values(), default=0)


class TopologyCapacity:
    """Capacity of nodes. Changed by `take`, `leave` and `come_back` only, until `restore`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._levels = snapshot.levels
        nodes = tuple(node if self._usable(node) else replace(node, ready=False) for node in snapshot.nodes)
        known = replace(snapshot, nodes=nodes, groups=snapshot.groups if self._levels else ())
        self._state = SchedulingState(known, default=Strategy.BINPACK, domains=KueueDomains)
        self._tallies: dict[str, DomainTally | None] = {}
        self.counted: Final = bool(self._levels)
        """Whether any group needs places on nodes."""

    def _usable(self, node: SnapshotNode) -> bool:
        return node.pool in self._levels and all(map(node.labels.get, self._levels[node.pool]))

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        if self._levels:
            self._state.advance(gone, come)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        return self._state.restore_point()

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`."""
        if self._levels:
            self._state.exchange(gone, come)

    def about(self, names: Collection[str] | None) -> None:
        """Names of the groups whose refusals need numbers; None: all."""
        self._state.about = names

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        self._state.restore()
        self._tallies.clear()

    def matter(self, group: PodGroup) -> bool:
        """Whether it needs places on nodes."""
        return group.pool in self._levels

    def suffice(self, group: PodGroup) -> bool:
        """Whether all its pods fit, now or once capacity is freed."""
        if not self.matter(group):
            return True
        if group.name not in self._tallies:
            self._tallies[group.name] = DomainTally(self._state, group) if _alike(group) else None
        tally = self._tallies[group.name]
        return self.find(group) is not None if tally is None else tally.most() >= len(group.waiting)

    def find(self, group: PodGroup) -> PlacedPods | None:
        """The nodes for all its pods; None if they do not fit."""
        mark = self._state.mark()
        placed = self.take(group)
        self._state.undo(mark)
        return placed

    def take(self, group: PodGroup) -> PlacedPods | None:
        """Take these places."""
        if not self.matter(group):
            return ANYWHERE
        domains, later = self._state.domains(group, total(group.pods)), list[PodGroup]()
        for domain in domains:
            mark = self._state.mark()
            placed = self._state.place_together(domain, group.waiting)
            if placed and placed.now:
                return placed
            if placed:
                later.append(domain)
            self._state.undo(mark)
        return self._state.place_together(later[0], group.waiting) if later else None

    def leave(self, group: PodGroup) -> None:
        """Evict: its capacity is free once its pods have ended. Terminating pods count so already."""
        for assignment in self._state.assignments_of.get(group.name, ()):
            if not assignment.pod.terminating:
                self._state.evict(assignment)

    def come_back(self, group: PodGroup) -> None:
        """Undo `leave`."""
        for assignment in self._state.assignments_of.get(group.name, ()):
            if not assignment.pod.terminating:
                self._state.keep(assignment)

    def refusal(self, group: PodGroup) -> PendingReason:
        """Why it does not fit now, with how many of its pods would."""
        pods, domains = group.waiting, self._state.domains(group)
        left_out = min((len(pods_without_node(self._state, each, now=True)) for each in domains), default=len(pods))
        pend = impossible(self._state, group, pods) or no_room(self._state, group, pods)
        return replace(pend, fitting=len(pods) - left_out)


def _alike(group: PodGroup) -> bool:
    """Whether its pods have equal, non-empty requests."""
    requested = {pod.requests for pod in group.waiting}
    return len(requested) == 1 and ZERO not in requested
