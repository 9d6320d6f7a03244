"""How many GPUs one queue could start now in many small pods: what binds them, and what others could have to give back.

In closed form, since pages ask for every project and pool at once; `tests/scheduling/forecast/test_headroom.py` holds
it and the rules of every scheduler together. GPUs are counted; CPU and memory are named where less than half of these
GPUs' part of their nodes is left of them. Gangs and topology are for a forecast.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from scheduling.forecast.cycle import Flavour
from scheduling.model.resources import UNLIMITED, ZERO, Limit, Resources
from scheduling.model.snapshot import Queue
from scheduling.rules.kueue.quota import ENDLESS, tree_of


class Bound(StrEnum):
    """What stops a queue first. Of equal ones the first of these: room comes free by itself, a limit is changed."""

    PROJECT_LIMIT = "ProjectLimit"
    DEPARTMENT_LIMIT = "DepartmentLimit"
    LENDABLE = "LendableQuota"
    FREE = "FreeGpus"


class Sharing(StrEnum):
    """What happens to what a queue deserves and does not use.

    taken: anybody takes it, and nothing goes back. reclaimed: it goes back from what may be evicted, compared where the
    paths of two queues part. reclaimed by queues: compared by the queues alone. lent: as quota, back from any borrower.
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


BESIDE: Final = ("cpu", "memory")
SCARCE: Final = 2
"""CPU or memory is named where less than half is left of the part of a node that belongs to its GPUs."""


@dataclass(frozen=True, slots=True)
class QueueHolding:
    """What a queue holds, in GPU thousandths, the part of it that is never evicted, and its CPU and memory."""

    all: int = 0
    fixed: int = 0
    beside: Resources = ZERO


