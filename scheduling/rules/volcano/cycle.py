"""Volcano: allocate over all queues, then preempt inside a queue, then reclaim across queues.

Source: Volcano 1.15 with the actions allocate, preempt, reclaim, backfill and the plugins priority, gang (not asked
about preemption), conformance, predicates, capacity, nodeorder, binpack; and recorded decisions of it (docs/model.md).
Domains: its plugin network-topology-aware.
`Snapshot.exempt` names actions that the cluster's configuration lacks (as shipped: preempt and reclaim), preemption
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
from operator import attrgetter

from scheduling.model.decisions import Decision, Start, Until, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.volcano.order import Prospects, VolcanoOrder
from scheduling.rules.volcano.state import CasesByQueue, SuitableNodes, VolcanoCandidate, VolcanoState, first_place
from scheduling.state.assignments import Assignment, evictions, held
from scheduling.state.node_capacity import NodeCapacity, matches, selection
from scheduling.state.refusals import impossible, no_room
from scheduling.state.workspace import check_time, workspace

Fits = Callable[[PodGroup, Pod, NodeCapacity], bool]
Promising = Callable[[CasesByQueue], set[str]]


class VolcanoRules:
    """Rules of the flavour `volcano`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Run all actions over the waiting groups, then decide in the order of the snapshot."""
        with workspace(snapshot, VolcanoState) as state:
            state.requeue(snapshot.queues)
            state.about = about
            return list(_VolcanoCycle(snapshot, state, until).run())


class _VolcanoCycle:
    def __init__(self, snapshot: Snapshot, state: VolcanoState, until: Until) -> None:
        self.snapshot = snapshot
        self.state = state
        self.ordering = VolcanoOrder(snapshot, self.state)
        self.prospects = Prospects(self.state, self.ordering)
        self._tells_all = until is not Until.CHANGES
        self._all: list[VolcanoCandidate] = []
        """All waiting groups, unless the state has kept them."""
        self._failed_searches: set[tuple[object, ...]] = set()
        """Searches for victims that found none since the state last changed."""

    def run(self) -> Iterator[Decision]:
        waiting = self._waiting()
        self._allocate(dict(waiting))
        for cases in self._by_queue(self._hungry(waiting, Cause.PREEMPT), self.prospects.preempts):
            for case in filter(self.prospects.finds_all, cases):
                self._evict_for(case, Cause.PREEMPT)
            for case in filter(self.prospects.finds_any, cases):
                self._fill(case)
        for cases in self._by_queue(self._hungry(waiting, Cause.RECLAIM), self.prospects.reclaims):
            for case in filter(self.prospects.may_reclaim, cases):
                self._reclaim_for(case)
        for case in self._all or sorted(self.state.waiting.tried, key=attrgetter("place")):
            if case.tried or not case.least:
                yield from self._decisions(case)

    def _waiting(self) -> CasesByQueue:
        """The groups that are tried, by queue: those kept by the state where refusals for now are left out of all."""
        known = None if self._tells_all else self.state.waiting.by_queue(self.state.least_gpus)
        if known is not None:
            return known
        self._all = [self._candidate(place, group) for place, group in enumerate(self.snapshot.waiting)]
        return _by_queue(case for case in self._all if case.pend is None)

    def _candidate(self, place: int, group: PodGroup) -> VolcanoCandidate:
        least = 0 if self._tells_all else self.state.least_gpus(group)
        return VolcanoCandidate.of(group, place, least, None if least else self._nowhere(group, group.waiting))

    def _hungry(self, waiting: CasesByQueue, action: Cause) -> CasesByQueue:
        """Groups that an action serves; none if the configuration lacks it. Preempt serves no groups of one domain."""
        if action in self.snapshot.exempt.causes:
            return {}
        is_plain = self.state.waiting.is_plain
        lists = [
            cases if not self._all and is_plain(queue) else self._served_by(action, cases)
            for queue, cases in waiting.items()
        ]
        return {cases[0].group.queue: cases for cases in sorted(filter(None, lists), key=first_place)}

    def _served_by(self, action: Cause, cases: list[VolcanoCandidate]) -> list[VolcanoCandidate]:
        active, rigid = self.state.active, action is Cause.PREEMPT
        starving = (case for case in cases if active[case.group.name] < case.group.min_member)
        return [case for case in starving if not (rigid and case.group.topology)]

    def _nowhere(self, group: PodGroup, pods: tuple[Pod, ...]) -> PendingReason | None:
        """Why the group is not tried: no such pool, no such queue, or missing pods; else None."""
        if not self.state.nodes.get(group.pool):
            return PendingReason(Reason.NO_SUCH_POOL, total(pods), pool=group.pool)
        if group.queue not in self.snapshot.queue_by_name:
            return PendingReason(Reason.QUEUE_MISSING, total(pods), queue=group.queue)
        incomplete = self.state.active[group.name] + len(pods) < group.min_member
        return PendingReason(Reason.GANG_INCOMPLETE, total(pods), pool=group.pool) if incomplete else None

    def _starving(self, case: VolcanoCandidate) -> bool:
        return not self.ordering.ready(case.group)

    def _by_queue(self, waiting: CasesByQueue, promising: Promising) -> Iterator[list[VolcanoCandidate]]:
        """Yield the groups of one queue after the other, the next one first, until nothing is done for those left."""
        for queue in self._served(waiting, promising):
            yield sorted(waiting.pop(queue), key=lambda case: self.ordering.job_turn(case.group))

    def _allocate(self, waiting: CasesByQueue) -> None:
        """Place one group at a time: the minimum together, then pod by pod; the queue is chosen again each time."""
        for queue in self._served(waiting, self.prospects.places):
            waiting[queue] = self._place_first(waiting[queue])
            if not waiting[queue]:
                del waiting[queue]

    def _served(self, waiting: CasesByQueue, promising: Promising) -> Iterator[str]:
        """Yield the next promising queue and drop those before it. The caller drops it, unless it changes the state."""
        mark = -1
        while self.state.mark() != mark:
            left, mark, turns = promising(waiting), self.state.mark(), self.ordering.order.turns([*waiting])
            while left and self.state.mark() == mark:
                queue = next(turns)
                if queue in left:
                    left.remove(queue)
                    yield queue
                else:
                    del waiting[queue]

    def _place_first(self, cases: list[VolcanoCandidate]) -> list[VolcanoCandidate]:
        """Place the first of these groups of a queue that can be placed; return those that are still to be tried."""
        mark, left = self.state.mark(), sorted(cases, key=lambda case: self.ordering.job_turn(case.group))
        for index, case in enumerate(left):
            goes_on = self._place(case) and case.untried
            if self.state.mark() != mark:
                return left[index if goes_on else index + 1 :]
        return []

    def _place(self, case: VolcanoCandidate) -> bool:
        """Place up to the minimum, or one more pod. Return whether the group may start now.

        A group of one domain gets the first domain in which it can start, else the first whose capacity is being freed.
        """
        if not self.prospects.finds_nodes(case):
            return False
        self.state.waiting.note_tried(case)
        domains, untried = self.state.domains(case.group), list(case.untried)
        for at_once in (True, False) if len(domains) > 1 else (False,):
            for domain in domains:
                case.untried = list(untried)
                if (startable := self._place_in(case, domain, at_once=at_once)) is not None:
                    return startable
        return False

    def _place_in(self, case: VolcanoCandidate, domain: PodGroup, *, at_once: bool) -> bool | None:
        """The same in one domain. None: it does not fit, or not `at_once`."""
        mark, startable = self.state.mark(), False
        now: dict[str, str] = {}
        later: dict[str, str] = {}
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

    def _capacity(self, case: VolcanoCandidate, domain: PodGroup, pod: Pod) -> NodeCapacity | None:
        """Its nominated node, else the best with free capacity, else the best whose capacity is being freed."""
        group, requested = case.group, pod.requests
        pend = self.state.usage.refusal(group.queue, requested, preemptible=True)
        if pend := pend or (None if case.least else impossible(self.state, group, (pod,))):
            case.pend = case.pend or pend
            return None
        promised = self.state.capacities.get(pod.nominated)
        if promised and promised.fits(requested, now=False) and matches(promised.node, domain):
            return promised
        is_in_vain = case.least and requested.gpu > self.state.largest_gap()
        return None if is_in_vain else SuitableNodes.of(self.state, domain, requested).best()

    def _evict_for(self, case: VolcanoCandidate, cause: Cause) -> None:
        """Evict for the rest of the minimum; all of it or nothing."""
        self.state.waiting.note_tried(case)
        mark = self.state.mark()
        capacities: dict[str, str] = {}
        victims: list[Assignment] = []
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
        self, case: VolcanoCandidate, pod: Pod, cause: Cause
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

    def _reclaim_for(self, case: VolcanoCandidate) -> None:
        if case.group.topology and not case.group.never_preempts:
            self._reclaim_until_near(case)
        else:
            self._evict_for(case, Cause.RECLAIM)

    def _reclaim_until_near(self, case: VolcanoCandidate) -> None:
        """For a gang of one domain: reclaim in cycle after cycle, because capacity anywhere may not let it start.

        Ends when a domain fits it, or once a cycle finds no victim. Evictions up to then are not undone.
        """
        self.state.waiting.note_tried(case)
        while self._starving(case):
            mark = self.state.mark()
            gone: list[Assignment] = []
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

    def _preempt(self, case: VolcanoCandidate, pod: Pod) -> tuple[NodeCapacity, list[Assignment]] | None:
        requested = pod.requests
        weaker, nodes = self.ordering.weaker(case.group, requested), SuitableNodes.of(self.state, case.group, requested)
        enough = {
            capacity for capacity, victims in weaker.items() if requested.served_by(capacity.future + held(victims))
        }
        best_first = sorted(enough.union(nodes.with_room()), key=nodes.key)
        made = (
            (capacity, self._make_room(case, pod, capacity, weaker.get(capacity, []), self._fits))
            for capacity in best_first
        )
        return next(((capacity, victims) for capacity, victims in made if victims is not None), None)

    def _fill(self, case: VolcanoCandidate) -> None:
        """Let waiting groups hold free capacity while the next action evicts for the rest. Starts nothing."""
        self.state.waiting.note_tried(case)
        for pod in () if case.group.never_preempts else tuple(case.left):
            capacity = SuitableNodes.of(self.state, case.group, pod.requests).best_later()
            if capacity is None or not self._fits(case.group, pod, capacity):
                break
            self.state.place(case.group, pod, capacity, now=False)
            self._failed_searches.clear()
            case.kept[pod.name] = capacity.node.name
        if not self._starving(case):
            case.promise(case.kept)

    def _reclaim(self, case: VolcanoCandidate, pod: Pod) -> tuple[NodeCapacity, list[Assignment]] | None:
        if not self.ordering.may_reclaim(case.group.queue, pod.requests):
            return None
        for capacity in self.ordering.reclaim_nodes(case.group, pod.requests):
            found = self.ordering.reclaimable(capacity, case.group, pod.requests)
            victims = None if found is None else self._make_room(case, pod, capacity, found, _has_room)
            if victims is not None:
                return capacity, victims
        return None

    def _make_room(
        self, case: VolcanoCandidate, pod: Pod, capacity: NodeCapacity, victims: list[Assignment], fits: Fits
    ) -> list[Assignment] | None:
        """Evict in order until the pod fits, then place it; None: nothing has changed."""
        check_time()
        if not pod.requests.served_by(capacity.future + held(victims)):
            return None
        mark, turns = self.state.mark(), self.ordering.in_turn(victims, case.group.queue)
        gone: list[Assignment] = []
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

    def _decisions(self, case: VolcanoCandidate) -> Iterator[Decision]:
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

    def _why(self, case: VolcanoCandidate, least: tuple[Pod, ...]) -> PendingReason:
        """The queue's refusal if it has too little for all pods, since more nodes would not help; else the nodes'."""
        group = case.group
        more = total(tuple(pod for pod in least if pod.name not in case.kept))
        over = self.state.usage.refusal(group.queue, more, preemptible=True)
        return over or impossible(self.state, group, least) or no_room(self.state, group, least)


def _alike(pod: Pod, other: Pod | None) -> bool:
    """Whether a node is searched for both in the same way."""
    return other is not None and pod.requests == other.requests and pod.nominated == other.nominated


def _has_room(_group: PodGroup, pod: Pod, capacity: NodeCapacity) -> bool:
    """Whether the pod fits on the node. Reclaim ignores the use of departments."""
    return capacity.fits(pod.requests, now=False)


def _by_queue(cases: Iterable[VolcanoCandidate]) -> CasesByQueue:
    """The groups by queue."""
    found: CasesByQueue = {}
    for case in cases:
        found.setdefault(case.group.queue, []).append(case)
    return found
