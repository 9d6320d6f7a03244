"""kube-scheduler with its own gangs: all or nothing, over the whole cluster, whole gangs or pod by pod."""

from dataclasses import replace
from typing import Any

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

Item = SnapshotNode | Queue | PodGroup


def podgroup(name: str, *, whole: bool = False, topology: str | None = None, **about: Any) -> PodGroup:
    """A gang of scheduling.k8s.io; `nodes` says where its pods run."""
    return replace(gang(name, **about), gang=True, whole=whole, topology=topology)


def decide(*items: Item) -> list[Decision]:
    return cycle(snapshot(*items), flavour="kube-gangs")


def outcome(candidate: PodGroup, *items: Item) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kube-gangs")


def victims(found: Outcome) -> list[str]:
    return sorted(pod for evict in found.victims for pod in evict.pods)


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def racks(*sizes: int) -> list[SnapshotNode]:
    """One node of so many GPUs in each rack."""
    return [node(f"n{index}", size, order=index, rack=f"r{index}") for index, size in enumerate(sizes)]


def test_it_starts_whole_or_not_at_all() -> None:
    nodes = node("a", 2), node("b", 1)
    assert outcome(podgroup("new", pods=3), *nodes).kind is OutcomeKind.PLACED
    found = outcome(podgroup("new", pods=3), *nodes, running("other", "b", priority="very-high"))
    assert (found.kind, found.placements, reason(found)) == (OutcomeKind.PENDING, {}, Reason.NO_ROOM)


def test_beyond_the_minimum_it_starts_with_what_fits() -> None:
    found = outcome(podgroup("new", pods=3, min_member=2), node("a", 2))
    assert (found.kind, found.placements, reason(found)) == (
        OutcomeKind.PLACED,
        {"new-0": "a", "new-1": "a"},
        Reason.NO_ROOM,
    )


def test_where_one_found_nobody_to_evict_one_like_it_finds_nobody_either() -> None:
    alike = [podgroup(name, pods=3, priority="high", created=at) for at, name in enumerate("ab")]
    strong = running("strong", "n", gpus=2, priority="very-high", preemptible=False)
    weak = running("weak", "n", priority="low")
    found = decide(node("n", 3), strong, weak, *alike)
    assert [(type(each), each.group.name) for each in found] == [(Wait, "a"), (Wait, "b")]


def test_a_gang_for_which_no_rack_has_room_is_told_the_largest() -> None:
    found = outcome(podgroup("new", pods=3, topology="rack"), *racks(2, 1))
    assert found.pend
    assert found.pend.numbers()["topology"] == "rack"
    assert found.pend.numbers()["largest_domain"].startswith("2 GPU")


def test_what_runs_counts_towards_the_minimum() -> None:
    start, wait = decide(node("a", 3), podgroup("half", pods=4, min_member=3, nodes=("a", "a"), started=1))
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert start.placements == {"half-2": "a"}


def test_it_waits_while_fewer_pods_exist_than_its_minimum() -> None:
    found = outcome(podgroup("new", pods=2, min_member=3), node("a", 8))
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.GANG_INCOMPLETE)


def test_it_evicts_over_the_whole_cluster_until_the_minimum_fits() -> None:
    low = [running(f"low-{name}", name, gpus=2, priority="low") for name in ("a", "b", "c")]
    nodes = [node(name, 2) for name in ("a", "b", "c")]
    found = outcome(podgroup("new", pods=2, gpus=2, priority="high"), *nodes, *low)
    assert (found.kind, len(victims(found)), reason(found)) == (OutcomeKind.PREEMPTS, 2, Reason.EVICTING)
    assert found.placements == {}


def test_nobody_is_evicted_if_all_together_would_not_do() -> None:
    work = running("low", "a", priority="low"), running("top", "b", priority="very-high")
    found = outcome(podgroup("new", pods=2, priority="high"), node("a", 1), node("b", 1), *work)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_equal_priority_is_never_taken() -> None:
    found = outcome(podgroup("new", priority="high"), node("a", 1), running("peer", "a", priority="high"))
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_pods_beyond_the_minimum_take_one_more_victim_each() -> None:
    low = [running(f"low{index}", "a", priority="low", start=index) for index in range(3)]
    top = running("top", "a", priority="very-high")
    few = podgroup("new", pods=1, min_member=1, priority="high")
    assert victims(outcome(few, node("a", 4), top, *low)) == ["low2-0"]
    many = podgroup("new", pods=5, min_member=1, priority="high")
    assert victims(outcome(many, node("a", 4), top, *low)) == ["low0-0", "low1-0", "low2-0"]


