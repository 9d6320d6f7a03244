"""Every list, every column it can be filtered and sorted by, every operator: answered or 400, never broken."""

from itertools import product
from urllib.parse import quote

import pytest

from portal.kit.api.lists import OPERATORS
from tests.support.rest_clients import Robot
from tests.support.route_matrix import Cell, World, cells

VALUES = ("text", "7", "2026-01-01T00:00:00Z", "9" * 30, "a\x00b")
KINDS = ("==", "<=", "=@")  # one operator of each kind meets every value, all others one
ASKED = (*product(KINDS, VALUES), *((operator, VALUES[0]) for operator in OPERATORS if operator not in KINDS))
PERIOD = "start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"


def lists() -> list[Cell]:
    return [cell for cell in cells() if cell.method == "GET"]


def columns(robot: Robot, address: str, parameter: str, value: str) -> list[str]:
    """What can be named, as the refusal of a name that cannot says it; nothing where the route does not filter."""
    answer = robot.get(f"{address}?{PERIOD}&{parameter}={value}")
    problems = answer.json().get("errors", []) if answer.status_code == 400 else []
    return [name for each in problems if each["pointer"] == f"/{parameter}" for name in each.get("allowed", [])]


@pytest.mark.django_db
@pytest.mark.parametrize("cell", lists(), ids=str)
def test_no_value_breaks_a_filter_and_no_column_a_sort(shared_robot: Robot, shared_world: World, cell: Cell) -> None:
    robot, address = shared_robot, cell.address(shared_world.of(cell.path))
    queries = [
        f"filterBy={name}{quote(operator + value)}"
        for name in columns(robot, address, "filterBy", "nosuchcolumn==1")
        for operator, value in ASKED
    ]
    queries += [f"sortBy={name}&sortOrder=desc" for name in columns(robot, address, "sortBy", "nosuchcolumn")]
    broken = [query for query in queries if robot.get(f"{address}?{PERIOD}&{query}").status_code not in {200, 207, 400}]
    assert broken == []


@pytest.mark.django_db
@pytest.mark.parametrize("cell", lists(), ids=str)
def test_a_list_that_sorts_refuses_an_unknown_order_whether_or_not_a_column_is_named(
    shared_robot: Robot, shared_world: World, cell: Cell
) -> None:
    robot, address = shared_robot, cell.address(shared_world.of(cell.path))
    for column in columns(robot, address, "sortBy", "nosuchcolumn")[:1]:
        for query in ("sortOrder=x", f"sortOrder=x&sortBy={column}"):
            answer = robot.get(f"{address}?{PERIOD}&{query}")
            assert answer.status_code == 400
            assert [each["pointer"] for each in answer.json()["errors"]] == ["/sortOrder"]
