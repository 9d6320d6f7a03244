"""Replay submissions on a cluster by the rules of one scheduler: a discrete-event simulation without clock or chance.

Events are submit, finish and leave (the end of a grace period). All events of one time are applied together, then
the scheduler decides.

- A submission needs all its pods to make progress: its duration counts from the start of the last one. One that loses a
  pod starts over: all its pods end, and it waits again when they are gone. What they held since their start is lost.
- kube-scheduler decides pod by pod, or gang by gang, by priority. A refused pod is tried again once a node frees
  capacity that it could use, or the refusing queue frees quota; a nominated pod or evicting gang once any pods leave.
- For schedulers with queues, waiting work counts for the shares, so every cycle decides about all of it: at most once
  per `interval`, and once more when evicted pods are gone. KAI and Volcano decide again after starts.
- Kueue's admission names no nodes: admitted work runs at once. What it refused is tried again a `pause` after quota was
  freed.

Real schedulers let workloads evict each other for ever, too (docs/model.md). Once all have come and whatever runs has
been evicted 20 times since one has finished, the replay ends.

One state is kept from event to event, and changed by what the event changes (`scheduling.state.workspace.successor`).
All times are in one unit, that of the time stamps in the snapshot.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, Final

from scheduling.forecast.backlog import Backlog, RequeuePause
from scheduling.forecast.cycle import FLAVOURS, Flavour, cycle
from scheduling.model.decisions import Decision, Evict, Start, Until, Wait
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot
from scheduling.state.min_runtime import any_min_runtime
from scheduling.state.queue_usage import QueueUsageTracker
from scheduling.state.workspace import successor

ONE_BY_ONE: Final = frozenset({Flavour.KUBE, Flavour.KUBE_GANGS})
"""What waits there does not change what becomes of others."""
PERIODIC: Final = frozenset({Flavour.KAI, Flavour.VOLCANO})
"""These decide about all that waits again and again. A workload that starts in one cycle is a victim in the next."""
NEVER: Final = frozenset(
    {Reason.NEVER_FITS, Reason.NO_SUCH_POOL, Reason.QUEUE_MISSING, Reason.EXCEEDS_MAX_QUOTA, Reason.GANG_INCOMPLETE}
)
"""Refusals that no event ends."""
ENDLESS: Final = 20
"""Evictions of each submission on the nodes, while none finishes, after which they go on for ever."""
UNNAMED_NODE: Final = "admitted"
_NAMES: Final = [each.name for each in fields(PodGroup)]
_BEFORE_PODS: Final = attrgetter(*_NAMES[: _NAMES.index("pods")])
_AFTER_STARTED: Final = attrgetter(*_NAMES[_NAMES.index("started") + 1 :])


@dataclass(frozen=True, slots=True)
class RecordedSubmission:
    """One workload of a trace: its workers, the requests of each, and its duration once all have started."""

    name: str
    submitted: int
    duration: int
    queue: str
    priority: int
    preemptible: bool
    requests: Resources
    workers: int = 1
    pool: str = "default"
    never_preempts: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)

    def groups(self, flavour: str) -> tuple[PodGroup, ...]:
        """Its pod groups: one per pod for kube-scheduler, one gang for the others."""
        pods = tuple(Pod(f"{self.name}/{number}", self.requests) for number in range(self.workers))
        whole = PodGroup(
            name=self.name,
            queue=self.queue,
            namespace=self.queue,
            priority=self.priority,
            preemptible=self.preemptible,
            pods=pods,
            min_member=self.workers,
            created=self.submitted,
            pool=self.pool,
            never_preempts=self.never_preempts,
            node_selector=self.node_selector,
            gang=flavour == Flavour.KUBE_GANGS and self.workers > 1,
        )
        if flavour != Flavour.KUBE or self.workers == 1:
            return (whole,)
        return tuple(replace(whole, name=pod.name, pods=(pod,), min_member=1) for pod in pods)


@dataclass(slots=True)
class ReplayedSubmission:
    """The outcome of a submission. started: when all its pods first ran. never: why it can never start.

    lost: GPU thousandths times time of evicted runs.
    """

    submission: RecordedSubmission
    started: int | None = None
    finished: int | None = None
    evictions: int = 0
    lost: int = 0
    never: Reason | None = None
    run: int = 0
    placed: dict[str, tuple[PodGroup, int]] = field(default_factory=dict)
    """Its pod groups that have pods on nodes, and since when."""

    @property
    def complete(self) -> bool:
        """Whether all its pods run."""
        on_nodes = sum(len(group.holding) for group, _since in self.placed.values())
        return on_nodes == self.submission.workers


class _Kind(IntEnum):
    """Kinds of events, in the order in which those of one time are applied."""

    FINISH = 0
    LEAVE = 1
    SUBMIT = 2
    WAKE = 3
    REQUEUE = 4


class ClusterReplay:
    """A cluster without pods to begin with, and the submissions that come to it. Mutable.

    grace: how long evicted pods keep their capacity. interval: the least time between two cycles of a scheduler with
    queues. pause: before Kueue tries again what it refused; it has no effect unless it is longer than the interval.
    Raises ValueError for a flavour without a model, and where two submissions share a name.
    """

    def __init__(
        self,
        base: Snapshot,
        submissions: Sequence[RecordedSubmission],
        *,
        flavour: str,
        grace: int = 0,
        interval: int = 0,
        pause: int = 0,
    ) -> None:
        if flavour not in FLAVOURS:
            raise ValueError(f"no model of the scheduler {flavour!r}; there is one of {', '.join(FLAVOURS)}")
        self.runs = {each.name: ReplayedSubmission(each) for each in submissions}
        if len(self.runs) != len(submissions):
            raise ValueError("two submissions share a name")
        self.ended = 0
        """Submissions that have finished, or never can."""
        self.use: list[tuple[int, int, int]] = []
        """Moments at which it changed, with GPU thousandths in use and waiting from then on."""
        self.endless: Sequence[str] = ()
        """Submissions that were evicted again and again when the replay ended for that."""
        self._to_come = len(self.runs)
        self._evicted_again = Counter[str]()
        """How often submissions have been evicted since one has come or finished."""
        self._flavour, self._grace, self._interval = flavour, grace, interval
        self._pause = pause if flavour == Flavour.KUEUE and pause > interval else 0
        self._snapshot = base
        self._paths = QueueUsageTracker(base.queues)
        self._requeue = RequeuePause(self._paths)
        self._protects = any_min_runtime(base)
        self._backlog = Backlog(base.nodes) if flavour in ONE_BY_ONE else None
        self._events = [(each.submitted, _Kind.SUBMIT, each.name, 0) for each in submissions]
        heapify(self._events)
        self._gone: set[str] = set()
        self._come: dict[str, PodGroup] = {}
        self._held = self._waiting = 0
        self._next = self._events[0][0] if self._events else 0
        self._open = self._urgent = self._vacated = False

    def advance(self, moments: int) -> bool:
        """Process up to this many times. Return False if none is left."""
        for _ in range(moments):
            if not self._events:
                return False
            self._moment()
            if not self._to_come and max(self._evicted_again.values(), default=0) >= ENDLESS:
                self._end_if_endless()
        return bool(self._events)

    def _end_if_endless(self) -> None:
        running = [name for name, run in self.runs.items() if run.placed]
        if running and all(self._evicted_again[name] >= ENDLESS for name in running):
            self.endless = sorted(name for name, count in self._evicted_again.items() if count >= ENDLESS)
            self._events.clear()

    def _moment(self) -> None:
        now = self._events[0][0]
        while self._events and self._events[0][0] == now:
            _at, kind, name, run = heappop(self._events)
            if kind is _Kind.SUBMIT:
                self._to_come -= 1
                self._evicted_again.clear()
                self._enter(self.runs[name].submission, self.runs[name].submission.groups(self._flavour))
            elif kind is _Kind.FINISH and self.runs[name].run == run:
                self.runs[name].finished = now
                self.ended += 1
                self._evicted_again.clear()
                self._vacate(self.runs[name], now)
            elif kind is _Kind.LEAVE:
                self._urgent = True
                self._restart(self.runs[name], now)
            elif kind is _Kind.REQUEUE:
                self._requeue.end(name)
                self._open = True
        if self._backlog is not None:
            self._commit(now)
            self._decide_one_by_one(self._backlog, now)
        else:
            self._decide_about_all(now)
        if not self.use or self.use[-1][1:] != (self._held, self._waiting):
            self.use.append((now, self._held, self._waiting))

    def _enter(self, submission: RecordedSubmission, groups: Iterable[PodGroup]) -> None:
        """Add these groups as waiting."""
        self._open = True
        for group in groups:
            self._waiting += group.total.gpu
            if self._backlog is None:
                self._come[group.name] = group
            else:
                self._backlog.add(group)

    def _vacate(self, run: ReplayedSubmission, now: int) -> list[PodGroup]:
        """Remove its pods from their nodes."""
        left = [group for group, _since in run.placed.values()]
        run.placed.clear()
        self._open = self._vacated = True
        if self._pause and (root := self._requeue.begin(run.submission.queue)):
            heappush(self._events, (now + self._pause, _Kind.REQUEUE, root, 0))
        for group in left:
            held = tuple(pod for pod in group.pods if pod.node is not None)
            self._held -= sum(pod.requests.gpu for pod in held)
            self._come.pop(group.name, None)
            self._gone.add(group.name)
            if self._backlog is not None:
                self._backlog.vacate(group, held, [queue.name for queue in self._paths.path(group.queue)])
        return left

    def _restart(self, run: ReplayedSubmission, now: int) -> None:
        """Replace its evicted pods by waiting ones. For kube-scheduler they are new, and queue behind their equals."""
        for group in self._vacate(run, now):
            waiting = sum(pod.requests.gpu for pod in group.waiting)
            self._waiting -= waiting
            self._gone.discard(group.name)
            fresh = _with_pods(group, tuple([Pod(pod.name, pod.requests) for pod in group.pods]), None)
            if self._backlog is not None:
                self._gone.add(group.name)
                fresh = replace(fresh, created=now)
            self._enter(run.submission, [fresh])

    def _commit(self, now: int) -> None:
        """Apply the collected changes to the state of the next cycle, which is that of this time."""
        if self._gone or self._come or (self._backlog is None and self._snapshot.now != now):
            self._snapshot = successor(self._snapshot, self._gone, self._come.values(), now=now)
        self._gone.clear()
        self._come.clear()

    def _decide_about_all(self, now: int) -> None:
        if not (self._open and self._has_waiting()):
            return
        if now < self._next and not self._urgent:
            heappush(self._events, (self._next, _Kind.WAKE, "", 0))
            return
        self._open, self._urgent, self._next = False, False, now + self._interval
        untried = self._requeue.untried(self._snapshot, self._come)
        self._commit(now)
        tried = self._snapshot.changed(untried, (), now=now) if untried else self._snapshot
        decisions = cycle(tried, flavour=self._flavour, about=(), until=Until.CHANGES) if tried.waiting else []
        self._apply(decisions, now)
        if self._interval and self._may_evict_next(decisions) and self._has_waiting():
            self._open = True
            heappush(self._events, (self._next, _Kind.WAKE, "", 0))

    def _may_evict_next(self, decisions: Sequence[Decision]) -> bool:
        """Whether the next cycle may evict though nothing else happens: what just started, or has run long enough."""
        just_started = self._flavour in PERIODIC and any(isinstance(each, Start) for each in decisions)
        return just_started or bool(self._protects and self._held)

    def _has_waiting(self) -> bool:
        """Whether any work waits after the collected changes."""
        stays = any(each.name not in self._gone and each.name not in self._come for each in self._snapshot.waiting)
        return stays or any(group.waiting for group in self._come.values())

    def _decide_one_by_one(self, backlog: Backlog, now: int) -> None:
        """Decide by priority. While a popped group is decided, nominated pods of lower priority are left out."""
        is_due, self._vacated = self._vacated, False
        while (group := backlog.pop()) is not None:
            lower = [each.name for each in self._snapshot.waiting if each.priority < group.priority]
            trial = self._snapshot.changed(lower, (group,), now=now)
            decisions = cycle(trial, flavour=self._flavour, about=())
            is_due = is_due or (bool(lower) and any(not isinstance(each, Wait) for each in decisions))
            self._apply(decisions, now)
        if is_due and self._snapshot.waiting:
            self._apply(cycle(self._snapshot, flavour=self._flavour, about=()), now)

    def _apply(self, decisions: Sequence[Decision], now: int) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self._start(decision, now)
            elif isinstance(decision, Evict):
                self._evict(decision.victim, now)
            else:
                self._wait(decision)
        if self._backlog is not None:
            self._commit(now)

    def _start(self, start: Start, now: int) -> None:
        known = self._come.get(start.group.name, start.group)
        nodes = start.placements or {pod.name: UNNAMED_NODE for pod in known.waiting}
        pods = tuple([_on(nodes[pod.name], pod) if pod.name in nodes else pod for pod in known.pods])
        group = _with_pods(known, pods, now if known.started is None else known.started)
        run = self.runs[_owner(group)]
        since = run.placed.get(group.name, (group, now))[1]
        run.placed[group.name] = (group, since)
        self._come[group.name] = group
        gpu = sum(pod.requests.gpu for pod in start.pods)
        self._held, self._waiting = self._held + gpu, self._waiting - gpu
        if self._backlog is not None:
            self._backlog.occupy(group, [pod for pod in pods if pod.name in nodes])
        if run.complete:
            run.started = now if run.started is None else run.started
            heappush(self._events, (now + run.submission.duration, _Kind.FINISH, run.submission.name, run.run))

    def _evict(self, victim: PodGroup, now: int) -> None:
        """Evict all pods of the submission, once."""
        run = self.runs[_owner(victim)]
        groups = [group for group, _since in run.placed.values()]
        if any(pod.terminating for group in groups for pod in group.pods):
            return
        run.evictions += 1
        run.run += 1
        self._evicted_again[run.submission.name] += 1
        for group, since in list(run.placed.values()):
            run.lost += (now - since) * sum(pod.requests.gpu for pod in group.holding)
            pods = tuple(
                [Pod(pod.name, pod.requests, pod.node, pod.node is not None, pod.nominated) for pod in group.pods]
            )
            run.placed[group.name] = (_with_pods(group, pods, group.started), since)
            self._come[group.name] = run.placed[group.name][0]
        heappush(self._events, (now + self._grace, _Kind.LEAVE, run.submission.name, run.run))

    def _wait(self, wait: Wait) -> None:
        group = self._come.get(wait.group.name, wait.group)
        if wait.pend.code in NEVER and not group.holding:
            self._drop(group, wait.pend.code)
        elif self._backlog is not None:
            self._keep(self._backlog, group, wait)
        elif self._flavour == Flavour.KUEUE and wait.nominated:
            pods = tuple([replace(pod, nominated=wait.nominated[pod.name]) for pod in group.pods])
            if pods != group.pods:
                self._come[group.name] = _with_pods(group, pods, group.started)

    def _drop(self, group: PodGroup, reason: Reason) -> None:
        run = self.runs[_owner(group)]
        self.ended += run.never is None
        run.never = reason
        self._waiting -= sum(pod.requests.gpu for pod in group.waiting)
        if self._snapshot.group(group.name) is not None:
            self._gone.add(group.name)

    def _keep(self, backlog: Backlog, group: PodGroup, wait: Wait) -> None:
        """Keep nominated pods in the state; put the others back into the backlog."""
        nodes = {**wait.nominated, **wait.reserved}
        before, after = {pod.nominated for pod in group.waiting if pod.nominated}, set(nodes.values())
        known, waiting = self._snapshot.group(group.name), group
        if before or after:
            pods = tuple(replace(pod, nominated=nodes.get(pod.name)) for pod in group.pods)
            waiting = _with_pods(group, pods, group.started)
        if not after:
            if known is not None:
                self._gone.add(group.name)
            backlog.refused(waiting, wait.pend)
        elif known is not group or before != after:
            self._come[group.name] = waiting
        if before - after:
            backlog.freed(before - after)


def _on(node: str, pod: Pod) -> Pod:
    """The pod on a node."""
    return Pod(pod.name, pod.requests, node, pod.terminating, pod.nominated)


def _with_pods(group: PodGroup, pods: tuple[Pod, ...], started: int | None) -> PodGroup:
    """The group with other pods. Not by `dataclasses.replace`, which takes 2.5 times as long: every step of a workload
    needs one.
    """
    values: tuple[Any, ...] = (*_BEFORE_PODS(group), pods, group.min_member, started, *_AFTER_STARTED(group))
    return PodGroup(*values)


def _owner(group: PodGroup) -> str:
    """Name of the submission that the group belongs to."""
    return group.pods[0].name.rpartition("/")[0]
