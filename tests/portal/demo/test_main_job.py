"""The main job over HTTP only: the dictionary reaches the cluster, examples run or say why not, the higher one wins."""

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from tests.portal.demo.installation import Demo
from tests.portal.demo.web import Answer, Person, Robot, training

PATIENCE = 60.0
SAID = {"Pending": "Waiting"}  # the pages say it in people's words
WAITS = {"Pending", "Creating", "Initializing", "Resuming"}
Found = dict[str, Any]
Value = TypeVar("Value")


@pytest.fixture(scope="module")
def robot(demo: Demo) -> Robot:
    return Robot(demo.origin)


@pytest.fixture(scope="module")
def admin(demo: Demo) -> Person:
    return Person(demo.origin, "admin")


@pytest.fixture(scope="module")
def alice(demo: Demo) -> Person:
    return Person(demo.origin, "alice")


def until(look: Callable[[], Value], good: Callable[[Value], object]) -> Value:
    """Look again and again until it is good; says what it saw last if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {seen}"
        time.sleep(0.3)
    return seen


def of_name(rows: list[Found], name: str) -> Found:
    return next(row for row in rows if row["name"] == name)


def accepted(answer: Answer) -> Found:
    assert answer.status == 202, answer.text
    found: Found = answer.json["metadata"]
    return found


def make_room(robot: Robot) -> None:
    """Delete what may be evicted in llm-team, so that this test knows who can be the victim."""
    rows = robot.get("v1/workloads?filterBy=projectName==llm-team&limit=200")["workloads"]
    ids = [row["id"] for row in rows if row["preemptible"] and row["phase"] in {"Running", *WAITS}]
    answer = robot.send("POST", "v1/workloads/batch", {"ids": ids, "action": "delete"})
    assert (answer.status, answer.json["failed"]) == (200, [])


def test_another_default_of_a_type_reaches_the_cluster_with_the_next_job(robot: Robot, alice: Person) -> None:
    medium = of_name(robot.get("v1/workload-priorities")["priorities"], "medium")
    kind = of_name(robot.get("v1/workload-types")["types"], "TFJob")
    assert kind["priorityName"] == "low"
    answer = robot.send("PUT", f"v1/workload-types/{kind['id']}", {"priorityId": medium["id"]})
    assert (answer.status, answer.json["priorityName"]) == (200, "medium")
    assert "medium" in alice.open("/types/").words

    manifest = training("by-default", gpus=0, hours=48)
    replicas = manifest["spec"].pop("pytorchReplicaSpecs")
    replicas["Worker"] = replicas.pop("Master")
    replicas["Worker"]["template"]["spec"]["containers"][0] |= {"name": "tensorflow", "resources": {}}
    manifest |= {"kind": "TFJob", "spec": {"tfReplicaSpecs": replicas}}
    made = accepted(robot.submit(robot.project_id("llm-team"), manifest))
    assert (made["priority"], made["prioritySource"]) == ("medium", "type")

    def pods() -> str:
        return alice.open(f"/workloads/{made['id']}/?tab=pods").words

    until(pods, lambda words: "by-default" in words and "medium" in words)


def test_another_value_of_a_priority_reaches_the_cluster_through_its_plan(robot: Robot, admin: Person) -> None:
    plan = admin.fill("/priorities/medium-low/", value="66")
    assert plan.status == 200
    assert "66" in plan.words
    applied = admin.fill(plan.url, action="/apply/")
    assert "Applied" in applied.words

    def entry() -> Found:
        return of_name(robot.get("v1/workload-priorities")["priorities"], "medium-low")

    synced = until(entry, lambda row: row["aggregatedPhase"] == "Ready")
    assert synced["value"] == 66
    runs = admin.open("/clusters/atlas/?tab=sync").words
    written = runs.partition("medium-low")
    assert written[1]
    assert "PriorityClass" in written[0]
    assert "66" in written[2]


@pytest.mark.parametrize("name", ["llm-finetune", "jupyter-notebook", "training-job-1"])
def test_a_shipped_example_runs_or_says_with_numbers_why_not(name: str, robot: Robot, alice: Person) -> None:
    page = alice.fill(f"/workloads/submit/yaml/?example={name}", action="/submit/yaml/", project="llm-team")
    workload_id = page.url.rstrip("/").rpartition("/")[2]
    assert page.status == 200, page.words
    assert name in page.words

    def look() -> Found:
        return robot.workload(workload_id)

    def settled(row: Found) -> bool:
        reason = row["phase"] == "Pending" and any(each.isdigit() for each in row["phaseMessage"])
        return reason or row["phase"] in {"Running", "Completed"}

    row = until(look, settled)
    assert row["submittedBy"] == "alice"

    def on_its_page() -> bool:
        phase = look()["phase"]
        return SAID.get(phase, phase) in alice.open(f"/workloads/{workload_id}/").words

    until(on_its_page, bool)


def test_a_higher_training_evicts_a_lower_one_of_its_project_and_both_are_told(
    demo: Demo, robot: Robot, alice: Person
) -> None:
    """The queue may hold 40 GPUs of h100: fill it with low ones until one waits for the limit, then ask for more."""
    project = robot.project_id("llm-team")
    make_room(robot)
    low = [
        accepted(robot.submit(project, training(f"low-{number}", gpus=8, hours=96, checkpoint="30m")))["id"]
        for number in range(5)
    ]

    def ours() -> list[Found]:
        return [robot.workload(each) for each in low]

    def is_full(rows: list[Found]) -> bool:
        running = [row for row in rows if row["phase"] == "Running"]
        return (
            bool(running)
            and all(row["phase"] == "Running" or row["phaseReason"] == "OverLimit" for row in rows)
            and len(running) < len(rows)
        )

    running = {row["id"] for row in until(ours, is_full) if row["phase"] == "Running"}
    wishes = {"priority": "high", "preemptibility": "non-preemptible"}
    high = accepted(robot.submit(project, training("urgent", gpus=8, hours=96), **wishes))
    assert (high["priority"], high["prioritySource"]) == ("high", "explicit")

    until(lambda: robot.workload(high["id"]), lambda row: row["phase"] == "Running")
    gave_way = until(
        lambda: [row for row in ours() if row["id"] in running and row["phase"] != "Running"], lambda rows: rows
    )
    assert len(gave_way) == 1

    def told() -> str:
        return alice.open(f"/workloads/{gave_way[0]['id']}/").words

    words = until(told, lambda words: "Requeued." in words)
    assert "by urgent (high 125) of the same project" in words
    record = demo.rows(
        """SELECT r.cause, r.preemptor_name, r.ran_seconds, r.lost_gpu_seconds, r.gpu_milli
                          FROM workloads_preemptionrecord r WHERE victim_id = ?""",
        UUID(gave_way[0]["id"]).hex,
    )
    assert len(record) == 1
    cause, preemptor, ran, lost, gpus = record[0]
    assert (cause, preemptor, gpus) == ("preempt", "urgent", 8000)
    assert 0 < lost <= (ran + 1) * 8
    assert "Preempted by urgent (high 125)" in words
    assert re.search(r"about [0-9.]+ GPU-(hours|minutes) lost", words)
    assert "grace period" in words
    assert gave_way[0]["phase"] in WAITS
