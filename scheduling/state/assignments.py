"""Pods on nodes, and the evictions that several of them amount to."""

from collections.abc import Sequence

from scheduling.model.decisions import Cause, Evict
from scheduling.model.resources import Resources, sum_of
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.state.node_capacity import NodeCapacity


class Assignment:
    """A pod on a node. leaving: terminating, or evicted in this cycle. capacity: None on unknown nodes."""

    __slots__ = ("capacity", "device", "group", "leaving", "pod")

    def __init__(self, group: PodGroup, pod: Pod, capacity: NodeCapacity | None) -> None:
        self.group = group
        self.pod = pod
        self.capacity = capacity
        self.leaving = pod.terminating
        self.device = pod.device


def held(assignments: Sequence[Assignment]) -> Resources:
    """Resources that these assignments hold together."""
    return (
        assignments[0].pod.requests
        if len(assignments) == 1
        else sum_of(assignment.pod.requests for assignment in assignments)
    )


def evictions(
    assignments: Sequence[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str] | None = None
) -> list[Evict]:
    """One eviction per victim group, in order of first appearance."""
    by_group: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        by_group.setdefault(assignment.group.name, []).append(assignment)
    return [_evict(found, cause, group, moves or {}) for found in by_group.values()]


def _evict(assignments: list[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str]) -> Evict:
    return Evict(
        victim=assignments[0].group,
        pods=tuple(assignment.pod.name for assignment in assignments),
        cause=cause,
        for_group=group.name,
        nodes={
            assignment.pod.name: assignment.pod.node for assignment in assignments if assignment.pod.node is not None
        },
        moves_to={assignment.pod.name: moves[assignment] for assignment in assignments if assignment in moves},
    )
