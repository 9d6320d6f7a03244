"""The check of the process stack's request log sees a second create and a lower generation, and nothing else."""

import json

import pytest

from clusters.ports.objects import owned
from tests.faults.stack.invariants import fence_breaches
from tests.support.faults import Exchange

JOBS = "/apis/batch/v1/namespaces/runai-red/jobs"


def write(method: str, upstream: int, *, generation: int = 1, ended: float = 0.0) -> Exchange:
    manifest = {"kind": "Job", "metadata": owned("train", owner="workload.1", generation=generation)}
    path = JOBS if method == "POST" else f"{JOBS}/train"
    body = b"" if method == "DELETE" else json.dumps(manifest).encode()
    return Exchange(method, path, "", body=body, upstream=upstream, ended=ended)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([write("POST", 201), write("PUT", 200, generation=2)], id="create and update"),
        pytest.param([write("POST", 201), write("POST", 409)], id="the second create is refused"),
        pytest.param([write("PATCH", 201), write("PATCH", 200)], id="the second apply changes what is there"),
        pytest.param([write("POST", 201), write("DELETE", 200), write("POST", 201)], id="deleted between two creates"),
        pytest.param([write("PUT", 200, generation=2), write("PUT", 409)], id="the lower generation is refused"),
        pytest.param(
            [write("PUT", 200, generation=2, ended=2.0), write("PUT", 200, ended=1.0)], id="in order of answers"
        ),
    ],
)
def test_a_log_in_order_has_no_breaches(log: list[Exchange]) -> None:
    assert list(fence_breaches(log)) == []


@pytest.mark.parametrize(
    ("log", "breach"),
    [
        pytest.param([write("POST", 201), write("POST", 201)], "was created 2 times", id="POST twice"),
        pytest.param([write("POST", 201), write("PATCH", 201)], "was created 2 times", id="POST and apply"),
        pytest.param(
            [write("PUT", 200, generation=3), write("PUT", 200)], "fell from generation 3 to 1", id="late write"
        ),
    ],
)
def test_a_breach_is_named(log: list[Exchange], breach: str) -> None:
    assert [each for each in fence_breaches(log) if breach in each] == [f"I4: runai-red/train {breach}"]