@pytest.mark.parametrize(
    ("kept", "taken"),
    [
        pytest.param(
            running("kept", "a", priority="medium", start=9), running("taken", "a", priority="low"), id="priority first"
        ),
        pytest.param(
            podgroup("kept", priority="low", nodes=("a",), started=9),
            running("taken", "a", priority="low"),
            id="then pods of gangs before single pods",
        ),
        pytest.param(
            podgroup("kept", priority="low", pods=2, nodes=("a", "b"), started=9, whole=True),
            podgroup("taken", priority="low", nodes=("a",), started=1, whole=True),
            id="then the larger gang",
        ),
        pytest.param(
            running("kept", "a", priority="low", start=1),
            running("taken", "a", priority="low", start=2),
            id="then the earlier start",
        ),
    ],
)
def test_the_most_important_are_given_back(kept: PodGroup, taken: PodGroup) -> None:
    nodes = node("a", 2), node("b", 1)
    beside = running("beside", "b", priority="very-high") if len(kept.pods) == 1 else gang("none", nodes=())
    for work in ((kept, taken), (taken, kept)):
        found = outcome(podgroup("new", priority="high"), *nodes, *work, replace(beside, pods=beside.holding))
        assert victims(found) == ["taken-0"]


def test_the_start_of_a_whole_gang_is_that_of_its_pod_on_the_first_node() -> None:
    nodes = node("a", 2, order=0), node("b", 2, order=1)
    low = [podgroup(name, priority="low", pods=2, nodes=("b", "a"), whole=True) for name in ("one", "two")]
    starts = {"one-0": 1, "one-1": 8, "two-0": 6, "two-1": 5}
    work = [replace(each, pods=tuple(replace(pod, started=starts[pod.name]) for pod in each.pods)) for each in low]
    assert victims(outcome(podgroup("new", priority="high"), *nodes, *work)) == ["one-0", "one-1"]


def test_each_pod_of_a_gang_has_a_start_of_its_own() -> None:
    low = podgroup("low", priority="low", pods=3, nodes=("a", "a", "a"), started=1)
    pods = tuple(replace(pod, started=start) for pod, start in zip(low.pods, (5, 7, 6), strict=True))
    assert victims(outcome(podgroup("new", priority="high"), node("a", 3), replace(low, pods=pods))) == ["low-1"]


def test_a_gang_of_mode_podgroup_goes_whole() -> None:
    nodes = node("a", 1), node("b", 1)
    low = podgroup("low", priority="low", pods=2, nodes=("a", "b"), started=1, whole=True)
    (evict,) = outcome(podgroup("new", priority="high"), *nodes, low).victims
    assert (evict.victim.name, evict.pods, evict.nodes) == ("low", ("low-0", "low-1"), {"low-0": "a", "low-1": "b"})


def test_a_single_pod_breaks_a_gang_whatever_its_mode() -> None:
    nodes = node("a", 1), node("b", 1)
    low = podgroup("low", priority="low", pods=2, nodes=("a", "b"), started=1, whole=True)
    found = outcome(gang("new", priority="high"), *nodes, low)
    assert (found.kind, victims(found), found.placements) == (OutcomeKind.PREEMPTS, ["low-0"], {"new-0": "a"})


def test_never_evicts_nobody_and_says_that_it_could_have() -> None:
    never = podgroup("new", priority="high", never=True)
    assert reason(outcome(never, node("a", 1), running("low", "a", priority="low"))) is Reason.PREEMPTION_NEVER
    assert reason(outcome(never, node("a", 1), running("top", "a", priority="very-high"))) is Reason.NO_ROOM


def test_a_topology_key_keeps_all_its_pods_in_the_domain_that_takes_most_of_them() -> None:
    found = outcome(podgroup("new", pods=3, min_member=2, topology="rack"), *racks(2, 3, 2), node("bare", 8))
    assert set(found.placements.values()) == {"n1"}
    assert (found.kind, len(found.placements)) == (OutcomeKind.PLACED, 3)


def test_a_topology_key_follows_the_pods_that_run() -> None:
    (start,) = decide(*racks(2, 8), podgroup("new", pods=2, nodes=("n0",), started=1, topology="rack"))
    assert isinstance(start, Start)
    assert start.placements == {"new-1": "n0"}


