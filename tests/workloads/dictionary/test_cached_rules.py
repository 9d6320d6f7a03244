"""Every change of the rules counts from the next submit on."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from clusters.inventory.models import NodePool
from clusters.inventory.services.inventory import update_node_pool
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.access.models import Membership, Role
from tenants.access.services import access_rules, subjects
from tenants.organisation.models import Project
from tenants.organisation.services import delete_project, update_project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_priority_cap, set_project_quota
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory
from tests.factories.workloads import pytorch_job, spec_of
from tests.support.rest_clients import Robot
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.services.changes import change_priority_entry, update_type
from workloads.state.models import Workload
from workloads.submission.services import submit


@pytest.fixture(autouse=True)
def _any_image(settings: Settings) -> None:
    settings.RUNG_IMAGE_REGISTRIES = ["*"]


def send(robot: Robot, project: Project, name: str, *, gpus: int = 1) -> Any:
    manifest = pytorch_job(name, gpus=gpus)
    return robot.send("POST", "v2/workloads", {"metadata": {"projectId": str(project.pk)}, "manifest": manifest})


def code_of(response: Any) -> str:
    """The first refusal's code, or nothing."""
    return str(response.json().get("errors", [{}])[0].get("code", "")) if response.status_code != 202 else ""


def last() -> Workload:
    return Workload.objects.latest("created_at")


def lower_the_limit(project: Project) -> None:
    values = QuotaValues(deserved=Limit.of(gpu=0), limit=Limit.of(gpu=0))
    set_project_quota(project=project, node_pool=NodePool.objects.get(name="h100"), values=values, actor=SYSTEM)


def cap_the_priority(project: Project) -> None:
    set_priority_cap(project=project, priority=last().priority.name, gpu_limit=0, actor=SYSTEM)


def delete_everything(project: Project) -> None:
    Workload.objects.all().delete()
    delete_project(project=project, actor=SYSTEM)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lower_the_limit, "OverLimit"),
        (cap_the_priority, "OverPriorityCap"),
        (delete_everything, "unknown_id"),
    ],
)
def test_what_an_admin_forbids_is_refused_at_once(
    robot: Robot, llm_team: Project, change: Callable[[Project], None], code: str
) -> None:
    assert [code_of(send(robot, llm_team, name)) for name in ("one", "two")] == ["", ""]
    change(llm_team)
    assert code_of(send(robot, llm_team, "three")) == code


def other_default(project: Project) -> None:
    update_type(workload_type=WorkloadType.objects.get(name="PyTorchJob"), priority="medium-low", actor=SYSTEM)


def other_value(project: Project) -> None:
    change_priority_entry(name=last().priority.name, value=41, actor=SYSTEM)


def other_default_pool(project: Project) -> None:
    update_node_pool(pool=NodePool.objects.get(name="a100"), is_default=True, actor=SYSTEM)


def other_pools_of_the_project(project: Project) -> None:
    update_project(project=project, description="", default_node_pools=["a100"], actor=SYSTEM)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        (other_default, "priority.name", "medium-low"),
        (other_value, "priority_value", 41),
        (other_default_pool, "pool_name", "a100"),
        (other_pools_of_the_project, "pool_name", "a100"),
    ],
)
def test_what_an_admin_changes_is_what_the_next_workload_gets(
    robot: Robot, llm_team: Project, change: Callable[[Project], None], field: str, value: object
) -> None:
    def now() -> object:
        found: Any = last()
        for name in field.split("."):
            found = getattr(found, name)
        return found

    assert send(robot, llm_team, "one").status_code == 202
    assert now() != value
    change(llm_team)
    assert send(robot, llm_team, "two").status_code == 202
    assert now() == value


def test_a_project_that_moves_is_told_of_its_new_department(
    robot: Robot, llm_team: Project, vision_team: Project
) -> None:
    assert send(robot, llm_team, "one").json()["metadata"]["departmentName"] == "research"
    Project.objects.filter(pk=llm_team.pk).update(department=vision_team.department)
    assert send(robot, llm_team, "two").json()["metadata"]["departmentName"] == "perception"


def test_a_revoked_membership_hides_the_project_at_once(member: Robot, llm_team: Project) -> None:
    assert send(member, llm_team, "one").status_code == 202
    access_rules.revoke(membership=Membership.objects.get(service_account=member.account), actor=SYSTEM)
    assert code_of(send(member, llm_team, "two")) == "unknown_id"


