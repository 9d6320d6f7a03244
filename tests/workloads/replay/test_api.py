"""Replays over REST: for platform admins; refusals store nothing."""

from typing import Any

import pytest

from tenants.organisation.models import Project
from tests.support.rest_clients import Person, Robot
from workloads.replay import services as replay_services
from workloads.replay.models import Replay

PATH = "v1/replays"
BACKWARDS = {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}
QUOTA = {"project": "llm-team", "nodePool": "h100", "deservedGpus": 1}
COLUMNS = {"submitted": "t", "duration": "dur", "gpus": "gpu"}


def good(project: Project, **more: Any) -> dict[str, Any]:
    trace = {"csv": "t,dur,gpu\n0,60,1\n", "columns": COLUMNS, "project": project.name, "priority": "low"}
    return {"name": "what if", "clusterId": str(project.cluster_id), "trace": trace, **more}


def test_a_replay_is_started_read_and_its_submissions_downloaded(robot: Robot, llm_team: Project) -> None:
    requested = good(llm_team, priorities=[{"name": "low", "value": 45}], proposedScheduler="kube")
    made = robot.send("POST", PATH, requested)
    assert made.status_code == 202, made.content
    key = made.json()["id"]
    assert (made.json()["status"], made.json()["percent"], made.json()["result"]) == ("Pending", 0, None)
    assert "trace" not in made.json()["request"]
    assert robot.get(f"{PATH}/{key}/file").status_code == 409
    replay_services.sweep()
    found = robot.get(f"{PATH}/{key}").json()
    assert (found["status"], found["percent"]) == ("Ready", 100)
    assert found["result"]["all"]["before"]["submissions"] == 1
    assert [each["name"] for each in robot.get(PATH).json()["replays"]] == ["what if"]
    assert robot.get(f"{PATH}/{key}/file").content.decode().startswith("submission,project")
    assert robot.send("POST", f"{PATH}/{key}/cancel").status_code == 409


def test_columns_with_the_fields_names_need_no_mapping(robot: Robot, llm_team: Project) -> None:
    trace = {"csv": f"submitted,duration,gpus,owner,priority\n0,60,1,{llm_team.name},low\n"}
    assert robot.send("POST", PATH, good(llm_team, trace=trace)).status_code == 202
    assert Replay.objects.get().trace[0]["project"] == llm_team.name


def test_it_is_cancelled_once(robot: Robot, llm_team: Project) -> None:
    key = robot.send("POST", PATH, good(llm_team)).json()["id"]
    assert robot.send("POST", f"{PATH}/{key}/cancel").json()["status"] == "Cancelled"
    assert robot.send("POST", f"{PATH}/{key}/cancel").status_code == 409
    assert robot.get(PATH + "?sortBy=name&filterBy=status==Cancelled").json()["replays"][0]["id"] == key


def test_a_dry_run_keeps_nothing(robot: Robot, llm_team: Project) -> None:
    assert robot.send("POST", f"{PATH}?dryRun=true", good(llm_team)).status_code == 200
    assert not Replay.objects.exists()


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        pytest.param({"name": "\x00"}, "/name", id="NUL"),
        pytest.param({"name": "a\x85b"}, "/name", id="a name of two lines"),
        pytest.param({"clusterId": "00000000-0000-4000-8000-000000000000"}, "/clusterId", id="another cluster"),
        pytest.param({"scheduler": "slurm"}, "/scheduler", id="no model"),
        pytest.param({"trace": None}, "/start", id="no submissions"),
        pytest.param({"trace": None, **BACKWARDS}, "/end", id="an end before the start"),
        pytest.param({"priorities": [{"name": "urgent", "value": 1}]}, "/priorities/0/name", id="unknown priority"),
        pytest.param({"priorities": [{"name": "low", "value": 2**31}]}, "/priorities/0/value", id="no such value"),
        pytest.param({"quotas": [{**QUOTA, "project": "x"}]}, "/quotas/0/project", id="no project"),
        pytest.param({"quotas": [{**QUOTA, "nodePool": "x"}]}, "/quotas/0/nodePool", id="no pool"),
        pytest.param({"quotas": [{**QUOTA, "deservedGpus": -1}]}, "/quotas/0/deservedGpus", id="negative"),
        pytest.param({"unknown": 1}, "/unknown", id="an unknown field"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_and_nothing_stored(
    robot: Robot, llm_team: Project, more: dict[str, Any], pointer: str
) -> None:
    answer = robot.send("POST", PATH, good(llm_team, **more))
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not Replay.objects.exists()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        pytest.param({"csv": "t,dur,gpu\n0,-1,1\n"}, "/trace/csv", id="negative duration"),
        pytest.param({"columns": {"submitted": "t", "duration": "dur"}}, "/trace/columns/gpus", id="no column named"),
        pytest.param({"priority": None}, "/trace/columns/priority", id="no priority"),
        pytest.param({"nodePool": "v100"}, "/trace/nodePool", id="another pool"),
        pytest.param({"project": "vision"}, "/trace/project", id="another project"),
        pytest.param({"priorities": {"HP": "urgent"}}, "/trace/priorities", id="unknown priority in the mapping"),
        pytest.param({"priority": "urgent"}, "/trace/priority", id="unknown default priority"),
    ],
)
def test_what_is_wrong_with_a_trace_is_named(
    robot: Robot, llm_team: Project, change: dict[str, Any], pointer: str
) -> None:
    requested = good(llm_team)
    answer = robot.send("POST", PATH, {**requested, "trace": {**requested["trace"], **change}})
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not Replay.objects.exists()


def test_others_than_platform_admins_are_refused(llm_team: Project) -> None:
    member = Person("bob", role="owner", project=llm_team).client
    assert member.get(f"/api/{PATH}").status_code == 403
    assert member.post(f"/api/{PATH}", good(llm_team), "application/json").status_code == 403
    assert not Replay.objects.exists()