def test_with_a_topology_key_nobody_is_ever_evicted() -> None:
    low = [running(f"low{index}", f"n{index}", gpus=2, priority="low") for index in range(2)]
    found = outcome(podgroup("new", pods=2, priority="high", topology="rack"), *racks(2, 2), *low)
    assert (found.kind, victims(found), reason(found)) == (OutcomeKind.PENDING, [], Reason.NO_DOMAIN)


@pytest.mark.parametrize(
    ("candidate", "nodes"),
    [
        pytest.param(podgroup("new", pods=3, gpus=2), [node("a", 3), node("b", 3)], id="in pieces on the nodes"),
        pytest.param(podgroup("new", pods=9), [node("a", 8)], id="larger than the pool"),
        pytest.param(podgroup("new", pods=2), [node("a", 8, max_pods=1)], id="more pods than the node takes"),
    ],
)
def test_what_can_never_start_says_so(candidate: PodGroup, nodes: list[SnapshotNode]) -> None:
    found = outcome(candidate, *nodes, running("low", nodes[0].name, priority="very-low"))
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NEVER_FITS)


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(podgroup("new", pods=3, topology="rack"), id="larger than any domain"),
        pytest.param(podgroup("new", pods=1, topology="row"), id="a key no node carries"),
    ],
)
def test_a_topology_that_can_never_be_met_says_so(candidate: PodGroup) -> None:
    pend = outcome(candidate, *racks(2, 2)).pend
    assert pend is not None
    assert (pend.reason, pend.also) == (Reason.NO_DOMAIN, (Reason.NEVER_FITS,))


def test_the_kubelets_number_of_pods_counts() -> None:
    low = [running(f"low{index}", "a", gpus=0, priority="low", start=index) for index in range(2)]
    found = outcome(podgroup("new", gpus=0, priority="high"), node("a", 8, max_pods=2), *low)
    assert victims(found) == ["low1-0"]


def test_pods_that_differ_are_placed_one_by_one() -> None:
    head, worker = Pod("head", Resources.of(gpu=1)), Pod("worker", Resources.of(gpu=4))
    mixed = replace(podgroup("new", priority="high", pods=2), pods=(worker, head))
    assert outcome(mixed, node("a", 4), node("b", 1)).placements == {"worker": "a", "head": "b"}
    found = outcome(mixed, node("a", 4), node("b", 1), running("low", "a", priority="low"))
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS, ["low-0"])


def test_nodes_that_it_may_not_use_are_left_alone() -> None:
    nodes = node("a", 1, kind="x"), node("b", 1)
    low = [running(f"low-{name}", name, priority="low") for name in ("a", "b")]
    picky = podgroup("new", priority="high", node_selector={"kind": "x"})
    assert victims(outcome(picky, *nodes, *low)) == ["low-a-0"]


def test_a_whole_gang_goes_from_nodes_it_does_not_need_as_well() -> None:
    nodes = node("a", 1, kind="x"), node("b", 1)
    low = podgroup("low", priority="low", pods=2, nodes=("a", "b"), started=1, whole=True)
    picky = podgroup("new", priority="high", node_selector={"kind": "x"})
    assert victims(outcome(picky, *nodes, low)) == ["low-0", "low-1"]


def test_who_is_ending_already_is_not_evicted_again() -> None:
    ending = gang("ending", priority="low", nodes=("a",), terminating=True)
    (wait,) = decide(node("a", 1), ending, podgroup("new", priority="high"))
    assert isinstance(wait, Wait)
    assert (wait.pend.reason, wait.nominated) == (Reason.EVICTING, {})


def test_room_promised_to_a_stronger_pod_is_kept_from_it() -> None:
    ending = gang("ending", priority="low", nodes=("a",), terminating=True)
    strong = gang("strong", gpus=2, priority="very-high", nominated="a")
    decisions = decide(node("a", 2), ending, strong, podgroup("new", priority="high"))
    waiting = {each.group.name: each.pend.reason for each in decisions if isinstance(each, Wait)}
    assert waiting == {"strong": Reason.EVICTING, "new": Reason.NO_ROOM}


def test_room_promised_to_its_own_pod_is_its_own() -> None:
    assert outcome(podgroup("new", nominated="a"), node("a", 1)).kind is OutcomeKind.PLACED


