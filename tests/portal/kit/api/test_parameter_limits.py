"""A list's parameters have a greatest length and number of clauses."""

from collections.abc import Callable
from urllib.parse import unquote

import pytest

from portal.kit.api.lists import LONGEST_PARAMETER, MOST_CLAUSES
from tests.support.rest_clients import Robot


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
