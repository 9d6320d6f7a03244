"""Templates and assets over REST: what is refused, dry runs, and that policies rule after a template."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory
from tests.factories.workloads import AssetFactory, PolicyFactory, WorkloadTemplateFactory
from tests.support.rest_clients import Robot
from workloads.state.models import Workload
from workloads.workload_templates.models import Asset, WorkloadTemplate

HOUSE = {"name": "house", "scopeType": "tenant"}
SIZE = {"name": "size", "scope": "tenant"}
IMAGE = "docker.io/team/train:1"


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "/meta"),
        ({"meta": {"name": "x"}}, 422, "/meta/scopeType"),
        ({"meta": {**HOUSE, "scopeType": "system"}}, 422, "/meta/scopeType"),
        ({"meta": {**HOUSE, "name": ""}}, 422, "/meta/name"),
        ({"meta": {**HOUSE, "scopeType": "project"}}, 400, "/meta/scopeId"),
        ({"meta": {**HOUSE, "scopeType": "project", "scopeId": "999999"}}, 422, "/meta/scopeId"),
        ({"meta": {**HOUSE, "scopeType": "cluster", "scopeId": "no"}}, 422, "/meta/scopeId"),
        ({"meta": {**HOUSE, "createdBy": "me"}}, 422, "/meta/createdBy"),
        ({"meta": HOUSE, "spec": []}, 422, "/spec"),
        ({"meta": HOUSE, "spec": {"completions": "1"}}, 422, "/spec/completions"),
        ({"meta": HOUSE, "spec": {"numWorkers": 1}}, 422, "/spec/numWorkers"),
        ({"meta": HOUSE, "assets": {"environment": "x"}}, 422, "/assets/environment"),
        ({"meta": HOUSE, "assets": {"compute": str(uuid4())}}, 422, "/assets/compute"),
        ({"meta": HOUSE, "assets": {"datasources": [{"id": "1"}]}}, 422, "/assets/datasources/0"),
        ({"meta": HOUSE, "master": {"spec": {"image": IMAGE}}}, 422, "/master"),
    ],
)
def test_t52_a_bad_template_is_refused_at_its_field_and_nothing_is_kept(
    robot: Robot, body: dict[str, Any], status: int, pointer: str
) -> None:
    answer = robot.send("POST", "v1/workload-templates/trainings", body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer), answer.content
    assert not WorkloadTemplate.objects.exists()


def test_a_template_that_names_an_unknown_node_pool_is_refused_with_the_known_ones(
    robot: Robot, llm_team: Project
) -> None:
    meta = {"name": "mine", "scopeType": "project", "scopeId": str(llm_team.pk)}
    NodePool.objects.create(cluster=ClusterFactory(name="far"), name="tpu", label_value="tpu")
    body = {"meta": meta, "spec": {"nodePools": ["h100", "tpu"]}}
    answer = robot.send("POST", "v1/workload-templates/trainings", body)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["pointer"]) == (422, "/spec/nodePools/1")
    assert error["message"] == "Unknown node pool 'tpu'. Node pools in project llm-team: a100, h100."
    assert not WorkloadTemplate.objects.exists()
    everywhere = robot.send("POST", "v1/workload-templates/trainings", {**body, "meta": HOUSE})
    assert everywhere.status_code == 202, "a cluster of the installation has each of them"


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"meta": {"name": "x"}}, 422, "/meta/scope"),
        ({"meta": {**SIZE, "scope": "department"}}, 400, "/meta/departmentId"),
        ({"meta": {**SIZE, "workloadSupportedTypes": {"batch": True}}}, 422, "/meta/workloadSupportedTypes/batch"),
        ({"meta": SIZE, "spec": {"gpuDevicesRequest": 1000}}, 422, "/spec/gpuDevicesRequest"),
        ({"meta": SIZE, "spec": {"migProfile": "1g.5gb"}}, 422, "/spec/migProfile"),
    ],
)
def test_t52_a_bad_asset_is_refused_at_its_field_and_nothing_is_kept(
    robot: Robot, body: dict[str, Any], status: int, pointer: str
) -> None:
    answer = robot.send("POST", "v1/asset/compute", body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer), answer.content
    assert not Asset.objects.exists()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("v1/workload-templates/notebooks", 404),
        ("v1/workload-templates/1", 404),
        ("v1/workload-templates?complyToProject=999999", 400),
        ("v1/workload-templates?filterBy=workloadType==Cron", 400),
        ("v1/workload-templates/name-availability", 400),
        ("v1/workload-templates/name-availability?templateName=x&scopeType=galaxy", 400),
        ("v1/workload-templates/name-availability?templateName=x&scopeType=project&scopeId=999999", 422),
        ("v1/asset/credentials", 404),
        ("v1/asset/compute?scope=tenant&includeDescendants=true", 400),
        ("v1/asset/compute?usageInfo=perhaps", 400),
    ],
)
def test_t68_what_is_not_named_or_not_there(robot: Robot, path: str, status: int) -> None:
    assert robot.get(path).status_code == status


def test_a_dry_run_keeps_nothing(robot: Robot) -> None:
    answer = robot.send(
        "POST", "v1/workload-templates/trainings?dryRun=true", {"meta": HOUSE, "spec": {"image": IMAGE}}
    )
    assert (answer.status_code, answer.json()["runnable"]["isRunnable"]) == (200, True)
    assert not WorkloadTemplate.objects.exists()
    assert not AuditRecord.objects.filter(action="template.create", result="Succeeded").exists()


def test_a_repeated_request_makes_one_template(robot: Robot) -> None:
    body = {"meta": HOUSE, "spec": {"image": IMAGE}}
    first, again = (
        robot.send("POST", "v1/workload-templates/trainings", body, **{"Idempotency-Key": "once"}) for _ in range(2)
    )
    assert first.json() == again.json()
    assert WorkloadTemplate.objects.count() == 1


def test_an_asset_in_use_is_409_and_says_by_whom_on_request(robot: Robot) -> None:
    size = AssetFactory()
    template = WorkloadTemplateFactory(compute=size)
    assert robot.send("DELETE", f"v1/asset/compute/{size.pk}").status_code == 409
    told = robot.get(f"v1/asset/compute/{size.pk}?usageInfo=true").json()["usedBy"]
    assert told == {"templates": [{"id": str(template.pk), "name": template.name}]}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"fieldsToClear": ["meta.name"]}, "/fieldsToClear/0"),
        ({"fieldsToClear": ["spec.image", "kind"]}, "/fieldsToClear/1"),
        ({"spec": {"image": 1}}, "/spec/image"),
        ({"meta": {"name": ""}}, "/meta/name"),
    ],
)
def test_a_bad_change_is_refused_at_its_field(robot: Robot, change: dict[str, Any], pointer: str) -> None:
    row = WorkloadTemplateFactory()
    answer = robot.send("PATCH", f"v1/workload-templates/trainings/{row.pk}", change)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.content


@pytest.mark.parametrize("path", ["v1/workload-templates?complyToProject={}", "v1/asset/compute?usageInfo=true"])
def test_a_long_list_asks_no_more_questions_than_a_short_one(robot: Robot, llm_team: Project, path: str) -> None:
    def requested() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert robot.get(path.format(llm_team.pk)).status_code == 200
        return len(queries)

    WorkloadTemplateFactory(compute=AssetFactory())
    robot.get(path.format(llm_team.pk))
    short = requested()
    for _ in range(5):
        WorkloadTemplateFactory(scope="project", project=llm_team, compute=AssetFactory())
    assert requested() == short


def submission(project: Project, template: WorkloadTemplate, **spec: Any) -> dict[str, Any]:
    where = {"projectId": str(project.pk), "clusterId": str(project.cluster_id)}
    return {"name": "train", **where, "templateId": str(template.pk), "spec": spec}


def test_policies_rule_after_the_template_and_the_refusal_names_it(member: Robot, llm_team: Project) -> None:
    PolicyFactory(document={"rules": {"priorityClass": {"options": [{"value": "low"}]}}})
    high = WorkloadTemplateFactory(name="in-a-hurry", spec={"image": IMAGE, "priorityClass": "very-high"})
    answer = member.send("POST", "v1/workloads/trainings", submission(llm_team, high))
    assert answer.status_code == 400
    (issue,) = answer.json()["complianceIssues"]
    assert (issue["field"], issue["rule"]) == ("spec.priorityClass", "options")
    assert issue["details"].endswith("Set by template in-a-hurry.")
    assert not Workload.objects.exists()
    answer = member.send("POST", "v1/workloads/trainings", submission(llm_team, high, priorityClass="low"))
    assert (answer.status_code, answer.json()["spec"]["priorityClass"]) == (202, "low")


def test_a_template_grants_nothing_that_typing_would_not(member: Robot, llm_team: Project) -> None:
    grown = WorkloadTemplateFactory(name="grown", spec={"image": IMAGE, "security": {"hostNetwork": True}})
    answer = member.send("POST", "v1/workloads/trainings", submission(llm_team, grown))
    assert answer.json()["errors"][0]["pointer"] == "/spec/security/hostNetwork"
    assert answer.json()["errors"][0]["message"].endswith("Set by template grown.")


def test_the_record_of_a_submission_names_its_template(member: Robot, llm_team: Project) -> None:
    template = WorkloadTemplateFactory(name="house")
    assert member.send("POST", "v1/workloads/trainings", submission(llm_team, template)).status_code == 202
    record = AuditRecord.objects.get(action="workload.submit")
    assert record.detail["template"] == str(template.pk)


def test_a_later_change_is_no_longer_the_templates_word(robot: Robot, llm_team: Project) -> None:
    served = {"image": IMAGE, "autoscaling": {"minReplicas": 1, "maxReplicas": 1}}
    template = WorkloadTemplateFactory(kind="inferences", spec=served)
    made = robot.send("POST", "v1/workloads/inferences", submission(llm_team, template)).json()
    assert set(made["templateSources"]) == {"/spec/image", "/spec/autoscaling"}
    change = {"spec": {"autoscaling": {"minReplicas": 2, "maxReplicas": 2}}}
    answer = robot.send("PATCH", f"v1/workloads/inferences/{made['workloadId']}", change)
    assert (answer.status_code, set(answer.json()["templateSources"])) == (202, {"/spec/image"}), answer.content
