"""The shared part of every eviction rule: take away more than needed, then give back in order of importance."""

from collections.abc import Sequence

from scheduling.board import Board, Seat
from scheduling.decisions import Cause, Evict
from scheduling.model import PodGroup
from scheduling.resources import ZERO, Resources


def not_given_back(removed: Sequence[Seat], headroom: Resources, asked: Resources) -> tuple[Seat, ...]:
    """Who stays removed. `removed` is in order of importance; `headroom` is what is free once all of them are gone.

    Each seat is given back if `asked` still fits beside everything given back so far.
    """
    victims = []
    for seat in removed:
        left = headroom - seat.pod.requests
        if asked.fits_in(left):
            headroom = left
        else:
            victims.append(seat)
    return tuple(victims)


def held(seats: Sequence[Seat]) -> Resources:
    """What these seats free together."""
    return seats[0].pod.requests if len(seats) == 1 else sum((seat.pod.requests for seat in seats), ZERO)


def evictions(
    seats: Sequence[Seat], cause: Cause, group: PodGroup, moves: dict[Seat, str] | None = None
) -> list[Evict]:
    """One decision per victim group, in order of first appearance."""
    by_group: dict[str, list[Seat]] = {}
    for seat in seats:
        by_group.setdefault(seat.group.name, []).append(seat)
    return [_evict(found, cause, group, moves or {}) for found in by_group.values()]


def _evict(seats: list[Seat], cause: Cause, group: PodGroup, moves: dict[Seat, str]) -> Evict:
    return Evict(
        victim=seats[0].group,
        pods=tuple(seat.pod.name for seat in seats),
        cause=cause,
        for_group=group.name,
        nodes={seat.pod.name: seat.pod.node for seat in seats if seat.pod.node is not None},
        moves_to={seat.pod.name: moves[seat] for seat in seats if seat in moves},
    )


def evictable(board: Board, node: str) -> list[Seat]:
    """Seats on a node that are not on their way out already."""
    return [seat for seat in board.seats_on[node] if not seat.leaving]
