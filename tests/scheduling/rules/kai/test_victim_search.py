"""KAI's search for victims, against a plain one that looks at every victim and leaves nothing out."""

import gc
import weakref
from collections.abc import Iterator, Mapping
from random import Random
from unittest.mock import PropertyMock, patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import OutcomeKind
from scheduling.model.resources import ZERO
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode
from scheduling.rules.kai import victims
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.rules.kai.scenarios import Generator, PotentialVictims, VictimLine
from scheduling.rules.kai.solver import Solution, Solver
from scheduling.rules.kai.victims import Unit, Victim, VictimOrder, VictimQueue, by_unit, victim_order
from scheduling.state.cluster_state import packed_state
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.test_invariants import modest

LEAVES = ("qa", "qb", "qc", "qd")
ABOVE = {"qa": "d1", "qb": "d1", "qc": "d2", "qd": "top"}
PRIORITIES = (25, 40, 65, 80, 90, 125)
OVERCOMMITTED = 0.02
ENDLESS = 10**9
chances = st.builds(Random, st.integers(0, 2**32))


def contested(chance: Random) -> Snapshot:
    """Some full nodes, of queues that have more and less than they deserve; a few gangs are on several; some wait."""
    nodes = [node(f"n{number}", chance.choice([4, 4, 8]), order=number) for number in range(chance.randrange(3, 10))]
    gpus = sum(each.capacity.gpu for each in nodes) // 1000
    inner = [queue("top", deserved=None), *(queue(name, "top", deserved=gpus // 2) for name in ("d1", "d2"))]
    leaves = [
        queue(
            name,
            above,
            deserved=chance.choice([0, gpus // 4, gpus // 4]),
            limit=chance.choice([None, None, gpus // 2]),
            weight=chance.randrange(3),
            rank=chance.choice([100, 100, 110]),
            created=chance.randrange(2),
        )
        for name, above in ABOVE.items()
    ]
    waiting = [newcomer(f"waiting-{number}", chance) for number in range(chance.choice([0, 0, 1, 3]))]
    return snapshot(*nodes, *inner, *leaves, *running_on(nodes, chance), *waiting)


def running_on(nodes: list[SnapshotNode], chance: Random) -> list[PodGroup]:
    """Single pods and gangs until nearly everything is in use."""
    free = {each.name: each.capacity.gpu // 1000 for each in nodes}
    gangs, spare, found = chance.choice([0, 0.2, 0.5]), chance.choice([0, 2, 4, 6]), list[PodGroup]()
    while sum(free.values()) > spare:
        gpus, places = chance.choice([1, 1, 1, 2]), list[str]()
        for _pod in range(chance.choice([2, 3]) if chance.random() < gangs else 1):
            fitting = [name for name, left in free.items() if left >= gpus or chance.random() < OVERCOMMITTED]
            if fitting:
                places.append(chance.choice(fitting))
                free[places[-1]] -= gpus
        number, least = len(found), chance.choice([1, max(len(places), 1)])
        found += [work(f"w{number}", gpus, places, least, chance)] if places else []
    return found


def work(name: str, gpus: int, places: list[str], least: int, chance: Random) -> PodGroup:
    return gang(
        name,
        queue=LEAVES[min(int(abs(chance.gauss(0, 1.5))), 3)],
        priority=chance.choice(PRIORITIES),
        gpus=gpus,
        pods=len(places),
        min_member=least,
        nodes=tuple(places),
        started=int(name[1:]),
        created=int(name[1:]),
    )


def newcomer(name: str, chance: Random) -> PodGroup:
    gpus, pods = chance.choice([0, 1, 2, 2, 4, 4]), chance.choice([1, 1, 2, 3, 4])
    return gang(name, queue=chance.choice(LEAVES), priority=chance.choice(PRIORITIES), gpus=gpus, pods=pods, created=99)


def every_step(potential: PotentialVictims, *, local: bool) -> Iterator[None]:
    """A scenario may be tried after each victim with which all could fit; everything is counted again every time."""
    line = potential._line
    for place in line.places(-1):
        if place in potential._skipped:
            continue
        potential._place = place
        potential._met |= {index for index, _gpu in line.victim(place).capacities} & potential._recorded.keys()
        for index in range(len(line.free)):
            before, freed = potential._recorded.get(index, ZERO), potential._freed(index)
            potential._free[index] = line.free[index] + before.gpu + freed.gpu
            potential._gained[index] = potential._gain(index, before, freed)
            if potential._on(index) and potential._free[index] + potential._overdrawn(index) >= potential._least:
                potential._large.add(index)
        if potential._slots + sum(potential._gained.values()) >= potential._wanted:
            yield


def every_search(solver: Solver, pods: tuple[Pod, ...], generator: Generator, most: int | None) -> Solution | None:
    """All pods are searched for once more at the end, whatever came before."""
    recorded: tuple[Unit, ...] = ()
    solved, failed, count = 0, len(pods) + 1, 1
    while failed - solved > 1:
        start = solver._state.mark()
        found = solver._solve(pods[:count], recorded, generator, most)
        solver._state.undo(start)
        if found:
            recorded, solved = found.units, count
        else:
            failed = count
        count = min(2 * count, len(pods)) if failed > len(pods) else (solved + failed) // 2
    return solver._solve(pods, recorded, generator, most) if solved else None


@modest
@given(chances)
def test_what_is_left_out_would_have_changed_nothing(chance: Random) -> None:
    cluster, requested = contested(chance), newcomer("new", chance)
    found, decided = preview(cluster, requested, flavour="kai"), cycle(cluster, flavour="kai")
    plain = patch.object(PotentialVictims, "fits_already", new_callable=PropertyMock, return_value=True)
    again = patch.object(Solver, "_search", every_search)
    in_vain = patch.multiple(VictimLine, has_room=lambda *_: True, slots_after_moves=lambda *_: ENDLESS)
    with patch.object(PotentialVictims, "steps", every_step), plain, again, in_vain:
        assert preview(cluster, requested, flavour="kai") == found
        assert cycle(cluster, flavour="kai") == decided


def test_nothing_is_tried_if_all_victims_together_make_too_little_room() -> None:
    queues = (queue("dep", deserved=None), queue("qa", "dep", deserved=8))
    weak = [running(f"weak-{name}", name, gpus=2, queue="qa", priority=25) for name in ("n0", "n1")]
    fixed = running("fixed", "n0", gpus=2, queue="qa", priority=125, preemptible=False)
    cluster = snapshot(node("n0", 4), node("n1", 2, order=1), *queues, *weak, fixed)
    with patch.object(Solver, "_search", side_effect=AssertionError):
        found = preview(cluster, gang("large", gpus=2, pods=3, queue="qa", priority=80), flavour="kai")
    assert found.kind is OutcomeKind.PENDING
    enough = preview(cluster, gang("small", gpus=2, pods=2, queue="qa", priority=80), flavour="kai")
    assert enough.kind is OutcomeKind.PREEMPTS


def test_no_move_is_tried_if_the_moved_pods_take_all_the_room_again() -> None:
    queues = (queue("dep", deserved=None), queue("qa", "dep", deserved=10))
    nodes = [node(name, 5, order=order) for order, name in enumerate(("n0", "n1"))]
    fixed = running("fixed", "n1", gpus=4, queue="qa", priority=125, preemptible=False)
    large = running("large", "n0", gpus=4, queue="qa", priority=25)
    requested = gang("new", gpus=2, queue="qa", priority=20)
    with patch.object(Solver, "_search", side_effect=AssertionError):
        found = preview(snapshot(*nodes, *queues, fixed, large), requested, flavour="kai")
    assert found.kind is OutcomeKind.PENDING
    beside = running("beside", "n0", gpus=3, queue="qa", priority=125, preemptible=False)
    small = running("small", "n0", gpus=1, queue="qa", priority=25)
    found = preview(snapshot(*nodes, *queues, fixed, beside, small), requested, flavour="kai")
    assert found.kind is OutcomeKind.CONSOLIDATES


def test_who_is_moved_in_one_question_may_be_reclaimed_in_the_next() -> None:
    """The first one moves work of a queue before that queue is searched for somebody else."""
    queues = (
        queue("dep", deserved=None),
        queue("qa", "dep", deserved=6),
        queue("qb", "dep", deserved=4),
        queue("qc", "dep"),
    )
    moved = running("moved", "n0", gpus=2, queue="qc", preemptible=True)
    stays = running("stays", "n1", gpus=2, queue="qc", preemptible=False)
    cluster = snapshot(node("n0", 4), node("n1", 4, order=1), *queues, moved, stays)
    first = preview(cluster, gang("large", gpus=3, queue="qa"), gang("late", gpus=4, queue="qb"), flavour="kai")
    assert first.kind is OutcomeKind.CONSOLIDATES
    found = preview(cluster, gang("next", gpus=2, pods=3, queue="qa"), flavour="kai")
    assert (found.kind, [each.victim for each in found.victims]) == (OutcomeKind.RECLAIMS, [moved])


def one_by_one(shares: KaiQueueShares, queues: Mapping[str, VictimQueue]) -> Iterator[Victim]:
    """From the queue that would be served last, again and again; of departments by the project that is next there."""
    left = {name: list(its.victims) for name, its in queues.items()}
    taken = dict.fromkeys(left, ZERO)

    def last(parent: str | None) -> tuple[tuple[object, ...], str] | None:
        below = [
            (each, each.name if left.get(each.name) else last(each.name))
            for each in shares.queues.values()
            if each.parent == parent
        ]
        keys = []
        for each, leaf in below:
            if leaf is not None:
                name = leaf if isinstance(leaf, str) else leaf[1]
                used = shares.allocated(each.name)
                after = used - taken[name] - left[name][0].amount
                keys.append(
                    (
                        (
                            *shares.head(each, used, used),
                            shares.dominant(each, after),
                            *shares.tail(each, used),
                        ),
                        name,
                    )
                )
        return max(keys, default=None)

    while (found := last(None)) is not None:
        victim = left[found[1]].pop(0)
        taken[found[1]] += victim.amount
        yield victim


def in_order(order: VictimOrder) -> list[Victim]:
    return [order.victim(place) for place in range(len(order))]


@modest
@given(chances)
def test_the_order_of_victims_is_found_by_merging_queues(chance: Random) -> None:
    cluster = contested(chance)
    state = packed_state(cluster)
    shares = KaiQueueShares(cluster, state)
    queues = {name: by_unit(state.assignments_of[each] for each in groups) for name, groups in state.holders.items()}
    if chance.random() < 0.5:
        queues["d1"] = queues.pop("qa", VictimQueue(()))
    order = victim_order(shares, queues)
    assert in_order(order) == list(one_by_one(shares, queues))
    assert victim_order(shares, queues) is order


@modest
@given(chances)
def test_a_queue_without_some_groups_is_as_if_it_had_never_had_them(chance: Random) -> None:
    cluster = contested(chance)
    state = packed_state(cluster)
    shares = KaiQueueShares(cluster, state)
    gone = [name for name in state.assignments_of if chance.random() < 0.3]
    pods = {name: [state.assignments_of[each] for each in groups] for name, groups in state.holders.items()}
    queues = {name: by_unit(groups).without(gone) for name, groups in pods.items()}
    again = {name: by_unit(each for each in its if each[0].group.name not in gone) for name, its in pods.items()}
    for name, found in queues.items():
        assert found.victims == again[name].victims
        assert list(map(list, found.holdings)) == list(map(list, again[name].holdings))
    order, expected = victim_order(shares, queues), victim_order(shares, again)
    assert in_order(order) == in_order(expected)


def test_a_queue_without_victims_has_none_without_some_groups_either() -> None:
    left = VictimQueue(()).without(["work"])
    assert (left.victims, left.holdings.nodes.size) == ([], 0)


def test_a_queue_whose_department_is_missing_loses_nothing() -> None:
    for parent, kind in (("top", OutcomeKind.RECLAIMS), ("nowhere", OutcomeKind.PENDING)):
        queues = (queue("top", deserved=None), queue("qa", "top", deserved=2), queue("other", parent, deserved=0))
        work = running("work", "n0", gpus=2, queue="other", priority=50)
        assert (
            preview(snapshot(node("n0", 2), *queues, work), gang("new", gpus=2, queue="qa"), flavour="kai").kind is kind
        )


@modest
@given(chances)
def test_the_victims_of_each_node_are_counted_in_order(chance: Random) -> None:
    cluster = contested(chance)
    state = packed_state(cluster)
    queues = {name: by_unit(state.assignments_of[each] for each in groups) for name, groups in state.holders.items()}
    order = victim_order(KaiQueueShares(cluster, state), queues)
    places: dict[int, list[int]] = {index: [] for index in range(-1, len(state.capacities.all))}
    held = dict.fromkeys(places, 0)
    filled = list[tuple[int, int]]()
    for place, victim in enumerate(in_order(order)):
        for index, gpu in victim.capacities or [(-1, 0)]:
            places[index].append(place)
            held[index] += gpu
        home = victim.capacities[0][0] if victim.capacities else -1
        filled.append((home, held[home]))
    assert {index: order.on(index) for index in places} == places
    assert list(order.held) == [held[index] for index in range(len(order.held))]
    assert list(order.nodes) == [index for index, found in places.items() if found and index >= 0]
    assert list(zip(order.homes, order.filled, strict=True)) == filled
    firsts = sorted((found[0], index) for index, found in places.items() if found and index >= 0)
    nodes, first = order.first_places()
    assert sorted(zip(first, nodes, strict=True)) == firsts
    assert list(first) == [place for place, _index in firsts]


def test_orders_of_victims_are_kept_up_to_a_number_and_then_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "MOST_ORDERS", 1)
    state = packed_state(contested(Random(1)))
    shares = KaiQueueShares(contested(Random(1)), state)
    queues = {name: by_unit(state.assignments_of[each] for each in groups) for name, groups in state.holders.items()}
    line = VictimLine.of_queues(shares, queues, 1)
    list(line.helpful(()))
    assert VictimLine.of_queues(shares, queues, 1) is line
    kept = weakref.ref(line)
    del line
    gc.disable()
    try:
        VictimLine.of_queues(shares, {}, 1)
        assert kept() is None, "what is dropped waits for no garbage collection: it is large"
    finally:
        gc.enable()
