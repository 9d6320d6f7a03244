"""Plans over REST: plan, read, apply, discard and roll back, within the permissions of each change."""

from typing import Any

import pytest
from django.utils import timezone

from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.clusters import SyncRunFactory
from tests.factories.tenants import GPU
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Priority
from workloads.plans.models import Plan

PATH = "v1/plans"


def quotas(**entry: Any) -> dict[str, Any]:
    named = {"project": "llm-team", "nodePool": "h100", **entry}
    return {"kind": "quotas", "change": {"quotas": [named], "reason": "Less work"}}


def test_a_quota_is_planned_applied_and_rolled_back(robot: Robot, llm_team: Project) -> None:
    answer = robot.send("POST", PATH, quotas(gpu={"deserved": 2.5}, rank="High"))
    assert answer.status_code == 201, answer.content
    plan = answer.json()
    assert (plan["state"], plan["title"], plan["createdBy"]) == ("open", "Quota of llm-team in h100", "platform-robot")
    assert plan["reason"] == robot.get(PATH).json()["plans"][0]["reason"] == "Less work"
    assert plan["quotas"][0]["fields"] == [
        ["gpu_deserved", "4 GPUs", "2.5 GPUs"],
        ["rank", "medium-low", "high"],
    ]
    assert robot.get(f"{PATH}/{plan['id']}").json() == plan
    assert ProjectQuota.objects.get().gpu_deserved == 4 * GPU
    applied = robot.send("POST", f"{PATH}/{plan['id']}/apply")
    assert (applied.status_code, applied.json()["state"]) == (200, "applied")
    cluster = llm_team.cluster
    cluster.refresh_from_db()
    (sync,) = applied.json()["syncs"]
    assert (sync["cluster"], sync["state"], sync["run"]) == ("lab", "waiting", None)
    run = SyncRunFactory(cluster=cluster, state="succeeded", generation=cluster.generation, finished_at=timezone.now())
    (sync,) = robot.get(f"{PATH}/{plan['id']}").json()["syncs"]
    assert (plan["syncs"], sync["state"], sync["run"]) == ([], "synced", run.pk)
    row = ProjectQuota.objects.get()
    assert (row.gpu_deserved, row.gpu_limit, row.rank) == (2500, 12 * GPU, "high")
    back = robot.send("POST", f"{PATH}/{plan['id']}/rollback").json()
    assert (back["state"], back["rollsBack"]) == ("open", plan["id"])
    robot.send("POST", f"{PATH}/{back['id']}/apply")
    assert ProjectQuota.objects.get().gpu_deserved == 4 * GPU
    listed = robot.get(f"{PATH}?state=applied").json()
    assert [each["id"] for each in listed["plans"]] == [back["id"], plan["id"]]


def test_an_outdated_plan_says_what_changed(robot: Robot, llm_team: Project) -> None:
    path = f"{PATH}/{robot.send('POST', PATH, quotas(gpu={'deserved': 2})).json()['id']}"
    assert robot.get(path).json()["outOfDate"] == ""
    ProjectQuota.objects.update(gpu_deserved=3 * GPU)
    assert "all projects in h100 of lab: 4 GPUs deserved → 3 GPUs deserved" in robot.get(path).json()["outOfDate"]


def test_a_dry_run_answers_the_plan_and_stores_none(robot: Robot, llm_team: Project) -> None:
    answer = robot.send("POST", f"{PATH}?dryRun=true", quotas(gpu={"deserved": 2}))
    assert answer.status_code == 200
    assert answer.json()["sentence"].startswith("Project llm-team in h100: GPUs deserved 4 → 2.")
    assert not Plan.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        pytest.param(quotas(nodePool="b200"), "/change/quotas/0/pool", "unknown_node_pool", id="unknown pool"),
        pytest.param(quotas(gpu={"deserved": -1}), "/change/quotas/0/gpu/deserved", "not_exact", id="below zero"),
        pytest.param(quotas(gpu={"much": 1}), "/change/quotas/0/gpu/much", "unknown_field", id="unknown field"),
        pytest.param(quotas(department="research"), "/change/quotas/0/project", "one_owner", id="two owners"),
        pytest.param({"kind": "priority", "change": {"op": "add"}}, "/change/name", "required", id="no name"),
        pytest.param({"kind": "type", "change": {"op": "fly"}}, "/change/op", "unknown_op", id="unknown verb"),
        pytest.param(
            {"kind": "type", "change": {"op": "type", "name": "Spaceship"}},
            "/change/name",
            "type_unknown",
            id="no type",
        ),
        pytest.param(
            {"kind": "priority", "change": {"op": "change", "name": "low", "value": 125}},
            "/change/value",
            "value_taken",
            id="a value that is taken",
        ),
    ],
)
def test_a_bad_change_points_at_its_field(
    body: dict[str, Any], pointer: str, code: str, robot: Robot, llm_team: Project
) -> None:
    answer = robot.send("POST", PATH, body)
    assert answer.status_code == 422, answer.content
    assert (answer.json()["errors"][0]["pointer"], answer.json()["errors"][0]["code"]) == (pointer, code)
    assert not Plan.objects.exists()


def test_plans_of_others_are_absent_and_cannot_be_made(
    robot: Robot, member: Robot, llm_team: Project, vision_team: Project
) -> None:
    plan = robot.send("POST", PATH, quotas(project="vision-team", gpu={"deserved": 2})).json()
    assert member.get(PATH).json()["plans"] == []
    for method, path in (("GET", ""), ("POST", "/apply"), ("POST", "/discard"), ("POST", "/rollback")):
        assert member.send(method, f"{PATH}/{plan['id']}{path}").status_code == 404
    assert member.send("POST", PATH, quotas(project="vision-team")).status_code == 404
    assert member.send("POST", PATH, quotas(project="no-such-team")).status_code == 404
    assert member.send("POST", PATH, quotas()).status_code == 403
    assert Plan.objects.get().state == "open"


def test_a_priority_is_planned_applied_and_rolled_back(robot: Robot) -> None:
    body = {"kind": "priority", "change": {"op": "rename", "name": "medium", "newName": "normal"}}
    plan = robot.send("POST", PATH, body).json()
    robot.send("POST", f"{PATH}/{plan['id']}/apply")
    assert Priority.objects.get(name="medium").alias_of == Priority.objects.get(name="normal")
    back = robot.send("POST", f"{PATH}/{plan['id']}/rollback").json()
    assert robot.send("POST", f"{PATH}/{back['id']}/apply").status_code == 200
    assert Priority.objects.get(name="medium").alias_of is None
    assert Priority.objects.get(name="normal").retired_at is not None


def test_a_discarded_plan_is_neither_applied_nor_rolled_back(robot: Robot, llm_team: Project) -> None:
    plan = robot.send("POST", PATH, quotas(gpu={"deserved": 2})).json()
    assert robot.send("POST", f"{PATH}/{plan['id']}/discard").json()["state"] == "discarded"
    answers = [robot.send("POST", f"{PATH}/{plan['id']}/{verb}") for verb in ("apply", "rollback")]
    assert [(each.status_code, each.json()["details"]) for each in answers] == [
        (409, "plan_closed"),
        (409, "plan_not_applied"),
    ]
