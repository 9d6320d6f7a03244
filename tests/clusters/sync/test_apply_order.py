"""Quotas are lowered before others are raised, whatever else one update holds."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.flavours.registry import FLAVOURS
from clusters.ports.flavour import PriorityClassSpec
from clusters.ports.gateway import Manifest
from clusters.ports.objects import stamped
from clusters.sync.rules.changes import is_lowering, is_raising
from clusters.sync.rules.diff import Update, diff
from scheduling.model.resources import Limit
from tests.clusters.specs import in_order, priority, project, queue, state


def queues(**deserved: tuple[int, int | None]) -> list[Manifest]:
    """KAI queues by owner: (deserved, limit) in GPUs."""
    leaves = tuple(queue(f"project.{name}", deserved=one, limit=two) for name, (one, two) in deserved.items())
    return list(FLAVOURS["kai"].objects_for(state(replace(project("x"), queues=leaves))))


def steps(before: list[Manifest], after: list[Manifest]) -> list[tuple[str, list[list[Any]]]]:
    changes = in_order(diff([stamped(each) for each in before], after))
    return [(change.ref.name, [each.as_row() for each in change.changes]) for change in changes]


def test_an_update_that_lowers_and_raises_is_done_in_two_steps() -> None:
    quota, limit = "/spec/resources/gpu/quota", "/spec/resources/gpu/limit"
    assert steps(queues(a=(4, 8), b=(8, 8)), queues(a=(6, 6), b=(4, 8))) == [
        ("project.a.a100", [[limit, 8, 6]]),
        ("project.b.a100", [[quota, 8, 4]]),
        ("project.a.a100", [[quota, 4, 6]]),
    ]


def test_the_first_step_holds_the_smaller_of_both_and_its_own_hash() -> None:
    first, second = in_order(diff([stamped(each) for each in queues(a=(4, 8))], queues(a=(6, 6))))
    assert isinstance(first, Update)
    assert isinstance(second, Update)
    shares = [step.desired["spec"]["resources"]["gpu"] for step in (first, second)]
    assert [(share["quota"], share["limit"]) for share in shares] == [(4, 6), (6, 6)]
    assert first.desired == stamped(first.desired)


@pytest.mark.parametrize(
    ("before", "after", "lowers", "raises"),
    [
        ((4, None), (4, 8), True, False),
        ((4, 8), (4, None), False, True),
        ((4, 8), (5, 8), False, True),
        ((4, 8), (3, 8), True, False),
    ],
)
def test_unlimited_is_more_than_any_number(
    before: tuple[int, int | None], after: tuple[int, int | None], lowers: bool, raises: bool
) -> None:
    (change,) = diff([stamped(each) for each in queues(a=before)], queues(a=after))[-1:]
    assert (is_lowering(change), is_raising(change)) == (lowers, raises)


@pytest.mark.parametrize("field", ["over_quota_weight", "rank", "display_name"])
def test_what_bounds_nothing_has_no_direction(field: str) -> None:
    other: dict[str, Any] = {"over_quota_weight": 9, "rank": "high", "display_name": "other"}
    before = FLAVOURS["kai"].objects_for(state(departments=(queue("a", parent=None),)))
    after = FLAVOURS["kai"].objects_for(state(departments=(replace(queue("a", parent=None), **{field: other[field]}),)))
    (change,) = diff(map(stamped, before), after)
    assert not is_lowering(change)
    assert not is_raising(change)


def test_resource_quotas_follow_the_same_rule() -> None:
    priorities: tuple[PriorityClassSpec, ...] = (priority("high", 125),)

    def objects(a: Limit, b: Limit) -> list[Manifest]:
        owners = [("a", "project.1", a), ("b", "project.2", b)]
        projects = [
            replace(project(name, owner=owner), queues=(replace(queue(owner), limit=limit, deserved=Limit.of(gpu=0)),))
            for name, owner, limit in owners
        ]
        return list(FLAVOURS["kube"].objects_for(state(*projects, priorities=priorities)))

    before, after = objects(Limit.of(4, 8), Limit.of(8)), objects(Limit.of(8), Limit.of(4))
    changes = in_order(diff([stamped(each) for each in before], after))
    assert [change.ref.namespace for change in changes] == ["runai-b", "runai-a"]


def test_children_follow_their_parents_and_leave_before_them() -> None:
    parents = (queue("c", parent="b"), queue("a", parent=None), queue("b", parent="a"))
    objects = list(FLAVOURS["kai"].objects_for(state(departments=parents)))
    assert [name for name, _ in steps([], objects)] == ["a.a100", "b.a100", "c.a100"]
    assert [name for name, _ in steps(objects, [])] == ["c.a100", "b.a100", "a.a100"]


def test_a_circle_of_parents_does_not_hang() -> None:
    circle = (queue("a", parent="b"), queue("b", parent="a"))
    objects = list(FLAVOURS["kai"].objects_for(state(departments=circle)))
    assert len(steps([], objects)) == 2
