"""Waiting work in a replay that its scheduler does not try again at every event.

`Backlog` has the waiting pods of kube-scheduler; only those that may fit now are tried. Pods with equal requests in one
queue share a line. A refusal for lack of capacity holds for all equal requests up to that priority, which can evict no
more, until a node frees capacity that they could use. A refusal for lack of quota holds until the refusing queue frees
some.

`RequeuePause` says what Kueue does not try yet: what it has refused is tried again a pause after quota was freed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Resources, sum_of
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode
from scheduling.rules.kueue.state import turn_key
from scheduling.state.node_capacity import Selection, selection
from scheduling.state.queue_usage import QueueUsageTracker
from scheduling.state.refusals import OF_QUOTA

LOWEST: Final = -(2**63)


@dataclass(eq=False, slots=True)
class _Shape:
    """Equal requests. in_vain: no pod up to this priority fits, because lower priorities can evict no more."""

    gpu: int
    in_vain: int = LOWEST
    lines: list["_Line"] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Line:
    """Waiting pods of one queue with equal requests, as a heap. over: the queue whose quota refuses them."""

    shape: _Shape
    waiting: list[tuple[int, int, str, PodGroup]] = field(default_factory=list)
    over: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether its first pod may fit."""
        return bool(self.waiting) and not self.over and self.waiting[0][3].priority > self.shape.in_vain


class Backlog:
    """The lines, and the requests known not to fit. Updated as pods come and go."""

    def __init__(self, nodes: Iterable[SnapshotNode]) -> None:
        self._free = defaultdict(int, {node.name: node.capacity.gpu for node in nodes})
        self._taken: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._shapes: dict[tuple[Selection, Resources, int, bool], _Shape] = {}
        self._lines: dict[tuple[_Shape, str, bool], _Line] = {}
        self._over: dict[str, list[_Line]] = defaultdict(list)
        self._ready: set[_Line] = set()
        self._expecting: list[PodGroup] = []

    def add(self, group: PodGroup) -> None:
        line = self._line(group)
        heappush(line.waiting, (-group.priority, *group.age, group))
        self._review([line])

    def pop(self) -> PodGroup | None:
        """Remove and return the next pod that may fit: the highest priority, then the oldest."""
        if not self._ready:
            return None
        line = min(self._ready, key=lambda each: each.waiting[0][:3])
        group = heappop(line.waiting)[3]
        self._review([line])
        return group

    def refused(self, group: PodGroup, pend: PendingReason) -> None:
        """Put a refused pod back until capacity or quota that it could use is freed."""
        if pend.reason is Reason.EVICTING:  # a gang is nominated to no nodes: it is tried again once pods have left
            self._expecting.append(group)
            return
        line = self._line(group)
        if pend.reason in OF_QUOTA:
            line.over = pend.queue or group.queue
            self._over[line.over].append(line)
        else:
            line.shape.in_vain = max(line.shape.in_vain, group.priority)
            self._review([each for each in self._ready if each.shape is line.shape])  # no other one becomes ready
        self.add(group)

    def occupy(self, group: PodGroup, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._change(group, pod, pod.requests.gpu)

    def vacate(self, group: PodGroup, pods: Collection[Pod], queues: Collection[str]) -> None:
        """Record that these pods left their nodes and freed their quota."""
        for pod in pods:
            self._change(group, pod, -pod.requests.gpu)
        for line in [line for queue in queues for line in self._over.pop(queue, ())]:
            line.over = ""
            self._review([line])
        self.freed({pod.node for pod in pods})
        while self._expecting:
            self.add(self._expecting.pop())

    def freed(self, nodes: Collection[str | None]) -> None:
        """Record that capacity was freed on these nodes."""
        for shape in self._shapes.values():
            priority = shape.in_vain
            if priority > LOWEST and any(node and self._could_have(node, shape.gpu, priority) for node in nodes):
                shape.in_vain = LOWEST
                self._review(shape.lines)

    def _review(self, lines: Iterable[_Line]) -> None:
        for line in lines:
            (self._ready.add if line.is_ready else self._ready.discard)(line)

    def _change(self, group: PodGroup, pod: Pod, gpu: int) -> None:
        node = pod.node or ""
        self._free[node] -= gpu
        self._taken[node][group.priority] += gpu

    def _could_have(self, node: str, gpu: int, priority: int) -> bool:
        """Whether the node has that many GPUs that are free or held by lower priorities."""
        weaker = sum(held for other, held in self._taken[node].items() if other < priority)
        return self._free[node] + weaker >= gpu

    def _line(self, group: PodGroup) -> _Line:
        requested = group.pods[0].requests
        key = (selection(group), requested, len(group.pods), group.never_preempts)
        shape = self._shapes.setdefault(key, _Shape(requested.gpu))
        found = self._lines.get((shape, group.queue, group.preemptible))
        if found is None:
            found = self._lines[shape, group.queue, group.preemptible] = _Line(shape)
            shape.lines.append(found)
        return found


class RequeuePause:
    """The trees of queues in which quota was freed, and what was refused is not tried again yet.

    The pause begins with the first that frees quota. Work that comes meanwhile is decided at once, unless its equal
    was refused. Source: Kueue 0.19, `requeueBatchPeriod` and the feature gate SchedulingEquivalenceHashing.
    """

    def __init__(self, paths: QueueUsageTracker) -> None:
        self._paths = paths
        self._trees: set[str] = set()

    def begin(self, queue: str) -> str | None:
        """Return the root of its tree if a pause begins there now."""
        root = self._root(queue)
        if root is None or root in self._trees:
            return None
        self._trees.add(root)
        return root

    def end(self, root: str) -> None:
        self._trees.discard(root)

    def untried(self, before: Snapshot, come: Mapping[str, PodGroup]) -> list[str]:
        """Names of waiting groups that are not tried now. before: the state of the last cycle; come: what came since.

        What is behind a workload that waits for its victims was not refused.
        """
        if not self._trees:
            return []
        there = [each for each in before.waiting if each.name not in come and self._root(each.queue) in self._trees]
        heads = {each.queue: turn_key(each) for each in there if any(pod.nominated for pod in each.pods)}
        refused = [each for each in there if each.queue not in heads or turn_key(each) < heads[each.queue]]
        equals = set(map(_equal_key, refused))
        return [each.name for each in (*refused, *(each for each in come.values() if _equal_key(each) in equals))]

    def _root(self, queue: str) -> str | None:
        return next((each.name for each in reversed(self._paths.path(queue))), None)


def _equal_key(group: PodGroup) -> tuple[str, int, int, Resources, Selection]:
    """Equal for groups in one queue that Kueue admits or refuses alike. A group without waiting pods equals none."""
    amount = sum_of(pod.requests for pod in group.waiting)
    return (group.queue, group.priority, len(group.waiting), amount, selection(group))
