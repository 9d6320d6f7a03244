"""What a scheduler admits by quota alone, and the nodes have no room for: free quota in pieces that are too small.

Kueue lets a job go without a look at nodes; its pods then look for some, each for itself, and hold the quota meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scheduling.board import Board
from scheduling.decisions import Evict
from scheduling.model import Pod, PodGroup, Snapshot, Strategy
from scheduling.placement import Room, by_size
from scheduling.resources import ZERO, Resources


@dataclass(frozen=True, slots=True)
class Nodeless:
    """`pods` of `of` that wait find no node. asked: what the largest of those needs; free: in sum, and on one node.

    Of a gang of one domain: its topology, and the domain that takes most of its pods with what is free there.
    """

    pods: int
    of: int
    asked: Resources
    free: Resources
    largest_free: Resources
    topology: str | None = None
    domain: str = ""
    largest_domain: Resources = ZERO


def nodeless(snapshot: Snapshot, group: PodGroup, evicted: Iterable[Evict] = ()) -> Nodeless | None:
    """None: each of its pods finds a node once the evicted are gone, or no node of its pool has been seen.

    Largest pods first, each where it fits best.
    """
    board = Board(_without(snapshot, evicted), default=Strategy.BINPACK)
    if not board.nodes[group.pool]:
        return None
    waiting = sorted(group.waiting, key=lambda pod: by_size(pod.requests), reverse=True)
    tried = [(_without_node(board, domain, waiting), domain) for domain in board.domains(group)]
    without, best = min(tried, key=lambda each: len(each[0]), default=(waiting, group))
    if not without:
        return None
    found = Nodeless(len(without), len(waiting), without[0].requests, *board.rooms.free(group))
    if group.topology is None:
        return found
    free = board.rooms.free(best)[0] if tried else ZERO
    return replace(
        found, topology=group.topology, domain=best.node_selector.get(group.topology, ""), largest_domain=free
    )


def _without_node(board: Board, group: PodGroup, waiting: Iterable[Pod]) -> list[Pod]:
    """Those that find none; the board is left as it was."""
    without: list[Pod] = []
    taken: list[tuple[Room, Resources]] = []
    for pod in waiting:
        room = board.rooms.find(pod.requests, group, Strategy.BINPACK, now=False)
        if room is None:
            without.append(pod)
        else:
            taken.append((room, pod.requests))
            board.rooms.change(room, idle=ZERO - pod.requests, future=ZERO - pod.requests, pods=-1)
    for room, asked in taken:
        board.rooms.change(room, idle=asked, future=asked, pods=1)
    return without


def _without(snapshot: Snapshot, evicted: Iterable[Evict]) -> Snapshot:
    going = {name for evict in evicted for name in evict.pods}
    groups = (replace(each, pods=tuple(pod for pod in each.pods if pod.name not in going)) for each in snapshot.groups)
    return replace(snapshot, groups=tuple(each for each in groups if each.pods))
