"""Departments, projects and their quotas through Run:ai's own client, in its own units."""

from typing import Any

import pytest
from runai import models
from runai.exceptions import (
    BadRequestException,
    ConflictException,
    ForbiddenException,
    NotFoundException,
    UnprocessableEntityException,
)
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, ProjectQuota, TimeLimit
from tests.runapy.conftest import client_of


def entry(pool: NodePool, **parts: Any) -> dict[str, Any]:
    """Quota of one pool."""
    return {"nodePool": {"id": str(pool.pk), "name": pool.name}, **parts}


@pytest.fixture
def made(runai: RunaiClient, cluster: Cluster, research: Department, h100: NodePool) -> dict[str, Any]:
    """A project made by a script, with quota and a time limit for training."""
    resources = models.ResourcesNullable.from_dict(
        entry(
            h100,
            gpu={"deserved": 4, "limit": 6.5, "overQuotaWeight": 3},
            cpu={"deserved": 16000, "limit": -1},
            memory={"deserved": 512, "limit": None, "units": "GB"},
            priority="High",
        )
    )
    request = models.ProjectCreationRequest(
        name="genomics",
        cluster_id=str(cluster.pk),
        parent_id=str(research.pk),
        resources=[resources],
        scheduling_rules=models.SchedulingRules(training_job_time_limit_seconds=3600),
    )
    answer = runai.organizations.projects.create_project(request)
    assert answer.status_code == 201
    found: dict[str, Any] = answer.data
    return found


def test_a_project_comes_with_its_quota_and_its_time_limit(made: dict[str, Any], h100: NodePool) -> None:
    (row,) = ProjectQuota.objects.filter(project__name="genomics", node_pool=h100)
    assert (row.gpu_deserved, row.gpu_limit, row.over_quota_weight, row.rank) == (4000, 6500, 3, "high")
    assert (row.cpu_deserved, row.cpu_limit, row.memory_deserved, row.memory_limit) == (16000, None, 512 * 10**9, None)
    assert TimeLimit.objects.get(project__name="genomics").minutes == 60
    assert AuditRecord.objects.filter(action="project.create", entity_id=made["id"]).count() == 1


def test_its_parts_are_read_typed(made: dict[str, Any]) -> None:
    models.ProjectStatus.from_dict(made["status"])
    effective = models.ProjectEffective.from_dict(made["effective"])
    assert effective.scheduling_rules.training_job_time_limit_seconds == 3600
    quotas = [models.Resources.from_dict(each) for each in made["resources"]]
    assert [(quota.gpu.deserved, quota.gpu.limit) for quota in quotas if quota.gpu.deserved] == [(4, 6.5)]
    assert made["totalResources"] == {"gpuQuota": 4.0, "cpuQuota": 16000, "memoryQuota": 512000.0}


def test_a_patch_keeps_what_it_does_not_name_and_null_clears(
    runai: RunaiClient, made: dict[str, Any], h100: NodePool
) -> None:
    changed = runai.organizations.projects.patch_project_resources(
        made["id"], [entry(h100, gpu={"limit": -1}, memory=None)]
    )
    (quota,) = (each for each in changed.data if each["nodePool"]["id"] == str(h100.pk))
    assert (quota["gpu"]["deserved"], quota["gpu"]["limit"], quota["memory"]["deserved"]) == (4, None, None)
    assert quota["rank"] == "High"


def test_a_full_update_leaves_no_quota_that_is_not_named(runai: RunaiClient, made: dict[str, Any]) -> None:
    answer = runai.organizations.projects.update_project_resources(made["id"], [])
    assert {each["gpu"]["deserved"] for each in answer.data} == {0}
    assert not ProjectQuota.objects.filter(project__name="genomics").exists()


def test_lists_count_filter_and_page(runai: RunaiClient, made: dict[str, Any], vision_team: Project) -> None:
    projects = runai.organizations.projects
    assert [each["name"] for each in projects.get_projects(filter_by=["name=^geno"]).data["projects"]] == ["genomics"]
    assert projects.count_projects(search="team").data == {"count": 2}
    first = projects.get_projects(limit=1, sort_by=models.ProjectFilterSortFields.NAME).data
    assert (first["projects"][0]["name"], first["next"]) == ("genomics", 1)


def test_departments_are_read_typed_made_and_deleted(runai: RunaiClient, cluster: Cluster, h100: NodePool) -> None:
    departments = runai.organizations.departments
    request = models.DepartmentCreationRequest(
        name="biology", cluster_id=str(cluster.pk), resources=[entry(h100, gpu={"deserved": 8, "limit": 8})]
    )
    made = departments.create_department(request).data
    listed = departments.get_departments().data["departments"]
    typed = {each.name: each for each in map(models.DepartmentForList.from_dict, listed)}
    assert typed["biology"].total_resources.gpu_quota == 8
    assert departments.get_department(made["id"]).data["name"] == "biology"
    with pytest.raises(ConflictException):
        departments.create_department(request)
    assert departments.delete_department(made["id"]).status_code == 204
    with pytest.raises(NotFoundException):
        departments.get_department(made["id"])


def weights_of(resources: list[dict[str, Any]]) -> list[tuple[float, float, float]]:
    return [tuple(each[name]["overQuotaWeight"] for name in ("gpu", "cpu", "memory")) for each in resources]


def weighted(pool: NodePool, gpu: float, cpu: float, memory: float) -> dict[str, Any]:
    return entry(
        pool,
        gpu={"deserved": 2, "overQuotaWeight": gpu},
        cpu={"overQuotaWeight": cpu},
        memory={"overQuotaWeight": memory, "units": "GB"},
    )


