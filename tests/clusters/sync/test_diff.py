"""Observed x desired: every way in which two manifests can differ, and what follows from it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.flavours.registry import FLAVOURS
from clusters.ports.flavour import DesiredState, PriorityClassSpec, ProjectSpec
from clusters.ports.gateway import Manifest
from clusters.ports.objects import APPLIED_HASH, GENERATION, MANAGED_BY, hash_of, stamped
from clusters.sync.rules.diff import Change, Create, Delete, Fenced, NameConflict, Replace, Update, diff
from tests.clusters.specs import in_order, priority, project, queue, state


def kai_objects(desired: DesiredState) -> list[Manifest]:
    return list(FLAVOURS["kai"].objects_for(desired))


def kube_objects(desired: DesiredState) -> list[Manifest]:
    return list(FLAVOURS["kube"].objects_for(desired))


def priority_class(value: int = 40, generation: int = 1) -> Manifest:
    return kai_objects(state(priorities=(priority("low", value, generation=generation),)))[0]


def quota() -> Manifest:
    return kube_objects(state(project("vision", limit=8)))[-1]


def as_stored(manifest: Manifest, **fields: Any) -> Manifest:
    """The manifest as an API server would hold it after Rung wrote it."""
    stored = stamped(manifest)
    stored["metadata"] |= {"uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**stored, **fields}


def without_label(manifest: Manifest) -> Manifest:
    stored = as_stored(manifest)
    del stored["metadata"]["labels"][MANAGED_BY]
    return stored


def kinds_of(changes: list[Change]) -> list[type]:
    return [type(change) for change in changes]


@pytest.mark.parametrize(
    ("observed", "desired", "expected"),
    [
        pytest.param([], [priority_class()], [Create], id="missing"),
        pytest.param([as_stored(priority_class())], [priority_class()], [], id="equal"),
        pytest.param([as_stored(priority_class())], [priority_class(generation=2)], [], id="only a newer generation"),
        pytest.param([as_stored(priority_class())], [priority_class(value=41)], [Replace], id="another value"),
        pytest.param([as_stored(priority_class(), description="x")], [priority_class()], [Update], id="another text"),
        pytest.param(
            [as_stored(priority_class(), globalDefault=True)], [priority_class()], [Update], id="made default"
        ),
        pytest.param([as_stored(priority_class())], [], [Delete], id="nobody wants it"),
        pytest.param([without_label(priority_class())], [], [], id="foreign and unwanted"),
        pytest.param(
            [without_label(priority_class())], [priority_class()], [NameConflict], id="foreign holds the name"
        ),
        pytest.param([as_stored(priority_class(41, 9))], [priority_class(40, 8)], [Fenced], id="a late writer"),
        pytest.param([as_stored(priority_class(40, 9))], [priority_class(40, 8)], [], id="late, but nothing to say"),
    ],
)
def test_each_difference_has_its_change(
    observed: list[Manifest], desired: list[Manifest], expected: list[type]
) -> None:
    assert kinds_of(diff(observed, desired)) == expected


def _drop_empty(stored: Manifest) -> None:
    del stored["globalDefault"]


def _add_foreign(stored: Manifest) -> None:
    stored["metadata"]["labels"]["team"] = "theirs"
    stored["metadata"]["annotations"]["note"] = "theirs"
    stored["metadata"]["managedFields"] = [{}]
    stored["status"] = {"phase": "Active"}


@pytest.mark.parametrize("edit", [_drop_empty, _add_foreign])
def test_what_the_server_or_others_own_is_no_difference(edit: Callable[[Manifest], None]) -> None:
    stored = as_stored(priority_class())
    edit(stored)
    assert diff([stored], [priority_class()]) == []


@pytest.mark.parametrize(
    ("written", "equal"),
    [("8", True), ("8000m", True), ("0.008k", True), ("9", False), (8, True), ("many", False), (None, False)],
)
def test_quantities_are_compared_by_amount(written: Any, equal: bool) -> None:
    stored = as_stored(quota())
    stored["spec"]["hard"]["requests.nvidia.com/gpu"] = written
    assert (diff([stored], [quota()]) == []) is equal


def test_a_key_added_to_a_quota_by_hand_is_a_difference() -> None:
    stored = as_stored(quota())
    stored["spec"]["hard"]["pods"] = "1"
    (change,) = diff([stored], [quota()])
    assert [each.as_row() for each in change.changes] == [["/spec/hard/pods", "1", None]]


def test_changes_name_the_field_and_both_values() -> None:
    (change,) = diff([as_stored(priority_class(40))], [priority_class(45)])
    assert [each.as_row() for each in change.changes] == [["/value", 40, 45]]


def test_an_edit_that_kept_the_hash_is_found() -> None:
    stored = as_stored(priority_class())
    stored["description"] = "edited"
    assert hash_of(stored) == hash_of(stamped(priority_class()))
    assert kinds_of(diff([stored], [priority_class()])) == [Update]


def test_a_field_that_rung_no_longer_writes_is_written_away() -> None:
    before = priority_class()
    before["metadata"]["labels"]["rung.dev/old"] = "x"
    assert kinds_of(diff([as_stored(before)], [priority_class()])) == [Update]


def test_objects_in_a_foreign_namespace_are_conflicts() -> None:
    desired = kube_objects(state(project("vision", limit=8)))
    space = next(each for each in desired if each["kind"] == "Namespace")
    changes = diff([without_label(space)], desired)
    assert set(kinds_of(changes)) == {NameConflict}
    assert len(changes) == len(desired)


def test_the_inputs_stay_as_they_were() -> None:
    observed, desired = [as_stored(priority_class(1))], [priority_class(2)]
    before = copy.deepcopy((observed, desired))
    diff(observed, desired)
    assert (observed, desired) == before


@pytest.mark.parametrize("fence", [False, True])
def test_f17_a_late_writer_of_equal_content_takes_no_generation_back(*, fence: bool) -> None:
    stored = as_stored(priority_class(generation=5))
    assert diff([stored], [priority_class(generation=3)], fence=fence) == []
    edited = {**stored, "description": "edited by hand"}
    (change,) = diff([edited], [priority_class(generation=3)], fence=fence)
    assert isinstance(change, Fenced)


def test_f17_after_a_lost_worker_equal_content_carries_the_later_generation_too() -> None:
    stored = as_stored(priority_class(generation=4))
    assert diff([stored], [priority_class(generation=6)]) == []
    (change,) = diff([stored], [priority_class(generation=6)], fence=True)
    assert isinstance(change, Update)
    assert change.changes == ()
    assert change.desired["metadata"]["annotations"][GENERATION] == "6"
    assert diff([as_stored(priority_class(generation=6))], [priority_class(generation=6)], fence=True) == []


def test_the_hash_leaves_generation_out() -> None:
    one, two = stamped(priority_class(generation=1)), stamped(priority_class(generation=2))
    assert one["metadata"]["annotations"][APPLIED_HASH] == two["metadata"]["annotations"][APPLIED_HASH]
    assert one["metadata"]["annotations"][GENERATION] == "1"


# Any desired state is reached from any other, in one pass, and then there is nothing left to do.

priorities = st.lists(
    st.builds(
        priority,
        st.sampled_from(["low", "medium", "high", "very-high"]),
        st.integers(-10, 200),
        policy=st.sampled_from(["PreemptLowerPriority", "Never"]),
    ),
    unique_by=lambda each: each.name,
    max_size=4,
)
gpus = st.integers(0, 16)
projects = st.lists(
    st.builds(
        lambda number, deserved, over, caps: project(
            f"p{number}",
            owner=f"project.{number}",
            deserved=deserved,
            limit=None if over is None else deserved + over,
            caps={"high": 1000 * caps} if caps else {},
        ),
        st.integers(1, 5),
        gpus,
        st.none() | gpus,
        gpus,
    ),
    unique_by=lambda each: each.name,
    max_size=4,
)


@st.composite
def states(draw: st.DrawFn) -> DesiredState:
    found_priorities: list[PriorityClassSpec] = draw(priorities)
    found_projects: list[ProjectSpec] = draw(projects)
    parents = (queue("department.1", parent=None, deserved=draw(gpus)),) if draw(st.booleans()) else ()
    return state(*found_projects, priorities=tuple(found_priorities), departments=parents)


def carry_out(gateway: MemoryGateway, changes: list[Change]) -> None:
    for change in changes:
        match change:
            case Create():
                gateway.create(change.desired)
            case Update():
                gateway.update(change.desired, observed=gateway.get(change.ref) or {})
            case Replace():
                gateway.delete(change.ref)
                gateway.create(change.desired)
            case Delete():
                gateway.delete(change.ref)
            case NameConflict() | Fenced():
                pytest.fail("nothing here is foreign or late")


def held(gateway: MemoryGateway, flavour: str) -> list[Manifest]:
    return [each for kind in FLAVOURS[flavour].kinds() for each in gateway.list(kind)[0]]


@settings(deadline=None, max_examples=60)
@given(before=states(), after=states(), flavour=st.sampled_from(sorted(FLAVOURS)))
def test_any_state_leads_to_any_other_and_then_rests(before: DesiredState, after: DesiredState, flavour: str) -> None:
    gateway = MemoryGateway(MemoryStore())
    for desired in (before, after):
        wanted = list(FLAVOURS[flavour].objects_for(desired))
        carry_out(gateway, in_order(diff(held(gateway, flavour), wanted)))
        assert diff(held(gateway, flavour), wanted) == []


def _total(gateway: MemoryGateway) -> dict[str, float]:
    queues = held(gateway, "kai")
    owners = [each for each in queues if each["kind"] == "Queue" and each["metadata"]["name"].startswith("project.")]
    return {each["metadata"]["name"]: each["spec"]["resources"]["gpu"]["quota"] for each in owners}


@settings(deadline=None, max_examples=150)
@given(before=states(), after=states())
def test_at_no_instant_is_more_granted_than_before_or_after(before: DesiredState, after: DesiredState) -> None:
    gateway = MemoryGateway(MemoryStore())
    carry_out(gateway, in_order(diff([], kai_objects(before))))
    old = sum(_total(gateway).values())
    new = sum(queue.deserved.gpu or 0 for each in after.projects for queue in each.queues) / 1000
    for change in in_order(diff(held(gateway, "kai"), kai_objects(after))):
        carry_out(gateway, [change])
        assert sum(_total(gateway).values()) <= max(old, new)
