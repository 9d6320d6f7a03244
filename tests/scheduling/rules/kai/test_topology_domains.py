"""KAI's domains are paths through the levels of a topology: which of them it finds, in which order it tries them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Outcome, OutcomeKind, Start
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

LEVELS = ("block", "rack", "host")
QUEUES = (queue("dep", deserved=None), queue("team", "dep", deserved=None))


def at(name: str, block: str, rack: str, gpus: int = 4) -> SnapshotNode:
    """A node with the labels of all levels."""
    return node(name, gpus, order=int(name[1:]), block=block, rack=rack, host=name)


def full(name: str, gpus: int = 4) -> PodGroup:
    return running(f"on-{name}", name, gpus=gpus, preemptible=False)


def clustered(*items: SnapshotNode | Queue | PodGroup, levels: tuple[str, ...] = LEVELS) -> Snapshot:
    return replace(snapshot(*QUEUES, *items), levels={"default": levels})


def wanting(level: str, *, pods: int = 2, gpus: int = 4, priority: str = "medium") -> PodGroup:
    return replace(gang("new", gpus=gpus, pods=pods, min_member=pods, priority=priority), topology=level)


def outcome(candidate: PodGroup, *items: SnapshotNode | PodGroup, levels: tuple[str, ...] = LEVELS) -> Outcome:
    return preview(clustered(*items, levels=levels), candidate, flavour="kai")


def chosen(found: Outcome) -> set[str]:
    return set(found.placements.values())


def test_racks_of_one_name_in_two_blocks_are_two() -> None:
    apart = (at("n0", "a", "r0"), at("n1", "b", "r0"), at("n2", "b", "r1"))
    found = outcome(wanting("rack"), *apart)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.PENDING, Reason.NO_DOMAIN)
    assert found.pend is not None
    assert (found.pend.topology, found.pend.domain) == ("rack", "a/r0")
    together = (*apart, at("n3", "b", "r0"))
    assert chosen(outcome(wanting("rack"), *together)) == {"n1", "n3"}
    assert chosen(outcome(wanting("block", pods=3), *together)) == {"n1", "n2", "n3"}


def test_a_node_without_all_labels_is_in_no_domain() -> None:
    bare = replace(at("n0", "a", "r0", 8), labels={"block": "a", "rack": "r0"})
    assert chosen(outcome(wanting("rack"), bare, at("n1", "a", "r1"), at("n2", "a", "r1"))) == {"n1", "n2"}


def test_the_fullest_domain_is_tried_first_level_by_level() -> None:
    """The block that it fills most, and there the rack: a fuller rack in an emptier block is not taken."""
    nodes = (
        *(at(f"n{number}", "a", rack) for number, rack in enumerate(("r0", "r0", "r1", "r1"))),
        *(at(f"n{number}", "b", rack) for number, rack in enumerate(("r2", "r2", "r3", "r3", "r3"), start=4)),
    )
    assert chosen(outcome(wanting("rack"), *nodes)) == {"n0", "n1"}
    assert chosen(outcome(wanting("rack"), *nodes, full("n6"), full("n7"), full("n8"))) == {"n4", "n5"}


def test_what_it_asks_most_of_decides_which_domain_is_fullest() -> None:
    """One block has fewer GPUs, the other one fewer cores."""
    slow, wide = (
        replace(at(name, block, "r0"), capacity=Resources.of(gpu=gpus, cpu=cpus, memory="1Ti"))
        for name, block, gpus, cpus in (("n0", "a", 8, 10), ("n1", "b", 4, 100))
    )
    pod = replace(wanting("block").pods[0], requests=Resources.of(gpu=1, cpu=8))
    small = replace(wanting("block", pods=1), pods=(pod,))
    assert chosen(outcome(small, slow, wide, at("n2", "b", "r1", 0))) == {"n0"}
    assert chosen(outcome(wanting("block", pods=1, gpus=1), slow, wide, at("n2", "b", "r1", 0))) == {"n1"}


def test_a_block_is_not_found_where_all_nodes_are_in_one_rack_of_it() -> None:
    """KAI counts the room of the smallest domain that all nodes share, and of none above it."""
    one_rack = (at("n0", "a", "r0"), at("n1", "a", "r0"))
    assert outcome(wanting("block"), *one_rack).kind is OutcomeKind.PENDING
    assert outcome(wanting("rack"), *one_rack).kind is OutcomeKind.PLACED
    assert outcome(wanting("block"), *one_rack, at("n2", "a", "r1")).kind is OutcomeKind.PLACED


def test_who_waits_for_further_pods_stays_in_its_domain() -> None:
    there = replace(gang("new", gpus=2, pods=3, min_member=2, nodes=("n1",), started=0), topology="rack")
    nodes = (at("n0", "a", "r0", 2), at("n1", "b", "r0", 8))
    (start,) = (each for each in cycle(clustered(*nodes, there), flavour="kai") if isinstance(each, Start))
    assert set(start.placements.values()) == {"n1"}


@pytest.mark.parametrize(
    "levels",
    [
        pytest.param({"default": ("rack", "host")}, id="by levels"),
        pytest.param({}, id="no levels are known"),
    ],
)
def test_it_evicts_inside_one_domain(levels: Mapping[str, tuple[str, ...]]) -> None:
    nodes = (at("n0", "a", "r0"), at("n1", "a", "r1"), at("n2", "a", "r1"))
    weak = [running(f"weak-{each.name}", each.name, gpus=4, priority="very-low", start=each.order) for each in nodes]
    found = preview(replace(clustered(*nodes, *weak), levels=levels), wanting("rack"), flavour="kai")
    assert (found.kind, {evict.victim.name for evict in found.victims}) == (
        OutcomeKind.PREEMPTS,
        {"weak-n1", "weak-n2"},
    )


def test_the_only_node_with_victims_is_no_domain_of_a_wider_level() -> None:
    """Both pods would fit on it, and KAI takes nobody: it looks at that one node, which is less than a rack."""
    nodes = (at("n0", "a", "r0", 8), at("n1", "a", "r1", 8))
    weak, stays = running("weak", "n0", gpus=8, priority="very-low"), full("n1", 8)
    assert outcome(wanting("rack"), *nodes, weak, stays).kind is OutcomeKind.PENDING
    assert outcome(wanting("host"), *nodes, weak, stays).kind is OutcomeKind.PREEMPTS
