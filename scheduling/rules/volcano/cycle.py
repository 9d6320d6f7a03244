"""Volcano: allocate over all queues, then preempt inside a queue, then reclaim across queues.

Source: Volcano 1.15 with the actions allocate, preempt, reclaim, backfill and the plugins priority, gang (not asked
about preemption), conformance, predicates, capacity, nodeorder, binpack; and recorded decisions of it (docs/model.md).
Domains: its plugin network-topology-aware.
`Snapshot.leaves_out` names actions that the cluster's configuration lacks (as shipped: preempt and reclaim), preemption
below the minimum if the plugin gang forbids it, and the actions that the plugin cdp keeps from work inside its minimum
runtime.

- A gang starts its minimum or nothing. If one action refuses it, the next action tries. Only the minimum evicts.
- Preempt: preemptible work of strictly lower priority in the same queue, also to get below the queue's limit. Nodes
  are tried in the scheduler's own order: the first with enough victims is taken, not the one with the smallest loss.
- Reclaim: within the queue's deserved quota, from queues that exceed theirs just before each victim; job priority does
  not matter. The use of departments is not checked, so it may evict for work that then still waits at their limit.
  Nodes are tried in their plain order, and only those with victims: capacity that is free, or that the gang's other
  victims free, does not count elsewhere.
- Victims are not reprieved: all victims taken on the way are evicted, even if a later one alone were enough.
- Gangs are not protected: one pod of a gang may be evicted.
- A gang of one topology domain starts in one domain, and never preempts. Reclaim ignores domains and goes on in the
  next cycle if there are several, so it may evict more than the gang needs, or evict for a gang that still waits.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, filterfalse

from scheduling.model.decisions import Cause, Decision, Start, Until, Wait
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.volcano.order import VolcanoOrder
from scheduling.rules.volcano.state import SuitableNodes, VolcanoState
from scheduling.state.assignments import Assignment, evictions, held
from scheduling.state.node_capacity import NodeCapacity, matches, selection
from scheduling.state.refusals import impossible, no_room
from scheduling.state.workspace import check_time, workspace


@dataclass(slots=True)
class _VolcanoCandidate:
    """A waiting pod group and what the actions of the cycle have decided for it.

    least: GPUs without which none of its pods fits on a node, where refusals for now are left out; else 0.
    """

    group: PodGroup
    left: list[Pod]
    untried: list[Pod]
    least: int = 0
    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    victims: list[Assignment] = field(default_factory=list)
    cause: Cause = Cause.PREEMPT
    over_quota: bool = False
    pend: PendingReason | None = None

    def promise(self, capacities: dict[str, str]) -> None:
        """Nominate these pods to capacity that is about to be freed."""
        self.nominated |= capacities
        self.left = [pod for pod in self.left if pod.name not in capacities]

    def start(self, capacities: dict[str, str]) -> None:
        """Start these pods now."""
        self.placements |= capacities
        self.left = [pod for pod in self.left if pod.name not in capacities]


Fits = Callable[[PodGroup, Pod, NodeCapacity], bool]
InVain = Callable[[_VolcanoCandidate], bool]


class VolcanoRules:
    """Rules of the flavour `volcano`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Run all actions over the waiting groups, then decide in the order of the snapshot."""
        with workspace(snapshot, VolcanoState) as state:
            state.about = about
            return list(_VolcanoCycle(snapshot, state, until).run())


class _VolcanoCycle:
    def __init__(self, snapshot: Snapshot, state: VolcanoState, until: Until) -> None:
        self.snapshot = snapshot
        self.state = state
        self.ordering = VolcanoOrder(snapshot, self.state)
        self._tells_all = until is not Until.CHANGES
        self._failed_searches: set[tuple[object, ...]] = set()
        """Searches for victims that found none since the state last changed."""

    def run(self) -> Iterator[Decision]:
        cases = [self._candidate(group) for group in self.snapshot.waiting]
        ready = [case for case in cases if case.pend is None]
        self._allocate(ready)
        for queue_cases in self._by_queue(self._hungry(ready, Cause.PREEMPT), self._is_stuck):
            for case in filterfalse(self._is_stuck, queue_cases):
                self._evict_for(case, Cause.PREEMPT)
            for case in filterfalse(self._is_stuck, queue_cases):
                self._fill(case)
        for queue_cases in self._by_queue(self._hungry(ready, Cause.RECLAIM), self._reclaims_nothing):
            for case in filterfalse(self._reclaims_nothing, queue_cases):
                self._reclaim_for(case)
        for case in cases:
            yield from self._decisions(case)

    def _candidate(self, group: PodGroup) -> _VolcanoCandidate:
        case = _VolcanoCandidate(group, list(pods := group.waiting), list(pods))
        case.pend = self._nowhere(case)
        if not (case.pend or self._tells_all) and self.state.is_possible(group):
            case.least = min(pod.requests.gpu for pod in pods)
        return case

    def _hungry(self, cases: list[_VolcanoCandidate], action: Cause) -> list[_VolcanoCandidate]:
        """Groups that an action serves; none if the configuration lacks it. Preempt serves no groups of one domain."""
        if action in self.snapshot.leaves_out:
            return []
        rigid = action is Cause.PREEMPT
        return [case for case in cases if self._starving(case) and not (rigid and case.group.topology)]

    def _nowhere(self, case: _VolcanoCandidate) -> PendingReason | None:
        """Why the group is not tried: no such pool, no such queue, or missing pods; else None."""
        group, pods = case.group, tuple(case.left)
        if not self.state.nodes.get(group.pool):
            return PendingReason(Reason.NO_SUCH_POOL, total(pods), pool=group.pool)
        if group.queue not in self.snapshot.queue_by_name:
            return PendingReason(Reason.QUEUE_MISSING, total(pods), queue=group.queue)
        incomplete = self.state.active[group.name] + len(pods) < group.min_member
        return PendingReason(Reason.GANG_INCOMPLETE, total(pods), pool=group.pool) if incomplete else None

    def _is_stuck(self, case: _VolcanoCandidate) -> bool:
        """Whether it certainly finds no node before others are evicted, and its refusal is left out."""
        return case.least > 0 and case.least > self.state.largest_gap() and not self.state.has_weaker(case.group)

    def _starving(self, case: _VolcanoCandidate) -> bool:
        return not self.ordering.ready(case.group)

    def _by_queue(self, cases: list[_VolcanoCandidate], in_vain: InVain) -> Iterator[list[_VolcanoCandidate]]:
        """Yield the groups of one queue after the other, the next one first, until all that are left are in vain."""
        waiting = _grouped(cases)
        while not all(map(in_vain, chain.from_iterable(waiting.values()))):
            mark = self.state.mark()
            for queue in self.ordering.order.turns([*waiting]):
                yield sorted(waiting.pop(queue), key=lambda case: self.ordering.job_turn(case.group))
                if self.state.mark() != mark:
                    break

    def _allocate(self, cases: list[_VolcanoCandidate]) -> None:
        """Place one group at a time: the minimum together, then pod by pod; the queue is chosen again each time."""
        waiting = _grouped(cases)
        while not all(map(self._is_stuck, chain.from_iterable(waiting.values()))):
            mark = self.state.mark()
            for queue in self.ordering.order.turns([*waiting]):
                waiting[queue] = self._place_first(waiting[queue])
                if not waiting[queue]:
                    del waiting[queue]
                if self.state.mark() != mark:
                    break

    def _place_first(self, cases: list[_VolcanoCandidate]) -> list[_VolcanoCandidate]:
        """Place the first of these groups of a queue that can be placed; return those that are still to be tried."""
        mark, left = self.state.mark(), sorted(cases, key=lambda case: self.ordering.job_turn(case.group))
        for index, case in enumerate(left):
            goes_on = self._place(case) and case.untried
            if self.state.mark() != mark:
                return left[index if goes_on else index + 1 :]
        return []

    def _place(self, case: _VolcanoCandidate) -> bool:
        """Place up to the minimum, or one more pod. Return whether the group may start now.

        A group of one domain gets the first domain in which it can start, else the first whose capacity is being freed.
        """
        if self._is_stuck(case):
            return False
        domains, untried = self.state.domains(case.group), list(case.untried)
        for at_once in (True, False) if len(domains) > 1 else (False,):
            for domain in domains:
                case.untried = list(untried)
                if (startable := self._place_in(case, domain, at_once=at_once)) is not None:
                    return startable
        return False

    def _place_in(self, case: _VolcanoCandidate, domain: PodGroup, *, at_once: bool) -> bool | None:
        """The same in one domain. None: it does not fit, or not `at_once`."""
        mark, now, later = self.state.mark(), dict[str, str](), dict[str, str]()
        startable = False
        refused: Pod | None = None
        while case.untried and not startable:
            pod = case.untried.pop(0)
            capacity = None if _alike(pod, refused) else self._capacity(case, domain, pod)
            if capacity is None:
                refused = pod
            else:
                fits = capacity.fits(pod.requests, now=True)
                self.state.place(case.group, pod, capacity, now=fits)
                (now if fits else later)[pod.name] = capacity.node.name
                coming = len(case.nominated) + len(later)
                startable = self.state.active[case.group.name] - coming >= case.group.min_member
        if self._starving(case) or (at_once and not startable):
            self.state.undo(mark)
            return None
        if startable:
            case.start(now)
            case.promise(later)
            case.over_quota = case.over_quota or self.state.usage.over_quota(case.group.queue)
        else:
            case.promise(now | later)
        return startable

    def _capacity(self, case: _VolcanoCandidate, domain: PodGroup, pod: Pod) -> NodeCapacity | None:
        """Its nominated node, else the best with free capacity, else the best whose capacity is being freed."""
        group, asked = case.group, pod.requests
        pend = self.state.usage.refusal(group.queue, asked, preemptible=True)
        if pend := pend or impossible(self.state, group, (pod,)):
            case.pend = case.pend or pend
            return None
        promised = self.state.capacities.get(pod.nominated)
        if promised and promised.fits(asked, now=False) and matches(promised.node, domain):
            return promised
        is_in_vain = not self._tells_all and asked.gpu > self.state.largest_gap()
        return None if is_in_vain else SuitableNodes.of(self.state, domain, asked).best()

    def _evict_for(self, case: _VolcanoCandidate, cause: Cause) -> None:
        """Evict for the rest of the minimum; all of it or nothing."""
        mark, capacities, victims = self.state.mark(), dict[str, str](), list[Assignment]()
        for pod in case.left:
            if pod.name not in case.kept and self._starving(case) and (served := self._evict_for_pod(case, pod, cause)):
                capacities[pod.name] = served[0].node.name
                victims += served[1]
        missed = self._starving(case)
        if missed or case.group.never_preempts:
            self._undo(mark)
        if not missed and case.group.never_preempts:
            case.pend = no_room(self.state, case.group, tuple(case.left), Reason.PREEMPTION_NEVER)
        elif not missed:
            case.promise(capacities | case.kept)
            waits_on = not victims or self.ordering.order.is_beyond(case.group.queue)
            case.victims, case.cause, case.pend = victims, cause, case.pend if waits_on else None

    def _evict_for_pod(
        self, case: _VolcanoCandidate, pod: Pod, cause: Cause
    ) -> tuple[NodeCapacity, list[Assignment]] | None:
        """The pod's node and the victims there; None: none found, or an equal search has failed in this state."""
        search = (cause, case.group.queue, case.group.priority, selection(case.group), pod.requests)
        if search in self._failed_searches:
            return None
        served = self._preempt(case, pod) if cause is Cause.PREEMPT else self._reclaim(case, pod)
        if served:
            self._failed_searches.clear()
        else:
            self._failed_searches.add(search)
        return served

    def _undo(self, mark: int) -> None:
        """Undo what the action did since the mark."""
        if self.state.mark() > mark:
            self._failed_searches.clear()
            self.state.undo(mark)

    def _reclaim_for(self, case: _VolcanoCandidate) -> None:
        if case.group.topology and not case.group.never_preempts:
            self._reclaim_until_near(case)
        else:
            self._evict_for(case, Cause.RECLAIM)

    def _reclaims_nothing(self, case: _VolcanoCandidate) -> bool:
        """Whether its queue may not reclaim for all missing pods, as the search would find out at the last of them.

        Pods of different sizes, and those of one domain, are searched for.
        """
        if case.group.topology and not case.group.never_preempts:
            return False
        asked = [pod.requests for pod in case.left if pod.name not in case.kept]
        missing = case.group.min_member - self.state.active[case.group.name]
        if len(asked) < missing:  # one of its pods was evicted meanwhile
            return True
        if any(each != asked[0] for each in asked):
            return False
        return not self.ordering.may_reclaim(case.group.queue, asked[0] * missing)

    def _reclaim_until_near(self, case: _VolcanoCandidate) -> None:
        """For a gang of one domain: reclaim in cycle after cycle, because capacity anywhere may not let it start.

        Ends when a domain fits it, or once a cycle finds no victim. Evictions up to then are not undone.
        """
        while self._starving(case):
            mark, gone = self.state.mark(), list[Assignment]()
            for pod in case.left:
                if self._starving(case) and (served := self._evict_for_pod(case, pod, Cause.RECLAIM)):
                    gone += served[1]
            missed = self._starving(case)
            self._undo(mark)
            if missed or not gone:
                break
            for assignment in gone:
                self.state.evict(assignment)
            case.victims, case.cause = [*case.victims, *gone], Cause.RECLAIM
            case.untried, case.pend = list(case.left), None
            self._place(case)
            self._failed_searches.clear()

    def _preempt(self, case: _VolcanoCandidate, pod: Pod) -> tuple[NodeCapacity, list[Assignment]] | None:
        weaker, asked = self.ordering.weaker(case.group), pod.requests
        nodes = SuitableNodes.of(self.state, case.group, asked)
        usable = {*weaker, *nodes.with_room()}
        enough = [capacity for capacity in usable if asked.served_by(capacity.future + held(weaker.get(capacity, [])))]
        best_first = sorted(enough, key=nodes.key)
        made = (
            (capacity, self._make_room(case, pod, capacity, weaker.get(capacity, []), self._fits))
            for capacity in best_first
        )
        return next(((capacity, victims) for capacity, victims in made if victims is not None), None)

    def _fill(self, case: _VolcanoCandidate) -> None:
        """Let waiting groups hold free capacity while the next action evicts for the rest. Starts nothing."""
        for pod in () if case.group.never_preempts else tuple(case.left):
            capacity = SuitableNodes.of(self.state, case.group, pod.requests).best_later()
            if capacity is None or not self._fits(case.group, pod, capacity):
                break
            self.state.place(case.group, pod, capacity, now=False)
            self._failed_searches.clear()
            case.kept[pod.name] = capacity.node.name
        if not self._starving(case):
            case.promise(case.kept)

    def _reclaim(self, case: _VolcanoCandidate, pod: Pod) -> tuple[NodeCapacity, list[Assignment]] | None:
        if not self.ordering.may_reclaim(case.group.queue, pod.requests):
            return None
        for capacity in self.ordering.reclaim_nodes(case.group, pod.requests):
            found = self.ordering.reclaimable(capacity, case.group, pod.requests)
            victims = None if found is None else self._make_room(case, pod, capacity, found, _has_room)
            if victims is not None:
                return capacity, victims
        return None

    def _make_room(
        self, case: _VolcanoCandidate, pod: Pod, capacity: NodeCapacity, victims: list[Assignment], fits: Fits
    ) -> list[Assignment] | None:
        """Evict in order until the pod fits, then place it; None: nothing has changed."""
        check_time()
        if not pod.requests.served_by(capacity.future + held(victims)):
            return None
        mark, gone, turns = self.state.mark(), list[Assignment](), self.ordering.in_turn(victims, case.group.queue)
        while not fits(case.group, pod, capacity):
            assignment = next(turns, None)
            if assignment is None:
                self.state.undo(mark)
                return None
            self.state.evict(assignment)
            gone.append(assignment)
        self.state.place(case.group, pod, capacity, now=False)
        return gone

    def _fits(self, group: PodGroup, pod: Pod, capacity: NodeCapacity) -> bool:
        """Whether the pod fits within every limit and on the node."""
        allowed = self.state.usage.refusal(group.queue, pod.requests, preemptible=True) is None
        return allowed and _has_room(group, pod, capacity)

    def _decisions(self, case: _VolcanoCandidate) -> Iterator[Decision]:
        group = case.group
        if case.placements:
            yield Start(group, case.placements, case.over_quota)
        yield from evictions(case.victims, case.cause, group)
        if case.nominated:
            coming = tuple(pod for pod in group.waiting if pod.name in case.nominated)
            pend = case.pend or no_room(self.state, group, coming, Reason.EVICTING)
            yield Wait(group, pend, case.nominated)
        elif case.left and (case.pend or not case.least):
            short = group.min_member - self.state.active[group.name] + len(case.kept)
            least = tuple(case.left[: max(short, 1)])
            yield Wait(group, case.pend or self._why(case, least))

    def _why(self, case: _VolcanoCandidate, least: tuple[Pod, ...]) -> PendingReason:
        """The queue's refusal if it has too little for all pods, since more nodes would not help; else the nodes'."""
        group = case.group
        more = total(tuple(pod for pod in least if pod.name not in case.kept))
        over = self.state.usage.refusal(group.queue, more, preemptible=True)
        return over or impossible(self.state, group, least) or no_room(self.state, group, least)


def _grouped(cases: Iterable[_VolcanoCandidate]) -> dict[str, list[_VolcanoCandidate]]:
    """The groups by queue."""
    found: dict[str, list[_VolcanoCandidate]] = {}
    for case in cases:
        found.setdefault(case.group.queue, []).append(case)
    return found


def _alike(pod: Pod, other: Pod | None) -> bool:
    """Whether a node is searched for both in the same way."""
    return other is not None and pod.requests == other.requests and pod.nominated == other.nominated


def _has_room(_group: PodGroup, pod: Pod, capacity: NodeCapacity) -> bool:
    """Whether the pod fits on the node. Reclaim ignores the use of departments."""
    return capacity.fits(pod.requests, now=False)
