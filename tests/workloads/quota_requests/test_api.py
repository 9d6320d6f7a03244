"""Quota requests over REST: bodies, permissions, dry runs, retries, and a moved base."""

from typing import Any

import pytest

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.tenants import GPU
from tests.factories.workloads import QuotaRequestFactory
from tests.support.rest_clients import Robot
from workloads.quota_requests.models import QuotaRequest

PATH = "v1/quota-requests"


@pytest.fixture
def good(llm_team: Project, h100: NodePool) -> dict[str, Any]:
    """A good body."""
    return {"projectId": str(llm_team.pk), "nodePoolId": str(h100.pk), "gpus": 2, "reason": "Paper deadline"}


@pytest.fixture
def stranger(vision_team: Project) -> Robot:
    return Robot("stranger", role=Role.MEMBER, project=vision_team)


def deserved(project: Project) -> int:
    return ProjectQuota.objects.get(project=project).gpu_deserved // GPU


def test_it_is_requested_listed_read_and_approved(
    member: Robot, robot: Robot, good: dict[str, Any], llm_team: Project
) -> None:
    answer = member.send("POST", PATH, good)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["state"], made["gpus"], made["until"], made["mayWithdraw"], made["mayDecide"]) == (
        "open", 2, None, True, False,
    )  # fmt: skip
    assert made["impact"]["department"]["after"] == 6
    assert [row["id"] for row in member.get(PATH).json()["quotaRequests"]] == [made["id"]]
    assert [row["mayDecide"] for row in robot.get(f"{PATH}?toDecide=true").json()["quotaRequests"]] == [True]
    assert member.get(f"{PATH}?toDecide=true").json() == {"quotaRequests": []}
    body = {"base": made["base"], "gpus": 1, "reason": "For now"}
    shown = robot.send("POST", f"{PATH}/{made['id']}/approve?dryRun=true", body)
    assert (shown.status_code, shown.json()["impact"]["deserved"]["after"], deserved(llm_team)) == (200, 5, 4)
    answer = robot.send("POST", f"{PATH}/{made['id']}/approve", body)
    assert answer.status_code == 200, answer.content
    done = robot.get(f"{PATH}/{made['id']}").json()
    assert (done["state"], done["sync"], done["decision"]["gpus"], done["decision"]["by"]) == (
        "approved", "pending", 1, "platform-robot",
    )  # fmt: skip
    assert deserved(llm_team) == 5
    assert robot.get(f"{PATH}?filterBy=state==open").json() == {"quotaRequests": []}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"gpus": 1e9}, "/gpus", id="more than the pool has"),
        pytest.param({"gpus": "many"}, "/gpus", id="no number"),
        pytest.param({"gpus": None}, "/gpus", id="null"),
        pytest.param({"until": "soon"}, "/until", id="no date"),
        pytest.param({"until": "2001-01-01"}, "/until", id="a past date"),
        pytest.param({"reason": ""}, "/reason", id="no reason"),
        pytest.param({"reason": "x" * 501}, "/reason", id="a long reason"),
        pytest.param({"projectId": "999999"}, "/projectId", id="an absent project"),
        pytest.param({"projectId": "x"}, "/projectId", id="no id"),
        pytest.param({"nodePoolId": "9" * 20}, "/nodePoolId", id="a huge id"),
        pytest.param({"cpus": 1}, "/cpus", id="an unknown field"),
    ],
)
def test_a_bad_field_is_named(member: Robot, good: dict[str, Any], body: dict[str, Any], pointer: str) -> None:
    answer = member.send("POST", PATH, good | body)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not QuotaRequest.objects.exists()


def test_absurd_sizes_are_answered_with_the_largest(member: Robot, good: dict[str, Any]) -> None:
    problem = member.send("POST", PATH, good | {"gpus": 1e9}).json()["errors"][0]
    assert (problem["message"], problem["numbers"]) == ("h100 has 16 GPUs in total.", {"largest": "16.0"})


def test_a_project_that_one_may_not_see_is_answered_as_an_absent_one(
    stranger: Robot, good: dict[str, Any], llm_team: Project
) -> None:
    foreign = stranger.send("POST", PATH, good).json()
    absent = stranger.send("POST", PATH, good | {"projectId": "999999"}).json()
    assert foreign == absent
    row = QuotaRequestFactory(project=llm_team, node_pool=NodePool.objects.get(pk=good["nodePoolId"]))
    assert stranger.get(PATH).json() == {"quotaRequests": []}
    for verb, path in (("GET", ""), ("POST", "/approve"), ("POST", "/decline"), ("POST", "/withdraw")):
        assert stranger.send(verb, f"{PATH}/{row.pk}{path}").status_code == 404


def test_a_dry_run_keeps_nothing_and_a_retry_makes_one(member: Robot, good: dict[str, Any]) -> None:
    shown = member.send("POST", f"{PATH}?dryRun=true", good)
    assert (shown.status_code, shown.json()["impact"]["deserved"]["after"]) == (200, 6)
    assert not QuotaRequest.objects.exists()
    first, again = (member.send("POST", PATH, good, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == again.json()
    assert member.send("POST", PATH, good).status_code == 409
    assert QuotaRequest.objects.count() == 1


def test_an_approval_on_a_moved_base_is_409_with_the_new_impact(
    member: Robot, robot: Robot, good: dict[str, Any], llm_team: Project
) -> None:
    made = member.send("POST", PATH, good).json()
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=5 * GPU)
    path = f"{PATH}/{made['id']}/approve"
    answer = robot.send("POST", path, {"base": made["base"]}, **{"Idempotency-Key": "first"})
    assert (answer.status_code, answer.json()["details"]) == (409, "base_moved")
    assert answer.json()["impact"]["deserved"] == {"before": 5, "after": 7}
    assert "projects" not in answer.json()["impact"]["reclaim"]
    assert deserved(llm_team) == 5
    assert robot.send("POST", path, {"base": made["base"]}).status_code == 409
    assert robot.get(f"{PATH}/{made['id']}").json()["base"] == answer.json()["base"]
    assert robot.send("POST", path, {"base": answer.json()["base"]}).status_code == 200
    assert deserved(llm_team) == 7
    assert AuditRecord.objects.filter(action="quota_request.approve", result="Denied").count() == 2


def test_a_member_cannot_decide_and_another_cannot_withdraw(member: Robot, robot: Robot, good: dict[str, Any]) -> None:
    made = member.send("POST", PATH, good).json()
    assert member.send("POST", f"{PATH}/{made['id']}/approve", {"base": made["base"]}).status_code == 403
    assert member.send("POST", f"{PATH}/{made['id']}/decline", {"reason": "no"}).status_code == 403
    assert robot.send("POST", f"{PATH}/{made['id']}/withdraw").status_code == 403
    assert member.send("POST", f"{PATH}/{made['id']}/withdraw").json()["state"] == "withdrawn"
    assert robot.send("POST", f"{PATH}/{made['id']}/decline", {"reason": "no"}).status_code == 409


@pytest.mark.parametrize("query", ["sortBy=size", "filterBy=size==1", "limit=0", "todecide=true"])
def test_a_list_refuses_what_it_does_not_know(member: Robot, query: str) -> None:
    assert member.get(f"{PATH}?{query}").status_code == 400