@pytest.mark.parametrize(("gpus", "placed"), [(2, {}), (1, {"new-0": "b"})])
@pytest.mark.parametrize("nominated", ["a", "b", None])
def test_while_it_waits_nodes_are_reserved_for_its_pods_that_fit(
    nominated: str | None, gpus: int, placed: dict[str, str]
) -> None:
    """Also if none is nominated yet, or one to a node that is full by now."""
    waits = podgroup("waits", gpus=2, pods=2, priority="high")
    first, second = waits.pods
    waits = replace(waits, pods=(replace(first, nominated=nominated), second))
    kept = running("kept", "b", priority="very-high")
    assert outcome(gang("new", gpus=gpus), node("a", 2), node("b", 2), kept, waits).placements == placed


def test_of_a_waiting_gang_each_pod_keeps_the_node_to_which_it_is_nominated() -> None:
    first, *others = podgroup("waits", pods=4, priority="high").pods
    waits = replace(podgroup("waits", pods=4, priority="high"), pods=(replace(first, nominated="small"), *others))
    full = node("full", 1), running("kept", "full", priority="very-high")
    (wait,) = decide(node("large", 2), node("small", 1), *full, waits)
    assert isinstance(wait, Wait)
    assert wait.reserved == {"waits-0": "small", "waits-1": "large", "waits-2": "large"}


def test_two_pods_nominated_to_a_node_with_room_for_one_reserve_it_once() -> None:
    waits = podgroup("waits", pods=3, priority="high")
    waits = replace(waits, pods=tuple(replace(pod, nominated="a") for pod in waits.pods))
    full = node("full", 2), running("kept", "full", gpus=2, priority="very-high")
    (wait,) = decide(node("a", 1), *full, waits)
    assert isinstance(wait, Wait)
    assert wait.reserved == {"waits-0": "a"}


def test_nodes_are_not_reserved_against_a_higher_priority() -> None:
    full = node("full", 1), running("kept", "full", priority="very-high")
    waits = podgroup("waits", pods=2, priority="high")
    assert outcome(gang("new", priority="high", created=9), node("a", 1), *full, waits).placements == {}
    assert outcome(gang("new", priority="very-high"), node("a", 1), *full, waits).placements == {"new-0": "a"}


def test_of_a_gang_of_one_domain_only_nominated_pods_reserve_their_nodes() -> None:
    waits = replace(podgroup("waits", pods=2, priority="high"), topology="rack")
    first, second = waits.pods
    nominated = replace(waits, pods=(replace(first, nominated="a"), second))
    free, full = (replace(node(name, 1), labels={"rack": "r"}) for name in ("a", "full"))
    there = free, full, running("kept", "full", priority="very-high")
    assert outcome(gang("new"), *there, waits).placements == {"new-0": "a"}
    assert outcome(gang("new"), *there, nominated).placements == {}


def test_a_nominated_pod_that_starts_reserves_nothing_more() -> None:
    first, second = podgroup("part", gpus=3, pods=2, min_member=1).pods
    part = replace(podgroup("part", min_member=1), pods=(replace(first, nominated="a"), second))
    found = outcome(gang("new", gpus=2, created=9), node("a", 5), part)
    assert found.placements == {"new-0": "a"}


def test_higher_priority_goes_first_whether_gang_or_pod() -> None:
    waiting = podgroup("weak", pods=2, created=1), gang("strong", priority="high", created=9)
    start, wait = decide(node("a", 2), *waiting)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert (start.group.name, wait.group.name) == ("strong", "weak")


def test_nothing_is_kept_for_a_gang_while_its_victims_end() -> None:
    low = running("low", "a", gpus=2, priority="low")
    first, second = podgroup("first", pods=2, priority="very-high"), podgroup("second", pods=2, priority="high")
    decisions = decide(node("a", 2), low, first, second)
    assert [each.for_group for each in decisions if isinstance(each, Evict)] == ["first"]
    waiting = {each.group.name: each.pend.reason for each in decisions if isinstance(each, Wait)}
    assert waiting == {"first": Reason.EVICTING, "second": Reason.EVICTING}


def test_a_quota_refuses_the_minimum_or_leaves_out_the_rest() -> None:
    quota = queue("team", deserved=2, limit=2)
    assert reason(outcome(podgroup("new", pods=3), node("a"), quota)) is Reason.OVER_LIMIT
    found = outcome(podgroup("new", pods=3, min_member=1), node("a"), quota)
    assert (found.kind, len(found.placements), reason(found)) == (OutcomeKind.PLACED, 2, Reason.OVER_LIMIT)
