"""Metrics and telemetry through Run:ai's own client, read into its own classes."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from runai import models
from runai.exceptions import BadRequestException, NotFoundException
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.services.usage import average, take_samples
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of
from workloads.state.models import Phase, Workload

HOUR = timedelta(hours=1)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def running(llm_team: Project, now: datetime) -> Workload:
    """Two pods of one GPU: one for an hour, one that started half an hour ago and has ended a quarter ago."""
    workload: Workload = WorkloadFactory.create(
        project=llm_team, phase=Phase.RUNNING, created_at=now - 2 * HOUR, allocated_gpu_milli=1000
    )
    kept = {"workload": workload, "cpu_milli": 2000, "memory_bytes": 2**30}
    ObservedPodFactory.create(**kept, created_at=now - HOUR, started_at=now - HOUR)
    ObservedPodFactory.create(
        **kept,
        created_at=now - HOUR / 2,
        started_at=now - HOUR / 2,
        ended_at=now - HOUR / 4,
        phase="Succeeded",
        uid="0a8f0a0e-1111-4222-8333-444455556666",
    )
    return workload


@pytest.fixture
def sampled(running: Workload, now: datetime, llm_team: Project, vision_team: Project) -> Cluster:
    """Measured once, a moment ago."""
    WorkloadFactory.create(project=llm_team, phase=Phase.PENDING, phase_at=now - HOUR, pool_name="a100")
    Cluster.objects.update(observed_at=now)
    take_samples()
    average([llm_team.cluster_id])
    return llm_team.cluster


def told(answer: Any) -> dict[str, list[str]]:
    """Values by type, read typed."""
    found = models.MetricsResponse.from_dict(answer.data)
    assert found is not None
    return {each.type: [value.value for value in each.values] for each in found.measurements}


def test_a_cluster_and_its_pools(runai: RunaiClient, sampled: Cluster, now: datetime) -> None:
    kinds = [models.MetricsType(name) for name in ("TOTAL_GPU", "ALLOCATED_GPU", "UNALLOCATED_GPU", "GPU_QUOTA")]
    kinds += [models.MetricsType.WORKLOADS_COUNT, models.MetricsType.TOTAL_GPU_NODES]
    window = {"start": now - HOUR, "end": now + HOUR}
    answer = runai.organizations.clusters.get_cluster_metrics(str(sampled.pk), metric_type=kinds, **window)
    assert answer.status_code == 200
    assert told(answer) == {
        "TOTAL_GPU": ["24"],
        "ALLOCATED_GPU": ["1"],
        "UNALLOCATED_GPU": ["23"],
        "GPU_QUOTA": ["8"],
        "WORKLOADS_COUNT": ["2"],
        "TOTAL_GPU_NODES": ["3"],
    }
    wait = [models.MetricsType.AVG_WORKLOAD_WAIT_TIME]
    pools = runai.organizations.node_pools
    (waited,) = told(pools.get_nodepool_metrics(str(sampled.pk), "a100", metric_type=wait, **window)).values()
    assert float(waited[0]) == pytest.approx(3600, abs=61)
    assert told(pools.get_nodepool_metrics(str(sampled.pk), "h100", metric_type=wait, **window)) == {
        "AVG_WORKLOAD_WAIT_TIME": []
    }


def test_a_cluster_by_project_shows_what_one_may_see(
    live_server: object, runai: RunaiClient, sampled: Cluster, llm_team: Project, now: datetime
) -> None:
    requested: dict[str, Any] = {
        "cluster_uuid": str(sampled.pk),
        "start": now - HOUR,
        "end": now + HOUR,
        "metric_type": [models.MetricsType.ALLOCATED_GPU],
        "group_by": "Project",
    }

    def by_project(client: RunaiClient) -> dict[str, str]:
        found = models.GroupedMetricsResponse.from_dict(
            client.organizations.clusters.get_cluster_metrics(**requested).data
        )
        return {each.groups[0].value: each.values[0].value for each in found.measurements}

    assert by_project(runai) == {"llm-team": "1", "vision-team": "0"}
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    assert by_project(member) == {"llm-team": "1"}
    partial = runai.organizations.clusters.get_cluster_metrics(**{**requested, "group_by": "Category"})
    assert (partial.status_code, told(partial)) == (207, {"ALLOCATED_GPU": []})


def test_projects_and_departments(runai: RunaiClient, sampled: Cluster, llm_team: Project, now: datetime) -> None:
    names = ("GPU_QUOTA", "GPU_ALLOCATION", "CPU_ALLOCATION_MILLICORES", "GPU_MEMORY_UTILIZATION")
    requested: dict[str, Any] = {
        "metric_type": [models.OrgUnitMetricType(name) for name in names],
        "start": now - HOUR,
        "end": now + HOUR,
    }
    answer = runai.organizations.projects.get_project_metrics(str(llm_team.pk), **requested)
    assert answer.status_code == 207
    expected = {"GPU_QUOTA": ["4"], "GPU_ALLOCATION": ["1"], "CPU_ALLOCATION_MILLICORES": ["2000"]}
    assert told(answer) == {**expected, "GPU_MEMORY_UTILIZATION": []}
    elsewhere = runai.organizations.projects.get_project_metrics(str(llm_team.pk), nodepool_name="a100", **requested)
    assert told(elsewhere)["GPU_ALLOCATION"] == ["0"]
    department = runai.organizations.departments.get_department_metrics(str(llm_team.department_id), **requested)
    assert told(department)["GPU_QUOTA"] == ["8"]


def test_averages_stand_in_the_projects_and_sort_them(
    runai: RunaiClient, sampled: Cluster, llm_team: Project, vision_team: Project
) -> None:
    projects = runai.organizations.projects
    found = models.OvertimeData.from_dict(projects.get_project(str(llm_team.pk)).data["overtimeData"])
    assert found.range24h_data.average_gpu_allocation == 1
    assert found.range24h_data.average_gpu_utilization is None

    def named(**query: Any) -> list[str]:
        return [row["name"] for row in projects.get_projects(**query).data["projects"]]

    by_average = models.ProjectFilterSortFields.AVGGPUALLOCATION24H
    assert named(sort_by=by_average, sort_order="desc") == ["llm-team", "vision-team"]
    assert named(filter_by=["gpuAllocated>=0.5"]) == ["llm-team"]
    assert named(filter_by=["avgGpuAllocation7d<=0.5"]) == ["vision-team"]
    assert named(filter_by=["totalGpuQuota==4", "phase==Updating"], sort_by="gpuAllocated") == [
        "vision-team",
        "llm-team",
    ]
    assert named(filter_by=["avgGpuUtilization24h>=0"]) == []
    departments = runai.organizations.departments.get_departments(filter_by=["gpuAllocated==1"]).data["departments"]
    assert [row["name"] for row in departments] == ["research"]
    models.DepartmentForList.from_dict(departments[0])


def test_projects_and_departments_in_numbers_of_now(
    runai: RunaiClient, running: Workload, vision_team: Project
) -> None:
    kind = models.OrgUnitTelemetryType

    def values(answer: Any) -> dict[str, str]:
        found = models.TelemetryResponse.from_dict(answer.data)
        return {each.groups[0].name if each.groups else "": each.value for each in found.values}

    projects, departments = runai.organizations.projects, runai.organizations.departments
    assert values(projects.get_projects_telemetry(telemetry_type=kind.GPU_ALLOCATION)) == {"": "1"}
    by_parent = projects.get_projects_telemetry(telemetry_type=kind.GPU_QUOTA, group_by=["ParentId"])
    assert values(by_parent) == {"research": "4", "perception": "4"}
    by_cluster = departments.get_departments_telemetry(telemetry_type=kind.GPU_QUOTA, group_by=["CLUSTER_ID"])
    assert values(by_cluster) == {"lab": "16"}
    nothing = departments.get_departments_telemetry(telemetry_type=kind.GPU_QUOTA, nodepool_name="a100")
    assert values(nothing) == {"": "0"}


def test_a_workload_and_a_pod_over_time(runai: RunaiClient, running: Workload, now: datetime) -> None:
    kind = models.WorkloadMetricType
    requested: dict[str, Any] = {"start": now - HOUR, "end": now, "number_of_samples": 6}
    kinds = [kind.POD_COUNT, kind.RUNNING_POD_COUNT, kind.GPU_ALLOCATION, kind.CPU_REQUEST_CORES]
    answer = runai.workloads.workloads.get_workload_metrics(str(running.pk), metric_type=kinds, **requested)
    assert answer.status_code == 200
    assert told(answer) == {
        "POD_COUNT": ["1", "1", "2", "2", "2", "2"],
        "RUNNING_POD_COUNT": ["1", "1", "2", "2", "1", "1"],
        "GPU_ALLOCATION": ["1", "1", "2", "2", "1", "1"],
        "CPU_REQUEST_CORES": ["2", "2", "4", "4", "2", "2"],
    }
    partial = runai.workloads.workloads.get_workload_metrics(
        str(running.pk), metric_type=[kind.GPU_UTILIZATION], **requested
    )
    assert (partial.status_code, told(partial)) == (207, {"GPU_UTILIZATION": []})
    pod = "0a8f0a0e-1111-4222-8333-444455556666"
    of_pod = runai.workloads.pods.get_workload_pod_metrics(
        str(running.pk), pod, metric_type=["GPU_ALLOCATION", models.PodMetricType.CPU_USAGE_CORES], **requested
    )
    assert (of_pod.status_code, told(of_pod)["GPU_ALLOCATION"]) == (207, ["0", "0", "1", "1", "0", "0"])


def test_what_is_forgotten_of_an_ended_workload_is_not_told(
    runai: RunaiClient, running: Workload, now: datetime
) -> None:
    Workload.objects.filter(pk=running.pk).update(phase=Phase.COMPLETED, created_at=now - timedelta(days=30))
    answer = runai.workloads.workloads.get_workload_metrics(
        str(running.pk),
        metric_type=[models.WorkloadMetricType.POD_COUNT],
        start=now - timedelta(days=10),
        end=now,
        number_of_samples=10,
    )
    assert (answer.status_code, len(told(answer)["POD_COUNT"])) == (207, 7)


def test_workloads_in_numbers_of_now(
    live_server: object, runai: RunaiClient, running: Workload, vision_team: Project, now: datetime
) -> None:
    WorkloadFactory.create(project=vision_team, phase=Phase.PENDING, phase_at=now - HOUR / 2)
    kind, ask = models.WorkloadTelemetryType, runai.workloads.workloads.get_workloads_telemetry

    def values(answer: Any) -> dict[tuple[str, ...], str]:
        found = models.TelemetryResponse.from_dict(answer.data)
        return {tuple(group.value for group in each.groups): each.value for each in found.values}

    assert values(ask(telemetry_type=kind.WORKLOADS_COUNT)) == {(): "2"}
    by_phase = ask(telemetry_type=kind.WORKLOADS_COUNT, group_by=["Phase", "Type"])
    assert values(by_phase) == {("Pending", "PyTorchJob"): "1", ("Running", "PyTorchJob"): "1"}
    assert values(ask(telemetry_type=kind.GPU_ALLOCATION, filter_by_phases=[models.Phase.RUNNING])) == {(): "1"}
    assert values(ask(telemetry_type=kind.PENDING_TIME_DISTRIBUTION)) == {("600-3600",): "1"}
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=vision_team).workloads.workloads
    assert values(member.get_workloads_telemetry(telemetry_type=kind.WORKLOADS_COUNT)) == {(): "1"}


def test_of_what_is_not_yours_nothing_is_told(
    live_server: object, running: Workload, llm_team: Project, vision_team: Project, now: datetime
) -> None:
    stranger = client_of(live_server, "stranger", Role.MEMBER, project=vision_team)
    requested: dict[str, Any] = {"start": now - HOUR, "end": now}
    with pytest.raises(NotFoundException):
        stranger.organizations.projects.get_project_metrics(str(llm_team.pk), metric_type=["GPU_QUOTA"], **requested)
    with pytest.raises(NotFoundException):
        stranger.workloads.workloads.get_workload_metrics(str(running.pk), metric_type=["POD_COUNT"], **requested)


def test_a_node_measures_nothing_and_a_bad_window_is_400(
    runai: RunaiClient, cluster: Cluster, h100: NodePool, now: datetime
) -> None:
    nodes, node = runai.organizations.nodes, cluster.nodes.first()
    assert node is not None
    kind = [models.NodeMetricType.GPU_UTILIZATION]
    answer = nodes.get_node_metrics(str(node.pk), metric_type=kind, start=now - HOUR, end=now)
    assert (answer.status_code, told(answer)) == (207, {"GPU_UTILIZATION": []})
    with pytest.raises(BadRequestException):
        nodes.get_node_metrics(str(node.pk), metric_type=kind, start=now, end=now - HOUR)
