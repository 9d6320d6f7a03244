"""The shared part of every eviction rule: what seats hold, and one decision per victim group."""

from collections.abc import Sequence

from scheduling.model.decisions import Cause, Evict
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup
from scheduling.state.cluster_state import Assignment


def held(seats: Sequence[Assignment]) -> Resources:
    """What these seats free together."""
    return seats[0].pod.requests if len(seats) == 1 else sum((seat.pod.requests for seat in seats), ZERO)


def evictions(
    seats: Sequence[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str] | None = None
) -> list[Evict]:
    """One decision per victim group, in order of first appearance."""
    by_group: dict[str, list[Assignment]] = {}
    for seat in seats:
        by_group.setdefault(seat.group.name, []).append(seat)
    return [_evict(found, cause, group, moves or {}) for found in by_group.values()]


def _evict(seats: list[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str]) -> Evict:
    return Evict(
        victim=seats[0].group,
        pods=tuple(seat.pod.name for seat in seats),
        cause=cause,
        for_group=group.name,
        nodes={seat.pod.name: seat.pod.node for seat in seats if seat.pod.node is not None},
        moves_to={seat.pod.name: moves[seat] for seat in seats if seat in moves},
    )
