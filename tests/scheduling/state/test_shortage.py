"""A refusal names the dimension that is short, and more of that dimension alone takes the refusal away."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode
from scheduling.state.shortage import PODS
from tests.builders import snapshot

ALL = ["kube", "kube-gangs", "kai", "kueue", "volcano"]
LOTS = Resources.of(gpu=1000, cpu=10_000, memory="1000Ti")


def machine(name: str, *, gpus: int = 8, cpus: int = 32, gib: int = 64, **values: int | None) -> SnapshotNode:
    return SnapshotNode(
        name, "default", Resources.of(gpu=gpus, cpu=cpus, memory=f"{gib}Gi"), max_pods=values.get("max_pods")
    )


def work(name: str, *pods: Resources, on: str | None = None, priority: int = 80) -> PodGroup:
    """What starts together; what is there already stays where it is."""
    members = tuple(Pod(f"{name}-{index}", requested, on) for index, requested in enumerate(pods))
    started = None if on is None else 1
    return PodGroup(name, "team", "team", priority, on is None, members, len(members), started=started)


def requested(gpus: int = 0, cpus: int = 0, gib: int = 0) -> Resources:
    return Resources.of(gpu=gpus, cpu=cpus, memory=f"{gib}Gi")


TEAM = (Queue("org", deserved=Limit()), Queue("team", "org", deserved=Limit()))


def ask(found: Snapshot, new: PodGroup, flavour: str) -> Outcome:
    if flavour == "kube-gangs" and len(new.pods) > 1:
        new = replace(new, gang=True)
    return preview(found, new, flavour=flavour)


def more(found: Snapshot, names: Sequence[str]) -> Snapshot:
    """The same cluster with more than enough of these: on every node, and in every quota."""

    def node(each: SnapshotNode) -> SnapshotNode:
        pods = each.max_pods + 1000 if PODS in names and each.max_pods is not None else each.max_pods
        return replace(each, capacity=each.capacity + LOTS.only(names), max_pods=pods)

    def bound(each: Limit) -> Limit:
        return replace(each, **{name: None for name in names if name != PODS})

    queues = tuple(replace(each, deserved=bound(each.deserved), limit=bound(each.limit)) for each in found.queues)
    return replace(found, nodes=tuple(map(node, found.nodes)), queues=queues)


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kai", "volcano"])
def test_cpu_that_is_short_is_named_though_gpus_are_asked_for_too(flavour: str) -> None:
    busy = work("busy", requested(1, 18), on="n0", priority=200)
    found = snapshot(machine("n0", cpus=32), machine("n1", cpus=14), *TEAM, busy)
    pend = ask(found, work("new", requested(1, 20)), flavour).pend
    assert pend is not None
    assert (pend.reason, pend.short, pend.beside) == (Reason.NO_ROOM, ("cpu",), False)
    assert (pend.free, pend.largest_free.cpu) == (requested(15, 28, 128), 14_000)
    assert pend.numbers()["short"] == "cpu"


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kai", "volcano"])
def test_cpu_beside_the_free_gpus_is_named_where_each_is_free_on_another_node(flavour: str) -> None:
    taken = work("taken", requested(8), on="n1", priority=200)
    found = snapshot(machine("n0", cpus=4), machine("n1", cpus=64), *TEAM, taken)
    pend = ask(found, work("new", requested(1, 16)), flavour).pend
    assert pend is not None
    assert (pend.short, pend.beside, pend.largest_free.cpu) == (("cpu",), True, 4_000)


def test_two_dimensions_are_named_where_more_of_one_does_not_help() -> None:
    busy = work("busy", requested(7, 30, 10), on="n0", priority=200)
    pend = ask(snapshot(machine("n0"), *TEAM, busy), work("new", requested(2, 4, 10)), "kai").pend
    assert pend is not None
    assert (pend.short, pend.largest_free) == (("cpu", "gpu"), requested(1, 2, 54))


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kai", "volcano"])
def test_nodes_that_take_no_more_pods_are_named(flavour: str) -> None:
    busy = work("busy", requested(1), on="n0", priority=200)
    pend = ask(snapshot(machine("n0", max_pods=1), *TEAM, busy), work("new", requested(1, 1)), flavour).pend
    assert pend is not None
    assert pend.short == (PODS,)


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs", "kai", "volcano"])
def test_what_never_fits_names_the_dimension_and_the_largest_node_for_it(flavour: str) -> None:
    found = snapshot(machine("n0", gpus=0, cpus=256), machine("n1", cpus=64), *TEAM)
    pend = ask(found, work("new", requested(1, 128)), flavour).pend
    assert pend is not None
    assert (pend.reason, pend.short, pend.beside) == (Reason.NEVER_FITS, ("cpu",), True)
    assert (pend.free.cpu, pend.largest_free.cpu) == (320_000, 64_000)


@pytest.mark.parametrize("flavour", ["kube", "kai"])
def test_nothing_is_short_where_no_node_may_be_used(flavour: str) -> None:
    found = snapshot(machine("n0"), *TEAM)
    pend = ask(found, replace(work("new", requested(1)), node_selector={"gpu": "b200"}), flavour).pend
    assert pend is not None
    assert (pend.reason, pend.short) == (Reason.NEVER_FITS, ())


def test_pods_of_several_sizes_are_put_together() -> None:
    found = snapshot(machine("n0", cpus=8), machine("n1", cpus=8), *TEAM)
    for gpus, short in ((4, ("cpu",)), (8, ("cpu", "gpu"))):
        pend = ask(found, work("new", requested(1, 6), requested(gpus, 6), requested(gpus, 6)), "kai").pend
        assert pend is not None
        assert pend.short == short


@pytest.mark.parametrize("name", ["gpu", "cpu", "memory"])
def test_a_quota_names_its_dimension(name: str) -> None:
    limit = replace(Limit(), **{name: 1})
    found = snapshot(machine("n0"), *(replace(each, limit=limit) for each in TEAM))
    pend = ask(found, work("new", requested(1, 1, 1)), "kai").pend
    assert pend is not None
    assert (pend.reason, pend.short) == (Reason.OVER_LIMIT, (name,))


amounts = st.builds(
    requested,
    gpus=st.sampled_from([0, 1, 2, 4]),
    cpus=st.sampled_from([0, 1, 8, 30]),
    gib=st.sampled_from([0, 1, 16, 60]),
)
wanted = st.builds(
    requested,
    gpus=st.sampled_from([0, 1, 2, 8, 9]),
    cpus=st.sampled_from([0, 1, 8, 30, 70]),
    gib=st.sampled_from([0, 1, 30, 60, 90]),
)
bounds = st.builds(
    lambda gpu, cpu, gib: Limit.of(gpu=gpu, cpu=cpu, memory=gib and f"{gib}Gi"),
    gpu=st.sampled_from([None, None, 2, 8]),
    cpu=st.sampled_from([None, None, 8, 64]),
    gib=st.sampled_from([None, None, 16, 128]),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to three nodes with work on them that is stronger than whatever comes."""
    nodes = [
        machine(
            f"n{index}",
            gpus=draw(st.sampled_from([0, 2, 8])),
            cpus=draw(st.sampled_from([4, 32, 64])),
            gib=draw(st.sampled_from([8, 64, 80])),
            max_pods=draw(st.sampled_from([None, None, 1, 2])),
        )
        for index in range(draw(st.integers(1, 3)))
    ]
    held = [
        work(f"held-{each.name}", amount, on=each.name, priority=200)
        for each in nodes
        for amount in draw(st.lists(amounts, max_size=1))
        if amount.fits_in(each.capacity)
    ]
    org, team = (replace(each, limit=draw(bounds), deserved=draw(bounds)) for each in TEAM)
    return snapshot(*nodes, org, team, *held)


@given(clusters(), wanted, st.integers(1, 3), st.booleans(), st.sampled_from(ALL))
@settings(max_examples=300, deadline=None)
def test_more_of_what_is_named_takes_the_refusal_away(
    found: Snapshot, amount: Resources, pods: int, preemptible: bool, flavour: str
) -> None:
    new = replace(work("new", *[amount] * pods), preemptible=preemptible)
    for _refusal in range(8):
        outcome = ask(found, new, flavour)
        if outcome.kind is not OutcomeKind.PENDING:
            return
        pend = outcome.pend
        assert pend is not None
        assume(pend.reason not in {Reason.NO_SUCH_POOL, Reason.QUEUE_MISSING, Reason.GANG_INCOMPLETE})
        assert pend.short, pend
        found = more(found, pend.short)
        again = ask(found, new, flavour).pend
        assert again is None or (again.reason, again.short) != (pend.reason, pend.short)
        one_by_one = flavour == "kube" and pods > 1
        assert again is None or pend.reason is not Reason.NO_ROOM or one_by_one, (pend, again)
    raise AssertionError("It waits whatever it gets more of.")
