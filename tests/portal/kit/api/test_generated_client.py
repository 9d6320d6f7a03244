"""A client generated from the OpenAPI document does what the seed documents do, against a live portal."""

import json
from typing import Any
from urllib.request import urlopen

import pytest

from clusters.inventory.models import Cluster, NodePool
from portal.kit.api.openapi import EXAMPLES
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.organisation.models import Project
from tests.support.openapi_client import GeneratedClient
from tests.support.rest_clients import Robot

TIERS = {"gpu-training": 1000, "gpu-serving": 800, "gpu-batch": 400, "gpu-interactive": 200}
"""The four classes of the first seed document."""


@pytest.fixture
def generated(live_server: object, cluster: Cluster) -> GeneratedClient:
    """Signed in as a platform admin's service account."""
    account, secret = subjects.create_service_account(name="generated", actor=SYSTEM, role=Role.PLATFORM_ADMIN)
    with urlopen(f"{live_server}/api/openapi.json", timeout=60) as response:
        client = GeneratedClient(str(live_server), json.load(response))
    body = {"grantType": "client_credentials", "clientId": account.client_id, "clientSecret": secret}
    client.token = client.grant_token(body=body).data["accessToken"]
    return client


def quota(pool: NodePool, gpus: int, limit: int) -> dict[str, Any]:
    return {"nodePool": {"id": str(pool.pk), "name": pool.name}, "gpu": {"deserved": gpus, "limit": limit}}


def job(name: str, priority: str, project: str, gpus: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "docker.io/pytorch/pytorch:2.9.0"}
    container |= {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}
    return {"metadata": {"projectId": project, "priority": priority}, "manifest": manifest}


@pytest.mark.enable_socket
@pytest.mark.django_db(transaction=True)
def test_the_seed_recipe_runs(generated: GeneratedClient, cluster: Cluster, h100: NodePool) -> None:
    for name, value in TIERS.items():
        made = generated.add_workload_priority(body={"name": name, "value": value, "description": f"{name} jobs"})
        assert (made.data["name"], made.data["value"]) == (name, value)
    by_name = {each["name"]: each for each in generated.get_workload_priorities().data["priorities"]}
    (kind,) = (each for each in generated.list_workload_types().data["types"] if each["name"] == "PyTorchJob")
    training = by_name["gpu-training"]["id"]
    changed = generated.update_workload_type(type_id=kind["id"], body={"priorityId": training})
    assert (changed.status, changed.data["priorityId"]) == (200, training)

    department = generated.create_department(
        body={"name": "tenants", "clusterId": str(cluster.pk), "resources": [quota(h100, 8, 8)]}
    )
    project = generated.create_project(
        body={
            "name": "tenant-alpha",
            "clusterId": str(cluster.pk),
            "parentId": department.data["id"],
            "resources": [quota(h100, 6, 8)],
        }
    ).data
    again = generated.update_project_resources(unit_id=project["id"], body=[quota(h100, 7, 8)])
    assert [each["gpu"]["deserved"] for each in again.data if each["nodePool"]["name"] == "h100"] == [7]

    body = job("llm-finetune", "gpu-training", project["id"], 4)
    forecast = generated.create_workload_v2(body=body, dryRun="true")
    assert (forecast.status, forecast.headers["Rung-Dry-Run"]) == (200, "true")
    made, again = (generated.create_workload_v2(body=body, Idempotency_Key="seed-1") for _ in range(2))
    assert (made.status, again.data["metadata"]["id"]) == (202, made.data["metadata"]["id"])
    found = generated.get_workload(workload_id=made.data["metadata"]["id"])
    assert (found.data["priorityClassName"], found.data["priority"]) == ("gpu-training", 1000)
    same = generated.get_workload(workload_id=found.data["id"], If_None_Match=found.headers["ETag"])
    assert (same.status, same.data) == (304, "")
    assert [
        each["name"] for each in generated.get_workloads(filterBy="projectName==tenant-alpha").data["workloads"]
    ] == ["llm-finetune"]
    refused = generated.create_workload_v2(body=job("no", "gpu-none", project["id"], 1))
    assert (refused.status, refused.data["errors"][0]["pointer"]) == (422, "/metadata/priority")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("v1/workloads/workspaces", "NewWorkspace"),
        ("v1/workloads/trainings", "NewTraining"),
        ("v1/workloads/distributed", "NewDistributed"),
        ("v1/workloads/inferences", "NewInference"),
        ("v1/workloads/distributed-inferences", "NewDistributedInference"),
        ("v2/workloads", "WorkloadCreate"),
        ("v2/workloads/nim-services", "NimServiceCreate"),
        ("v1/workload-templates/trainings", "TemplateCreate"),
        ("v1/asset/environment", "AssetCreate"),
        ("v1/workload-priorities", "PriorityCreate"),
        ("v1/org-unit/projects/{unit}/resources", "EntrySchema"),
        ("v1/webhooks", "WebhookCreate"),
    ],
)
def test_an_example_of_the_document_is_accepted(
    robot: Robot, vision_team: Project, h100: NodePool, path: str, name: str
) -> None:
    """With ids that exist."""
    text = json.dumps(EXAMPLES[name]).replace("4500012", str(vision_team.pk)).replace('"7"', f'"{h100.pk}"')
    body, method = json.loads(text), "PATCH" if "{unit}" in path else "POST"
    path = path.format(unit=vision_team.pk)
    answer = robot.send(method, f"{path}?dryRun=true", [body] if method == "PATCH" else body)
    assert answer.status_code == 200, answer.content