def test_each_resource_has_its_own_weight_also_a_fraction(
    runai: RunaiClient, cluster: Cluster, h100: NodePool, a100: NodePool
) -> None:
    departments, projects = runai.organizations.departments, runai.organizations.projects
    resources = [models.ResourcesNullable.from_dict(weighted(pool, 2.5, 1, 0.5)) for pool in (h100, a100)]
    where = {"cluster_id": str(cluster.pk), "resources": resources}
    parent = departments.create_department(models.DepartmentCreationRequest(name="biology", **where)).data
    assert weights_of(parent["resources"]) == [(2.5, 1, 0.5)] * 2
    request = models.ProjectCreationRequest(name="genomics", parent_id=parent["id"], **where)
    made = projects.create_project(request).data
    assert weights_of(made["resources"]) == [(2.5, 1, 0.5)] * 2
    typed = models.Resources.from_dict(made["resources"][0])
    assert (typed.gpu.over_quota_weight, typed.memory.over_quota_weight) == (2.5, 0.5)
    change = [entry(h100, gpu={"deserved": 2, "overQuotaWeight": 4})]
    patched = projects.patch_project_resources(made["id"], change).data
    assert sorted(weights_of(patched)) == [(2.5, 1, 0.5), (4, 1, 0.5)]
    replaced = projects.update_project_resources(made["id"], [entry(h100, gpu={"deserved": 2, "overQuotaWeight": 4})])
    assert weights_of([each for each in replaced.data if each["nodePool"]["name"] == "h100"]) == [(4, 4, 4)]


def test_where_a_scheduler_has_one_weight_the_gpus_counts_and_a_warning_says_so(
    runai: RunaiClient, cluster: Cluster, research: Department, h100: NodePool
) -> None:
    Cluster.objects.update(flavour="volcano")
    request = models.ProjectCreationRequest(
        name="genomics",
        cluster_id=str(cluster.pk),
        parent_id=str(research.pk),
        resources=[models.ResourcesNullable.from_dict(weighted(h100, 3, 1, 0.5))],
    )
    (warning,) = runai.organizations.projects.create_project(request).data["warnings"]
    assert (warning["code"], warning["pointer"]) == ("one_weight", "/cpu/overQuotaWeight")
    assert "it gets that of the GPUs, 3, not 1 for CPU and 0.5 for memory" in warning["message"]


@pytest.mark.parametrize(
    ("parts", "pointer"),
    [
        ({"gpu": {"deserved": -4}}, "/resources/0/gpu/deserved"),
        ({"gpu": {"deserved": 0.0001}}, "/resources/0/gpu/deserved"),
        ({"gpu": {"deserved": 4, "limit": 2}}, "/resources/0/gpu/limit"),
        ({"memory": {"deserved": 1, "units": "TB"}}, "/resources/0/memory/units"),
        ({"gpu": {"overQuotaWeight": 1}, "cpu": {"overQuotaWeight": -2}}, "/resources/0/cpu/overQuotaWeight"),
        ({"memory": {"overQuotaWeight": 0.0001}}, "/resources/0/memory/overQuotaWeight"),
        ({"priority": "Urgent"}, "/resources/0/priority"),
        ({"disk": {}}, "/resources/0/disk"),
    ],
)
def test_a_bad_quota_is_refused_at_its_field_and_nothing_is_made(
    runai: RunaiClient, cluster: Cluster, research: Department, h100: NodePool, parts: dict[str, Any], pointer: str
) -> None:
    body = {"name": "half", "clusterId": str(cluster.pk), "parentId": str(research.pk)}
    with pytest.raises((UnprocessableEntityException, BadRequestException)) as refused:
        runai.organizations.projects.create_project({**body, "resources": [entry(h100, **parts)]})
    assert refused.value.data["errors"][0]["pointer"] == pointer
    assert not Project.objects.filter(name="half").exists()


def test_idle_limits_are_kept_and_the_rule_that_rung_has_not_is_refused(
    runai: RunaiClient, cluster: Cluster, research: Department
) -> None:
    body = {"name": "idle", "clusterId": str(cluster.pk), "parentId": str(research.pk), "resources": []}
    with pytest.raises(UnprocessableEntityException) as refused:
        runai.organizations.projects.create_project(
            {**body, "schedulingRules": {"interactiveJobPreemptIdleDurationSeconds": 600}}
        )
    assert refused.value.data["errors"][0]["pointer"] == "/schedulingRules/interactiveJobPreemptIdleDurationSeconds"
    rules = {"trainingJobMaxIdleDurationSeconds": 600}
    made = runai.organizations.projects.create_project({**body, "schedulingRules": rules}).data
    assert made["schedulingRules"]["trainingJobMaxIdleDurationSeconds"] == 600
    assert IdleLimit.objects.get(project__name="idle", category="Train").minutes == 10


def test_roles_hold_here_as_everywhere(
    live_server: object, made: dict[str, Any], llm_team: Project, vision_team: Project
) -> None:
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    projects = member.organizations.projects
    assert [each["name"] for each in projects.get_projects().data["projects"]] == ["llm-team"]
    with pytest.raises(NotFoundException):
        projects.get_project(str(vision_team.pk))
    with pytest.raises(ForbiddenException):
        projects.patch_project_resources(str(llm_team.pk), [])
    with pytest.raises(NotFoundException):
        projects.delete_project(made["id"])
