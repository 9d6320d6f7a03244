"""When waiting pod groups start: the model run forward, from the end of one run to the end of the next.

The caller passes the end times of runs as samples; there is no clock and no randomness here. After each end the
scheduler decides one cycle, and another one after evictions. What starts on nodes of evicted or terminating pods starts
when the grace of these pods is over; until then they hold nothing else up. An evicted workload waits again and repeats
its whole run when it restarts. No new submissions and no changes of nodes or quotas are assumed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

from scheduling.forecast.cycle import Flavour, cycle
from scheduling.model.decisions import Decision, Evict, Start, Until, Wait
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, Strategy
from scheduling.state.cluster_state import SchedulingState, packed_state
from scheduling.state.workspace import SavedSnapshot, check_time, successor, workspace

MOST_CYCLES: Final = 3
"""At one moment: groups that evict each other for ever do not stop the course of time."""
GRACE: Final = 30_000_000
"""Of evicted pods: the default of Kubernetes, where the caller knows no other."""
SHORTEST_STEP: Final = 60_000_000
STEP_SHARE: Final = 5
"""Runs that end within a minute of each other, or within a fifth of the time gone by, end in one step: thousands of
ends then take some thirty cycles, and a start comes late by at most as much."""
PLACES_NO_PODS: Final = frozenset({Flavour.KUEUE})
"""These admit without a look at nodes; another scheduler then finds a node for each pod."""
HOPELESS: Final = frozenset({Reason.NEVER_FITS, Reason.NO_SUCH_POOL, Reason.QUEUE_MISSING, Reason.EXCEEDS_MAX_QUOTA})
"""Whatever ends, these wait: the model does not ask about them again."""


@dataclass(frozen=True, slots=True)
class AwaitedStart:
    """The pod groups of one workload. It has started once this many of their pods have a node."""

    groups: frozenset[str]
    pods: int


@dataclass(frozen=True, slots=True)
class RunSample:
    """End times and durations by pod group, in the unit of the time stamps. Missing groups never end.

    ends: end times of groups that run in the snapshot. lasts: durations of groups that start later.
    """

    ends: Mapping[str, int]
    lasts: Mapping[str, int]


def start_times(
    snapshot: Snapshot,
    awaited: Sequence[AwaitedStart],
    samples: Iterable[RunSample],
    *,
    flavour: str,
    until: int,
    leaves: Mapping[str, int] | None = None,
    graces: Mapping[str, int] | None = None,
) -> Iterator[tuple[int | None, ...]]:
    """Return, per sample, the start time of each workload; None if it does not start before `until`.

    leaves: end of the grace of terminating pods, by name of the pod; missing ones have all of their grace left.
    graces: grace of pods by name, in the unit of the time stamps; missing ones have `GRACE`.
    Raises ValueError if the snapshot has no time or its scheduler no model, and OutOfTime as a cycle does.
    """
    if snapshot.now is None:
        raise ValueError("a snapshot without a moment has no course")
    course = _Course(replace(snapshot, groups=snapshot.groups), flavour, graces or {})  # with working states of its own
    course.begin(leaves or {})
    course.keep()
    for sample in samples:
        yield course.run(sample, awaited, until)
        course.rewind()


class _Course:
    """The cluster at one time of a sample."""

    def __init__(self, state: Snapshot, flavour: str, graces: Mapping[str, int]) -> None:
        self._flavour, self._graces = flavour, graces
        self._state = state
        self._saved = SavedSnapshot(state)
        self._started: dict[str, int] = {}  # by group that has started since the snapshot
        self._evicted: set[str] = set()
        self._changed: set[str] = set()  # names of groups that changed at the present time
        self._frees: dict[str, int] = {}  # end of the last grace by node that evicted or terminating pods held
        self._again = False  # whether the cycle follows another one of the same time, which has started what fits now
        self._kept: tuple[dict[str, int], set[str], dict[str, int]] = {}, set(), {}

    @property
    def now(self) -> int:
        return self._state.now or 0

    def begin(self, leaves: Mapping[str, int]) -> None:
        """Decide about the snapshot, then without its terminating pods and the groups that can never start."""
        ending = self._state.ending
        self.decide(first=True)
        for pod in (pod for each in ending for pod in each.pods if pod.terminating):
            self._free(pod.node or "", leaves.get(pod.name, self._grace_end(pod.name)))
        if left := [_without_terminating(each) for each in self._state.ending]:
            gone = [each.name for each in left if not each.pods]
            self._state = successor(self._state, gone, [each for each in left if each.pods], now=self.now)
            self.decide(again=True)

    def _grace_end(self, pod: str) -> int:
        """When the grace ends of a pod that is evicted now."""
        return self.now + self._graces.get(pod, GRACE)

    def _free(self, node: str, end: int) -> None:
        self._frees[node] = max(self._frees.get(node, 0), end)

    def keep(self) -> None:
        """Save the state at which every sample begins."""
        self._saved = SavedSnapshot(self._state)
        self._kept = {**self._started}, {*self._evicted}, {**self._frees}

    def rewind(self) -> None:
        """Restore the state at which every sample begins."""
        self._state = self._saved.rewind(self._state)
        self._started, self._evicted, self._frees = {**self._kept[0]}, {*self._kept[1]}, {**self._kept[2]}

    def run(self, sample: RunSample, awaited: Sequence[AwaitedStart], until: int) -> tuple[int | None, ...]:
        """Run the sample forward; return the start times, None for what does not start before `until`."""
        found: list[int | None] = [None] * len(awaited)
        begin, waiting = self.now, set(range(len(awaited)))
        ends = [(end, name) for name, end in sample.ends.items()]
        ends += [(end, name) for name in self._started if (end := self._end(sample, name)) is not None]
        heapify(ends)
        candidates = list(waiting)
        while True:
            check_time()
            for index in candidates:
                if self._has_started(awaited[index]):
                    found[index] = self._moment(awaited[index])
                    waiting.remove(index)
            step, gone = self._step(sample, ends, begin) if waiting else (None, ())
            if step is None or step > until:
                return tuple(found)
            self._changed.clear()
            self._exchange(gone, (), now=step)
            self.decide()
            candidates = [index for index in waiting if not self._changed.isdisjoint(awaited[index].groups)]
            for name in self._changed & self._started.keys():
                if (end := self._end(sample, name)) is not None:
                    heappush(ends, (end, name))

    def _step(self, sample: RunSample, ends: list[tuple[int, str]], begin: int) -> tuple[int | None, list[str]]:
        """The next end of a run, or the last of several ends that follow within one step; and the runs that end."""
        step: int | None = None
        soon = 0
        gone: dict[str, None] = {}
        while ends and (step is None or max(ends[0][0], self.now) <= soon):
            end, name = heappop(ends)
            if end == self._end(sample, name):  # else it runs no more, or has been evicted meanwhile
                at = max(end, self.now)
                if step is None:
                    soon = at + max(SHORTEST_STEP, (at - begin) // STEP_SHARE)
                step = at
                gone[name] = None
        return step, [*gone]

    def _exchange(self, gone: Sequence[str], come: Sequence[PodGroup], *, now: int) -> None:
        if not gone and not come and now == self.now:
            return
        self._state = successor(self._state, gone, come, now=now)
        for group in come:
            self._changed.add(group.name)
            if not group.holding:
                self._evicted.add(group.name)
                self._started.pop(group.name, None)
            elif self._started_after_snapshot(group.name):
                self._started.setdefault(group.name, self._start_of(group, now))

    def _start_of(self, group: PodGroup, now: int) -> int:
        """When it starts: once the grace is over on its nodes, if pods were evicted there for it."""
        freed = [self._frees.get(pod.node or "", 0) for pod in group.pods if self._again]
        return max([now, *freed])

    def _moment(self, awaited: AwaitedStart) -> int:
        """Present time, or the end of the grace of the pods that it waits for."""
        return max([self.now, *(self._started.get(name, 0) for name in awaited.groups)])

    def _started_after_snapshot(self, name: str) -> bool:
        """Whether it started after the snapshot."""
        group = self._saved.snapshot.group_by_name[name]
        return name in self._evicted or not group.holding

    def decide(self, *, first: bool = False, again: bool = False) -> None:
        """Run cycles at this time until one evicts nothing. first: drop groups that can never start.

        again: cycles of this time have started what fits without the terminating pods.
        """
        for number in range(MOST_CYCLES):
            self._again = again or number > 0
            if not self._state.waiting:
                return
            decisions = cycle(self._state, flavour=self._flavour, about=(), until=Until.CHANGES)
            gone, come = _hopeless(decisions) if first else (), self._after(decisions)
            if self._flavour in PLACES_NO_PODS:
                self._exchange(gone, [group for group in come if group.started is None], now=self.now)
                gone, come = (), _placed(self._state, [group for group in come if group.started is not None])
            self._exchange(gone, come, now=self.now)
            evicts = [each for each in decisions if isinstance(each, Evict)]
            for pod, node in (place for each in evicts for place in each.nodes.items()):
                self._free(node, self._grace_end(pod))
            if not evicts:
                return

    def _after(self, decisions: Sequence[Decision]) -> list[PodGroup]:
        """The groups that a cycle changes, after the change."""
        found: dict[str, PodGroup] = {}
        for each in decisions:
            name = (each.victim if isinstance(each, Evict) else each.group).name
            before = found.get(name) or self._state.group_by_name[name]
            after = _changed_by(each, before, self.now)
            if after is not before and after != before:  # most wait as before
                found[name] = after
        return [*found.values()]

    def _end(self, sample: RunSample, name: str) -> int | None:
        """End time of a group that runs now and has one."""
        end = None if name in self._evicted else sample.ends.get(name)
        if name in self._started:
            end = self._started[name] + sample.lasts[name] if name in sample.lasts else None
        return end if name in self._state.group_by_name else None

    def _has_started(self, awaited: AwaitedStart) -> bool:
        groups = filter(None, map(self._state.group_by_name.get, awaited.groups))
        return sum(len(group.holding) for group in groups) >= awaited.pods


def _without_terminating(group: PodGroup) -> PodGroup:
    return replace(group, pods=tuple(pod for pod in group.pods if not pod.terminating))


def _hopeless(decisions: Sequence[Decision]) -> list[str]:
    return [each.group.name for each in decisions if isinstance(each, Wait) and each.pend.code in HOPELESS]


def _changed_by(decision: Decision, group: PodGroup, now: int) -> PodGroup:
    """The group after this decision."""
    if isinstance(decision, Start):
        pods = (_on(decision.placements.get(pod.name, pod.node), pod) for pod in group.pods)
        return replace(group, pods=tuple(pods), started=now if group.started is None else group.started)
    if isinstance(decision, Wait):
        named = decision.nominated
        pods = (replace(pod, nominated=named.get(pod.name, pod.nominated)) for pod in group.pods)
        return replace(group, pods=tuple(pods)) if named else group
    gone, moves = frozenset(decision.pods), decision.moves_to
    pods = (
        replace(pod, node=moves.get(pod.name), nominated=None, started=None) if pod.name in gone else pod
        for pod in group.pods
    )
    left = replace(group, pods=tuple(pods))
    return left if left.holding else replace(left, started=None, let_in=None)


def _on(node: str | None, pod: Pod) -> Pod:
    """The pod on a node, or waiting for one; no longer nominated."""
    unchanged = pod.node == node and pod.nominated is None
    return pod if unchanged else replace(pod, node=node, nominated=None)


def _nodes_only(snapshot: Snapshot) -> SchedulingState:
    """Free capacity of nodes, without the queues, of which the admission takes care."""
    return packed_state(replace(snapshot, queues=()))


def _placed(snapshot: Snapshot, started: Sequence[PodGroup]) -> list[PodGroup]:
    """The groups that start, then all of which pods now fit on nodes, by priority, then by age."""
    admitted = [*(each for each in snapshot.waiting if each.started is not None), *started]
    found: dict[str, PodGroup] = {}
    with workspace(snapshot, _nodes_only) as state:
        for group in sorted(admitted, key=lambda each: (-each.priority, each.created)):
            nodes: dict[str, str] = {}
            for pod in group.waiting:
                if capacity := state.capacities.find(pod.requests, group, Strategy.BINPACK, now=True):
                    state.place(group, pod, capacity, now=True)
                    nodes[pod.name] = capacity.node.name
            if nodes:
                pods = (replace(pod, node=nodes.get(pod.name, pod.node)) for pod in group.pods)
                found[group.name] = replace(group, pods=tuple(pods))
    return [*(group for group in started if group.name not in found), *found.values()]