@dataclass(frozen=True, slots=True)
class ScarceResource:
    """CPU (millicores) or memory (bytes): at most `left` for all that may start, by `bound`. The rest: Headroom."""

    name: str
    left: int
    bound: Bound
    allowed: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Headroom:
    """GPU thousandths that may start now: `inside` the deserved quota and `over` it. largest: of one pod.

    back: how many more within quota others could have to give back, at most. bound: what stops it; allowed, used: the
    bound and what counts against it, where it is a limit. resource: what that limit is of. scarce: what is short beside
    the GPUs that may start.
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

    @property
    def now(self) -> int:
        return self.inside + self.over


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """Free GPU thousandths of a node pool, and of its emptiest node.

    beside: free CPU and memory of the nodes with a free GPU; whole: all that these nodes have. Zero: not known.
    """

    free: int
    largest: int
    beside: Resources = ZERO
    whole: Resources = ZERO


class Reclaim(NamedTuple):
    """`taker`, below its deserved quota, can take back from `giver`, above its own, at most so many GPU thousandths."""

    taker: str
    giver: str
    gpu: int


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """A queue or department: what it deserves, may use and uses, the never-evicted part of it. None: no bound."""

    name: str
    deserved: int | None
    limit: int | None
    used: int
    fixed: int
    limits: Limit = UNLIMITED
    held: Resources = ZERO

    def left_of(self, resource: str) -> int:
        """CPU or memory below its limit; negative where it is exceeded."""
        limit: int | None = getattr(self.limits, resource)
        return ENDLESS if limit is None else limit - int(getattr(self.held, resource))

    @property
    def below(self) -> int:
        """What is left below its limit; negative where it is exceeded."""
        return ENDLESS if self.limit is None else self.limit - self.used

    @property
    def left(self) -> int:
        """Below what it deserves."""
        return ENDLESS if self.deserved is None else max(self.deserved - self.used, 0)

    @property
    def above(self) -> int:
        """Over what it deserves."""
        return 0 if self.deserved is None else max(self.used - self.deserved, 0)


class Headrooms:
    """Of all queues of one node pool. holdings: by queue, without what is about to end.

    every_pod_asks: pods that ask for no CPU or memory are given some where these have a limit (kube-scheduler).
    """

    def __init__(
        self,
        queues: Iterable[Queue],
        holdings: Mapping[str, QueueHolding],
        room: PoolCapacity,
        *,
        sharing: Sharing,
        every_pod_asks: bool = False,
    ) -> None:
        rows = {row.name: row for row in queues}
        self._room, self._sharing, self._every_pod_asks = room, sharing, every_pod_asks
        self._parents = {name: row.parent for name, row in rows.items()}
        self._shares = tree_of(rows.values()) if sharing is Sharing.LENT else {}
        fixed, used = Counter[str](), dict.fromkeys(rows, ZERO)
        for name, held in holdings.items():
            amount = Resources(held.all, held.beside.cpu, held.beside.memory)
            if name in self._shares:
                self._shares[name].charge(amount)
            for step in self._path(name):
                used[step] += amount
                fixed[step] += held.fixed
        self.levels = {name: self._level(row, used[name], fixed[name]) for name, row in rows.items()}
        leaves = rows.keys() - set(self._parents.values())
        self._compared = [name for name in rows if sharing is not Sharing.RECLAIMED_BY_QUEUES or name in leaves]
        self._given: Counter[str | None] = Counter()
        for name in self._compared:
            self._given[self._beside(name)] += self._gives(self.levels[name])

    def _path(self, name: str) -> Iterator[str]:
        """The queue and those above it, as far as they have a row."""
        step: str | None = name
        while step in self._parents:
            yield step
            step = self._parents[step]

    def _beside(self, name: str) -> str | None:
        """What tells with whom a queue is compared: its parent, or all queues together."""
        return None if self._sharing is Sharing.RECLAIMED_BY_QUEUES else self._parents[name]

    def _level(self, row: Queue, used: Resources, fixed: int) -> QueueLevel:
        deserved, limit = row.deserved.gpu, row.limit.gpu
        if self._sharing is Sharing.LENT:
            deserved = self._shares[row.name].nominal.gpu
            limit = None if limit is None else max(limit, deserved)
        return QueueLevel(row.name, deserved, limit, used.gpu, fixed, row.limit, used)

    def of(self, queue: str) -> Headroom:
        """Of a queue that has no others below it. KeyError: there is none of that name."""
        path = [self.levels[queue], *(self.levels[name] for name in self._path(queue) if name != queue)]
        limits = dict(zip((Bound.PROJECT_LIMIT, Bound.DEPARTMENT_LIMIT), path, strict=False))
        bounds = {bound: max(level.below, 0) for bound, level in limits.items()}
        if self._sharing is Sharing.LENT:
            bounds[Bound.LENDABLE] = max(self._shares[queue].free().gpu, 0)
        bounds[Bound.FREE] = self._room.free
        if self._every_pod_asks and (exhausted := self._exhausted(limits)):
            return exhausted
        bound = min(bounds, key=lambda each: bounds[each])  # the first of equal ones
        now = bounds[bound]
        inside = min(now, path[0].left)
        level = limits.get(bound)
        return Headroom(
            inside=inside,
            over=now - inside,
            largest=min(now, self._room.largest),
            back=min(path[0].left - inside, self._owed(path, now)),
            bound=bound,
            allowed=level.limit if level else None,
            used=level.used if level else 0,
            scarce=tuple(self._scarce(queue, limits, now)),
        )

    def reclaims(self) -> Iterator[Reclaim]:
        """Who can take back from whom now: queues that are compared with each other, projects or departments."""
        beside: defaultdict[str | None, list[QueueLevel]] = defaultdict(list)
        for name in self._compared:
            beside[self._beside(name)].append(self.levels[name])
        for levels in beside.values():
            givers = [(each.name, gives) for each in levels if (gives := self._gives(each)) > 0]
            for taker in levels:
                entitled = min(taker.left, taker.below)
                if entitled > 0:
                    yield from (Reclaim(taker.name, name, min(entitled, gives)) for name, gives in givers)

    def _exhausted(self, limits: Mapping[Bound, QueueLevel]) -> Headroom | None:
        """Nothing starts, since every pod asks for some of what a limit leaves nothing of."""
        for bound, level in limits.items():
            for name in BESIDE:
                if level.left_of(name) <= 0:
                    allowed, used = getattr(level.limits, name), getattr(level.held, name)
                    return Headroom(0, 0, 0, 0, bound, allowed, used, resource=name)
        return None

    def _scarce(self, queue: str, limits: Mapping[Bound, QueueLevel], now: int) -> Iterator[ScarceResource]:
        whole = self._room.whole
        for name in BESIDE:
            bounds = {bound: level.left_of(name) for bound, level in limits.items()}
            if self._sharing is Sharing.LENT:
                bounds[Bound.LENDABLE] = getattr(self._shares[queue].free(), name)
            bounds[Bound.FREE] = getattr(self._room.beside, name)
            bound = min(bounds, key=lambda each: bounds[each])
            left = max(bounds[bound], 0)
            if left * whole.gpu * SCARCE < now * getattr(whole, name):
                level = limits.get(bound)
                allowed = getattr(level.limits, name) if level else None
                yield ScarceResource(name, left, bound, allowed, getattr(level.held, name) if level else 0)

    def _owed(self, path: Iterable[QueueLevel], now: int) -> int:
        """What others hold above what they deserve and may lose, once `now` more are in use.

        Two queues are compared where their paths part: what comes from beside a level changes nothing above it, so
        limits count up to there.
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
