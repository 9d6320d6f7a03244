"""Every list, every column it can be filtered and sorted by, every operator: answered or 400, never broken."""

from collections.abc import Callable
from itertools import product
from urllib.parse import quote, unquote

import pytest

from portal.kit.api.lists import LONGEST_PARAMETER, MOST_CLAUSES, OPERATORS
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from tests.support.route_matrix import Cell, cells, world_of

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


@pytest.mark.parametrize("cell", lists(), ids=str)
def test_no_value_breaks_a_filter_and_no_column_a_sort(robot: Robot, llm_team: Project, cell: Cell) -> None:
    address = cell.address(world_of(llm_team).of(cell.path))
    queries = [
        f"filterBy={name}{quote(operator + value)}"
        for name in columns(robot, address, "filterBy", "nosuchcolumn==1")
        for operator, value in ASKED
    ]
    queries += [f"sortBy={name}&sortOrder=desc" for name in columns(robot, address, "sortBy", "nosuchcolumn")]
    broken = [query for query in queries if robot.get(f"{address}?{PERIOD}&{query}").status_code not in {200, 207, 400}]
    assert broken == []


def test_a_filter_of_more_clauses_than_a_database_takes_is_refused(robot: Robot, submitted: Callable[..., str]) -> None:
    submitted()
    most = robot.get(f"v1/workloads?filterBy={','.join(['name=@train'] * MOST_CLAUSES)}")
    assert len(most.json()["workloads"]) == 1
    one_more = robot.get(f"v1/workloads?filterBy={','.join(['name=@a'] * (MOST_CLAUSES + 1))}")
    assert (one_more.status_code, one_more.json()["errors"][0]["code"]) == (400, "too_many")
    assert robot.get(f"v1/workloads?filterBy={','.join(['name=@a'] * 1100)}").status_code == 400


@pytest.mark.parametrize("query", ["search=", "filterBy=name=@", "search=" + "%25" * 8, "filterBy=name=$"])
def test_a_parameter_longer_than_a_pattern_may_be_is_refused(
    robot: Robot, submitted: Callable[..., str], query: str
) -> None:
    submitted()
    room = LONGEST_PARAMETER - len(unquote(query.partition("=")[2]))
    assert robot.get(f"v1/workloads?{query}{'%25' * room}").status_code == 200
    answer = robot.get(f"v1/workloads?{query}{'%25' * 30_000}")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "too_long")
