"""What a change of scheduler or node pool means for workloads, by hooks that the app above registers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import SchedulerFlavour

NO_NAMES: Final[tuple[tuple[str, str], ...]] = ()


@dataclass(frozen=True, slots=True)
class WorkloadSample:
    """How many workloads, and the first of them: (id, name with its project)."""

    count: int = 0
    samples: tuple[tuple[str, str], ...] = NO_NAMES

    @property
    def names(self) -> list[str]:
        return [name for _key, name in self.samples]


@dataclass(frozen=True, slots=True)
class SwitchEffect:
    """What becomes of the work that is there.

    `stays`: it runs, and stays with the scheduler it was made for. `recreated`: it waits or is stopped.
    `unexpressed`: it asks for a preemptibility that the new scheduler does not know. `unmanaged`: of a kind that
    the new scheduler is configured to leave alone. `evicted`: of what stays, what the new scheduler's model evicts
    for what waits; None: there is no such model. `seconds_at_risk`: GPU-seconds that those evictions would lose.
    `uncounted`: GPU thousandths of what stays that the new quotas do not count.
    """

    stays: WorkloadSample = WorkloadSample()
    recreated: WorkloadSample = WorkloadSample()
    unexpressed: WorkloadSample = WorkloadSample()
    unmanaged: WorkloadSample = WorkloadSample()
    evicted: WorkloadSample | None = WorkloadSample()
    seconds_at_risk: int = 0
    uncounted: int = 0


@dataclass(frozen=True, slots=True)
class HeldOtherwise:
    """A workload's own object of which the cluster holds other scheduling fields than Rung wrote.

    `owner`: the value of our owner label; `workload`: its name with its project; the fields by JSON pointer.
    """

    kind: str
    namespace: str
    name: str
    owner: str
    workload: str
    held: Mapping[str, str | bool]
    written: Mapping[str, str | bool]


class WorkloadHooks(Protocol):
    """The registered provider."""

    def work_in(self, target: Cluster, after: SchedulerFlavour, /) -> SwitchEffect:
        """What becomes of it under that scheduler. `target`: the row as it would be then. Reads only."""

    def begin(self, cluster: Cluster, /) -> Iterable[str]:
        """Mark waiting work to be recreated; return ids of all live work. Called in the transaction of the switch."""

    def tend(self, ids: frozenset[str], /) -> Iterable[str]:
        """Of workloads created for a former scheduler, those still live; work that no longer runs is recreated."""

    def move(self, pool: NodePool, /) -> int:
        """Mark waiting work of the pool to be recreated for its new nodes; return how many. In its transaction."""

    def held_otherwise(self, cluster: Cluster, /) -> Iterable[HeldOtherwise]:
        """Objects whose scheduling fields were seen to be others than those that were written last."""

    def apply_again(self, owner: str, /) -> bool:
        """Have the object of this owner label written again. False: it is no workload's that lives."""


_workforces: Final[list[WorkloadHooks]] = []


def register_hooks(workforce: WorkloadHooks) -> None:
    """Add one; once is enough, again changes nothing."""
    if workforce not in _workforces:
        _workforces.append(workforce)


def work_in(target: Cluster, after: SchedulerFlavour) -> SwitchEffect:
    """What becomes of the work under that scheduler. `target`: the row as it would be then."""
    works = [each.work_in(target, after) for each in _workforces]
    evicted = [work.evicted for work in works]
    return SwitchEffect(
        stays=_sum(work.stays for work in works),
        recreated=_sum(work.recreated for work in works),
        unexpressed=_sum(work.unexpressed for work in works),
        unmanaged=_sum(work.unmanaged for work in works),
        evicted=None if None in evicted else _sum(each for each in evicted if each),
        seconds_at_risk=sum(work.seconds_at_risk for work in works),
        uncounted=sum(work.uncounted for work in works),
    )


def begin(cluster: Cluster) -> set[str]:
    """Mark waiting work to be recreated; return ids of all live work."""
    return {each for workforce in _workforces for each in workforce.begin(cluster)}


def tend(ids: Iterable[str]) -> set[str]:
    wanted = frozenset(ids)
    return {each for workforce in _workforces for each in workforce.tend(wanted)} if wanted else set()


def move(pool: NodePool) -> int:
    """Mark waiting work of the pool to be recreated for its new nodes; return how many."""
    return sum(workforce.move(pool) for workforce in _workforces)


def held_otherwise(cluster: Cluster) -> list[HeldOtherwise]:
    """Objects whose scheduling fields were seen to be others than those that were written last."""
    return [each for workforce in _workforces for each in workforce.held_otherwise(cluster)]


def apply_again(owner: str) -> bool:
    """Have the object of this owner label written again. False: it is no workload's that lives."""
    return any(workforce.apply_again(owner) for workforce in _workforces)


def _sum(parts: Iterable[WorkloadSample]) -> WorkloadSample:
    found = list(parts)
    return WorkloadSample(sum(each.count for each in found), tuple(sample for each in found for sample in each.samples))
