"""REST answers a change of quotas with what the console would warn of, in a dry run or not."""

from typing import Any

import pytest

from clusters.inventory.models import Cluster, NodePool
from scheduling.model.resources import Resources
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db
WORK = EvictableWork("llm-team/train, low 40", Resources.of(gpu=4), "0b0e5a3c-0000-4000-8000-000000000000")


@pytest.fixture
def training(llm_team: Project, h100: NodePool, ledger: Ledger) -> Project:
    """Its four deserved GPUs of h100 are in use by preemptible work."""
    Cluster.objects.update(flavour="kai")
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu=4), Resources.of(gpu=0), Resources.of(gpu=4)))
    ledger.work[llm_team.pk, h100.name] = [WORK]
    return llm_team


def entry(pool: NodePool, deserved: float) -> dict[str, Any]:
    return {"nodePool": {"id": str(pool.pk)}, "gpu": {"deserved": deserved}}


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
def test_who_becomes_reclaimable_is_in_the_pools_entry(
    robot: Robot, training: Project, h100: NodePool, query: str
) -> None:
    path = f"v1/org-unit/projects/{training.pk}/resources{query}"
    answer = robot.send("PATCH", path, [entry(h100, 1)])
    body = answer.json()
    entries = {each["nodePool"]["name"]: each for each in (body["resources"] if query else body)}
    (warning,) = entries["h100"]["warnings"]
    assert warning["code"] == "becomes_reclaimable"
    assert "the use of 4 GPUs exceeds the deserved 1 GPU by 3 GPUs" in warning["message"]
    assert (warning["pointer"], warning["nodePool"]["name"]) == ("/gpu/deserved", "h100")
    assert warning["numbers"] == {"used": "4 GPUs", "over": "3 GPUs", "deserved": "1 GPU", "reclaimable": "3 GPUs"}
    held = {"gpu": 4.0, "cpu": 0, "memory": 0.0}
    assert warning["workloads"] == [{"id": WORK.workload_id, "name": WORK.label, "held": held}]
    assert entries["a100"]["warnings"] == []
    kept = ProjectQuota.objects.get(project=training, node_pool=h100).gpu_deserved
    assert kept == (4000 if query else 1000)
    assert not query or body["plan"]["quotas"][0]["fields"] == [["gpu_deserved", "4 GPUs", "1 GPU"]]


def test_a_whole_project_or_department_says_them_of_all_its_pools(
    robot: Robot, training: Project, h100: NodePool
) -> None:
    path = f"v1/org-unit/projects/{training.pk}"
    found = robot.send("PUT", f"{path}?dryRun=true", {"resources": [entry(h100, 13)]}).json()["warnings"]
    assert [each["code"] for each in found] == ["sum_over_department"]
    found = robot.send("PUT", f"{path}?dryRun=true", {"resources": []}).json()["warnings"]
    assert [each["code"] for each in found] == ["becomes_reclaimable"]
    path = f"v1/org-unit/departments/{training.department_id}"
    found = robot.send("PUT", f"{path}?dryRun=true", {"resources": [entry(h100, 0)]}).json()["warnings"]
    assert "sum_over_department" in {each["code"] for each in found}


def test_an_answer_may_be_sent_back(robot: Robot, training: Project, h100: NodePool) -> None:
    path = f"v1/org-unit/projects/{training.pk}/resources"
    answered = robot.send("PATCH", path, [entry(h100, 1)]).json()
    assert robot.send("PUT", path, answered).status_code == 200
