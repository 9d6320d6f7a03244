"""How many GPUs one queue could start now in many small pods, what limits them, and how many others may have to return.

A closed form, because pages need it for every project and pool at once; `tests/scheduling/forecast/test_headroom.py`
checks it against the rules of every scheduler. It counts GPUs; it names CPU and memory if less than half of the GPUs'
proportional part of them is left. Gangs and topology need a forecast.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

from scheduling.forecast.cycle import Flavour
from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources
from scheduling.model.snapshot import Queue
from scheduling.rules.kueue.capacity import ENDLESS, tree_of


class Bound(StrEnum):
    """What limits a queue first; of equal bounds, the first listed. Capacity frees itself, a limit must be changed."""

    PROJECT_LIMIT = "ProjectLimit"
    DEPARTMENT_LIMIT = "DepartmentLimit"
    LENDABLE = "LendableQuota"
    FREE = "FreeGpus"


class Sharing(StrEnum):
    """What happens to deserved quota that a queue does not use.

    taken: others use it and never return it. reclaimed: it is reclaimed from preemptible work, compared where the paths
    of two queues part. reclaimed by queues: compared by the queues alone. lent: as quota, reclaimed from any borrower.
    """

    TAKEN = "taken"
    RECLAIMED = "reclaimed"
    RECLAIMED_BY_QUEUES = "reclaimed by queues"
    LENT = "lent"


SHARING: Final = {
    Flavour.KUBE: Sharing.TAKEN,
    Flavour.KUBE_GANGS: Sharing.TAKEN,
    Flavour.KAI: Sharing.RECLAIMED,
    Flavour.VOLCANO: Sharing.RECLAIMED_BY_QUEUES,
    Flavour.KUEUE: Sharing.LENT,
}
COUNTS_FIXED_APART: Final = frozenset({Flavour.KUBE, Flavour.KUBE_GANGS, Flavour.KAI})
"""Non-preemptible work starts while its own sum is within the deserved quotas. Elsewhere all work counts alike."""

BESIDE: Final = ("cpu", "memory")
SCARCE: Final = 2
"""CPU or memory is named where less than half is left of the part of a node that belongs to its GPUs."""


@dataclass(frozen=True, slots=True)
class QueueHolding:
    """Use of a queue in GPU thousandths, its non-preemptible part, and its CPU and memory.

    reserved: what of the use waiting pods have before they are on a node.
    """

    all: int = 0
    fixed: int = 0
    beside: Resources = ZERO
    reserved: Resources = ZERO


class DeservedUse(NamedTuple):
    """Deserved GPU thousandths of a project or department, and the non-preemptible use that counts against them."""

    deserved: int | None
    used: int
    department: bool = False

    @property
    def left(self) -> int:
        return ENDLESS if self.deserved is None else max(self.deserved - self.used, 0)

    @property
    def whole(self) -> int:
        return ENDLESS if self.deserved is None else self.deserved


NOTHING_DESERVED: Final = DeservedUse(0, 0)


@dataclass(frozen=True, slots=True)
class FixedHeadroom:
    """GPU thousandths that may start now as non-preemptible work: `all` together, `each` workload at most.

    apart: such work counts by its own sum, so that it is within quota. bound: the deserved quota that is the tightest.
    """

    all: int = 0
    each: int = 0
    apart: bool = True
    bound: DeservedUse = NOTHING_DESERVED


@dataclass(frozen=True, slots=True)
class ScarceResource:
    """CPU (millicores) or memory (bytes): at most `left` for all new pods, by `bound`. Other fields as in Headroom."""

    name: str
    left: int
    bound: Bound
    allowed: int | None = None
    used: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Headroom:
    """GPU thousandths that may start now: `inside` the deserved quota and `over` it. largest: of one pod.

    back: how many more within quota others may have to return, at most. bound: what limits it; allowed, used: the limit
    and the use that counts against it; reserved: what of this use waiting pods have. resource: the resource of that
    limit. scarce: other resources that are short for the GPUs that may start. fixed: what may be non-preemptible.
    """

    inside: int
    over: int
    largest: int
    back: int
    bound: Bound
    allowed: int | None = None
    used: int = 0
    resource: str = "gpu"
    scarce: tuple[ScarceResource, ...] = ()
    reserved: int = 0
    fixed: FixedHeadroom = FixedHeadroom()

    @property
    def now(self) -> int:
        return self.inside + self.over


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """Free GPU thousandths of a node pool, and of its emptiest node.

    beside: free CPU and memory of the nodes with a free GPU; whole: all CPU and memory of these nodes. Zero: not known.
    """

    free: int
    largest: int
    beside: Resources = ZERO
    whole: Resources = ZERO


class Reclaim(NamedTuple):
    """`taker` can reclaim at most this many GPU thousandths from `giver`.

    The taker is below its deserved quota and the giver above its own; by_share: below and above their fair shares.
    """

    taker: str
    giver: str
    gpu: int
    by_share: bool = False


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """A queue or department: deserved quota, limit and use. None: no bound."""

    name: str
    deserved: int | None
    limit: int | None
    used: int
    fixed: int
    limits: Limit = UNLIMITED
    held: Resources = ZERO
    reserved: Resources = ZERO

    def left_of(self, resource: str) -> int:
        """CPU or memory below its limit; negative if exceeded."""
        limit: int | None = getattr(self.limits, resource)
        return ENDLESS if limit is None else limit - int(getattr(self.held, resource))

    @property
    def below(self) -> int:
        """Rest below its limit; negative if exceeded."""
        return ENDLESS if self.limit is None else self.limit - self.used

    @property
    def left(self) -> int:
        """Rest below its deserved quota."""
        return ENDLESS if self.deserved is None else max(self.deserved - self.used, 0)

    @property
    def above(self) -> int:
        """Use above its deserved quota."""
        return 0 if self.deserved is None else max(self.used - self.deserved, 0)


class Headrooms:
    """Headroom of all queues of one node pool. holdings: use by queue; terminating pods count until they are gone.

    every_pod_asks: pods without CPU or memory requests get some if these have a limit (kube-scheduler). apart: as in
    `FixedHeadroom`. promised: what bounds non-preemptible work of a queue, if not the deserved quotas of its path.
    """

    def __init__(
        self,
        queues: Iterable[Queue],
        holdings: Mapping[str, QueueHolding],
        capacity: PoolCapacity,
        *,
        sharing: Sharing,
        every_pod_asks: bool = False,
        apart: bool = True,
        promised: Mapping[str, Sequence[DeservedUse]] | None = None,
    ) -> None:
        self._rows = rows = {row.name: row for row in queues}
        self._capacity, self._sharing, self._every_pod_asks = capacity, sharing, every_pod_asks
        self._apart, self._promised = apart, promised or {}
        self._parents = {name: row.parent for name, row in rows.items()}
        self._shares = tree_of(rows.values()) if sharing is Sharing.LENT else {}
        self._fixed, self._used, self._reserved = Counter[str](), dict[str, Resources](), dict[str, Resources]()
        for name, held in holdings.items():
            amount = Resources(held.all, held.beside.cpu, held.beside.memory)
            if name in self._shares:
                self._shares[name].charge(amount)
            for step in self._path(name):
                self._used[step] = self._used.get(step, ZERO) + amount
                self._reserved[step] = self._reserved.get(step, ZERO) + held.reserved
                self._fixed[step] += held.fixed
        leaves = rows.keys() - set(self._parents.values())
        self._compared = [name for name in rows if sharing is not Sharing.RECLAIMED_BY_QUEUES or name in leaves]
        self._given: Counter[str | None] = Counter()
        for name in self._used.keys() & self._compared:  # others have nothing to give
            self._given[self._beside(name)] += self._gives(self._level(name))

    @cached_property
    def levels(self) -> Mapping[str, QueueLevel]:
        """Every queue by name."""
        return {name: self._level(name) for name in self._rows}

    def _path(self, name: str) -> Iterator[str]:
        """The queue and its parents that have a row."""
        step: str | None = name
        while step in self._parents:
            yield step
            step = self._parents[step]

    def _beside(self, name: str) -> str | None:
        """Key of the queues that a queue is compared with: those of its parent, or all."""
        return None if self._sharing is Sharing.RECLAIMED_BY_QUEUES else self._parents[name]

    def _level(self, name: str) -> QueueLevel:
        row, used, fixed = self._rows[name], self._used.get(name, ZERO), self._fixed[name]
        deserved, limit = row.deserved.gpu, row.limit.gpu
        if self._sharing is Sharing.LENT:
            deserved = self._shares[row.name].nominal.gpu
            limit = None if limit is None else max(limit, deserved)
        reserved = self._reserved.get(name, ZERO)
        return QueueLevel(row.name, deserved, limit, used.gpu, fixed, row.limit, used, reserved)

    def of(self, queue: str) -> Headroom:
        """Headroom of a leaf queue. KeyError: unknown name."""
        path = [self._level(queue), *(self._level(name) for name in self._path(queue) if name != queue)]
        limits = dict(zip((Bound.PROJECT_LIMIT, Bound.DEPARTMENT_LIMIT), path, strict=False))
        bounds = {bound: max(level.below, 0) for bound, level in limits.items()}
        if self._sharing is Sharing.LENT:
            bounds[Bound.LENDABLE] = max(self._shares[queue].free().gpu, 0)
        bounds[Bound.FREE] = self._capacity.free
        if self._every_pod_asks and (exhausted := self._exhausted(limits)):
            return exhausted
        bound = min(bounds, key=lambda each: bounds[each])  # the first of equal ones
        now = bounds[bound]
        inside = min(now, path[0].left)
        level = limits.get(bound)
        return Headroom(
            inside=inside,
            over=now - inside,
            largest=min(now, self._capacity.largest),
            back=min(path[0].left - inside, self._owed(path, now)),
            bound=bound,
            allowed=level.limit if level else None,
            used=level.used if level else 0,
            scarce=tuple(self._scarce(queue, limits, now)),
            reserved=level.reserved.gpu if level else 0,
            fixed=self._fixed_headroom(queue, now),
        )

    def _fixed_headroom(self, queue: str, now: int) -> FixedHeadroom:
        """Where all work counts alike, Rung refuses a workload that alone exceeds what is deserved."""
        bounds = self._promised.get(queue) or [
            DeservedUse(self._rows[name].deserved.gpu, self._fixed[name], name != queue) for name in self._path(queue)
        ]
        if self._apart:
            bound = min(bounds, key=lambda each: each.left)
            most = min(bound.left, now)
            return FixedHeadroom(most, most, self._apart, bound)
        bound = min(bounds, key=lambda each: each.whole)
        each = min(bound.whole, now)
        return FixedHeadroom(now if each else 0, each, self._apart, bound)

    def reclaims(self, shares: Mapping[str, int] | None = None) -> Iterator[Reclaim]:
        """Which queues can reclaim from which now: projects or departments that are compared with each other.

        shares: fair share of each queue in GPU thousandths, where the scheduler reclaims up to it (KAI). A pair is then
        listed by its shares as well, where these allow more than the deserved quotas.
        """
        beside: defaultdict[str | None, list[QueueLevel]] = defaultdict(list)
        for name in self._compared:
            beside[self._beside(name)].append(self.levels[name])
        for levels in beside.values():
            yield from _pairs(levels, self._gives, shares or {})

    def _exhausted(self, limits: Mapping[Bound, QueueLevel]) -> Headroom | None:
        """No headroom, because every pod requests some of a resource whose limit is reached."""
        for bound, level in limits.items():
            for name in BESIDE:
                if level.left_of(name) <= 0:
                    allowed, used, reserved = (
                        getattr(each, name) for each in (level.limits, level.held, level.reserved)
                    )
                    return Headroom(0, 0, 0, 0, bound, allowed, used, resource=name, reserved=reserved)
        return None

    def _scarce(self, queue: str, limits: Mapping[Bound, QueueLevel], now: int) -> Iterator[ScarceResource]:
        whole = self._capacity.whole
        for name in BESIDE:
            bounds = {bound: level.left_of(name) for bound, level in limits.items()}
            if self._sharing is Sharing.LENT:
                bounds[Bound.LENDABLE] = getattr(self._shares[queue].free(), name)
            bounds[Bound.FREE] = getattr(self._capacity.beside, name)
            bound = min(bounds, key=lambda each: bounds[each])
            left = max(bounds[bound], 0)
            if left * whole.gpu * SCARCE < now * getattr(whole, name):
                level = limits.get(bound)
                parts = (level.limits, level.held, level.reserved) if level else (UNLIMITED, ZERO, ZERO)
                yield ScarceResource(name, left, bound, *(getattr(each, name) for each in parts))

    def _owed(self, path: Iterable[QueueLevel], now: int) -> int:
        """Preemptible use of other queues above their deserved quota, once `now` more are in use.

        Two queues are compared where their paths part. Reclaiming from a sibling does not change the use of parents, so
        limits count up to that level.
        """
        owed, wall = 0, ENDLESS
        for level in path:
            wall = min(wall, level.below - now)
            others = self._given[self._beside(level.name)] - self._gives(level)
            owed += max(min(others, level.left - now, wall), 0)
            if self._sharing is Sharing.RECLAIMED_BY_QUEUES:
                break
        return owed

    def _gives(self, level: QueueLevel) -> int:
        if self._sharing is Sharing.TAKEN:
            return 0
        return level.above if self._sharing is Sharing.LENT else min(level.above, level.used - level.fixed)


def _pairs(
    levels: Sequence[QueueLevel], gives: Callable[[QueueLevel], int], shares: Mapping[str, int]
) -> Iterator[Reclaim]:
    """Of the queues of one parent.

    Source of the second rule: KAI's proportion plugin. The taker stays within its fair share; the giver is above both
    its deserved quota and its fair share before each victim, so that the last one may take it below.
    """
    givers = [(each.name, amount) for each in levels if (amount := gives(each)) > 0]
    above = {each.name: min(gives(each), each.used - shares.get(each.name, each.used)) for each in levels}
    for taker in levels:
        entitled = min(taker.left, taker.below)
        missing = min(shares.get(taker.name, 0) - taker.used, taker.below)
        for name, amount in givers:
            by_quota, by_share = max(min(entitled, amount), 0), min(missing, above[name])
            if by_quota:
                yield Reclaim(taker.name, name, by_quota)
            if by_share > by_quota:
                yield Reclaim(taker.name, name, by_share, by_share=True)