def test_a_weaker_role_may_look_and_no_longer_submit(member: Robot, llm_team: Project) -> None:
    assert send(member, llm_team, "one").status_code == 202
    held = Membership.objects.get(service_account=member.account)
    access_rules.change_role(membership=held, role=Role.VIEWER, actor=SYSTEM)
    assert send(member, llm_team, "two").status_code == 403


@pytest.mark.parametrize("shut_out", ["disabled", "rotated", "deleted"])
def test_an_account_that_was_shut_out_is_unknown_at_once(member: Robot, llm_team: Project, shut_out: str) -> None:
    assert [send(member, llm_team, name).status_code for name in ("one", "two")] == [202, 202]
    match shut_out:
        case "disabled":
            subjects.enable_service_account(account=member.account, enabled=False, actor=SYSTEM)
        case "rotated":
            subjects.rotate_service_account(account=member.account, actor=SYSTEM)
        case _:
            subjects.delete_service_account(account=member.account, actor=SYSTEM)
    assert send(member, llm_team, "three").status_code == 401


def test_a_submit_reads_every_table_once(robot: Robot, llm_team: Project) -> None:
    send(robot, llm_team, "one")
    with CaptureQueriesContext(connection) as queries:
        assert send(robot, llm_team, "two").status_code == 202
    read = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    tables = ["serviceaccount", "membership", "project", "workloadtype", "priority", "nodepool", "quota", "cap"]
    assert len(read) <= len(tables), read


@pytest.mark.postgres
def test_a_submit_after_another_reads_the_version_of_the_settings_only(postgres_db: str) -> None:
    project = ProjectQuotaFactory(node_pool__is_default=True).project
    robot = Robot("robot", role=Role.MEMBER, project=project)
    assert send(robot, project, "one").status_code == 202
    with CaptureQueriesContext(connection) as queries:
        assert send(robot, project, "two").status_code == 202
    texts = [query["sql"] for query in queries]
    assert "core_settingsversion" in texts[0]
    assert [text.split()[0] for text in texts[1:]] == ["BEGIN", "INSERT", "INSERT", "INSERT", "COMMIT"], texts


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_decides_nothing(llm_team: Project) -> None:
    def accepted(name: str) -> bool:
        try:
            return bool(submit(spec=spec_of(pytorch_job(name, gpus=16)), project=llm_team, actor=SYSTEM))
        except ValidationFailed:
            return False

    quota = ProjectQuota.objects.filter(project=llm_team)
    assert not accepted("one")
    with transaction.atomic():
        quota.update(gpu_limit=16 * GPU)
        assert accepted("two")
        transaction.set_rollback(True)
    assert not accepted("three")
    with transaction.atomic():
        quota.update(gpu_limit=15 * GPU)
        transaction.set_rollback(True)
    quota.update(gpu_limit=20 * GPU)
    assert accepted("four")


ELSEWHERE = {
    "OverLimit": "UPDATE tenants_projectquota SET gpu_limit = 0, gpu_deserved = 0",
    "OverPriorityCap": "INSERT INTO tenants_prioritycap (project_id, priority, gpu_limit) "
    "SELECT id, 'low', 0 FROM tenants_project",
    "no_pool": "TRUNCATE clusters_nodepool CASCADE",
    "wrong_priority": "UPDATE workloads_workloadtype SET priority_id = (SELECT id FROM workloads_priority "
    "WHERE name = 'medium-low')",
    "wrong_value": "UPDATE workloads_priority SET value = 41 WHERE name = 'low'",
    "unknown_id": "DELETE FROM tenants_membership",
    "unauthorized": "UPDATE tenants_serviceaccount SET enabled = false",
}


@pytest.mark.postgres
@pytest.mark.parametrize("code", ELSEWHERE)
def test_what_others_write_to_the_database_counts_here(postgres_db: str, postgres_server: Any, code: str) -> None:
    project = ProjectQuotaFactory(node_pool__is_default=True).project
    DepartmentQuotaFactory(department=project.department, node_pool=NodePool.objects.get())
    robot = Robot("robot", role=Role.MEMBER, project=project)
    assert [send(robot, project, name).status_code for name in ("one", "two")] == [202, 202]
    with psycopg.connect(host=str(postgres_server), user="rung", dbname=connection.settings_dict["NAME"]) as stranger:
        stranger.execute(ELSEWHERE[code].encode())
    response = send(robot, project, "three")
    match code:
        case "wrong_priority":
            assert response.json()["metadata"]["priority"] == "medium-low"
        case "wrong_value":
            assert last().priority_value == 41
        case "unauthorized":
            assert response.status_code == 401
        case _:
            assert code_of(response) == code
