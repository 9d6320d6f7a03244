"""`make demo RUNG_LAB=1`: a real control plane beside the simulated cluster, gone with the demo."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.workloads import job
from tests.portal.demo.installation import Demo
from tests.portal.demo.web import Robot
from tests.support.lab import programs
from tests.support.processes import eventually

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, data: Path | None) -> Iterator[Demo]:
    """A demo with a lab. Nothing of either is left afterwards."""
    programs()
    demo = Demo(tmp_path_factory.mktemp("lab") / "data", speed=60, data=data)
    demo.env["RUNG_LAB"] = "1"
    try:
        demo.start()
        yield demo
    finally:
        demo.throw_away()


def test_a_job_runs_on_a_real_control_plane(demo: Demo) -> None:
    robot = Robot(demo.origin)
    project = demo.rows("SELECT id FROM tenants_project WHERE name = 'lab-team'")[0][0]
    manifest = job("first", gpus=8)
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.io/library/python:3.14"
    answer = robot.submit(str(project), manifest)
    assert answer.status == 202, answer.text
    workload = answer.json["metadata"]["id"]
    eventually(lambda: robot.workload(workload)["phase"] == "Running", seconds=60, log=demo.log)
    where = "SELECT node_name FROM clusters_observedpod WHERE namespace = 'runai-lab-team'"
    assert demo.rows(where)[0][0].startswith(("h100-", "a100-"))


def test_a_second_start_brings_a_new_cluster_under_the_old_name(demo: Demo) -> None:
    before = demo.rows("SELECT uid FROM clusters_cluster WHERE name = 'lab'")
    assert demo.stop() == 0
    assert demo.processes() == {}
    demo.start()
    after = demo.rows("SELECT uid, state FROM clusters_cluster WHERE name = 'lab'")
    assert after[0][0] != before[0][0]
    assert after[0][1] == "active"
