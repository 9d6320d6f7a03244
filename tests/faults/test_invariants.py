"""The checks of a request log can fail."""

import json

import pytest

from clusters.ownership import owned
from tests.faults.invariants import writes_are_fenced
from tests.support.faults import Exchange


def write(method: str, generation: int, owner: str = "project.1") -> Exchange:
    """An effective write of one object."""
    metadata = owned("one", owner=owner, generation=generation, namespace="a")
    body = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}).encode()
    return Exchange(method, "/apis/batch/v1/namespaces/a/jobs", "", {}, body, upstream=201, answered=201)


def test_i4_a_lower_generation_after_a_higher_one_is_found() -> None:
    writes_are_fenced([write("POST", 1), write("PUT", 3), write("PUT", 3)])
    with pytest.raises(AssertionError, match="fell from generation 3 to 2"):
        writes_are_fenced([write("POST", 1), write("PUT", 3), write("PUT", 2)])


def test_i4_a_second_create_of_a_workload_is_found() -> None:
    with pytest.raises(AssertionError, match="I4"):
        writes_are_fenced([write("POST", 1, owner="workload.1"), write("POST", 1, owner="workload.1")])
