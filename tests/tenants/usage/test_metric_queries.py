"""Bad questions about clusters, pools and metrics are 400 with the parameter, and answer nothing of others."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory, NodePoolFactory
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.state.models import Phase

WINDOW = "start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        (WINDOW, "/metricType"),
        (f"metricType=GPU_FIRE&{WINDOW}", "/metricType"),
        ("metricType=TOTAL_GPU&end=2026-01-02T00:00:00Z", "/start"),
        ("metricType=TOTAL_GPU&start=yesterday&end=2026-01-02T00:00:00Z", "/start"),
        ("metricType=TOTAL_GPU&start=2026-13-01T00:00:00Z&end=2026-01-02T00:00:00Z", "/start"),
        ("metricType=TOTAL_GPU&start=0001-01-01T00:00:00%2B14:00&end=2026-01-02T00:00:00Z", "/start"),
        ("metricType=TOTAL_GPU&start=2026-01-01T00:00:00Z&end=9999-12-31T23:59:59-14:00", "/end"),
        ("metricType=TOTAL_GPU&start=2026-01-02T00:00:00Z&end=2026-01-02T00:00:00Z", "/end"),
        ("metricType=TOTAL_GPU&start=2020-01-02T00:00:00Z&end=2026-01-02T00:00:00Z", "/start"),
        (f"metricType=TOTAL_GPU&{WINDOW}&numberOfSamples=1001", "/numberOfSamples"),
        (f"metricType=TOTAL_GPU&{WINDOW}&numberOfSamples=-1", "/numberOfSamples"),
        (f"metricType=TOTAL_GPU&{WINDOW}&numberOfSamples=%C2%B2", "/numberOfSamples"),
        (f"metricType=TOTAL_GPU&{WINDOW}&nodepoolName=gone%00", "/nodepoolName"),
        (f"metricType=TOTAL_GPU&{WINDOW}&groupBy=Namespace", "/groupBy"),
        (f"metricType=TOTAL_GPU&{WINDOW}&groupBy=Project,Nodepool", "/groupBy"),
    ],
)
def test_a_bad_question_about_metrics_is_400_at_its_parameter(
    robot: Robot, cluster: Cluster, query: str, pointer: str
) -> None:
    response = robot.get(f"v1/clusters/{cluster.pk}/metrics?{query}")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("nodes/telemetry", "/telemetryType"),
        ("nodes/telemetry?telemetryType=HEAT", "/telemetryType"),
        ("nodes/telemetry?telemetryType=TOTAL_GPUS,FREE_GPUS", "/telemetryType"),
        ("nodes/telemetry?telemetryType=TOTAL_GPUS&groupBy=Node,Nodepool,ClusterId", "/groupBy"),
        ("nodes/telemetry?telemetryType=TOTAL_GPUS&clusterId=lab", "/clusterId"),
        ("org-unit/projects/telemetry?telemetryType=GPU_QUOTA&departmentId=1e3", "/departmentId"),
        ("org-unit/projects/telemetry?telemetryType=GPU_QUOTA&nodepoolId=9999999999999999999", "/nodepoolId"),
        ("org-unit/departments/telemetry?telemetryType=GPU_QUOTA&groupBy=ParentId", "/groupBy"),
        ("workloads/telemetry?telemetryType=WORKLOADS_COUNT&filterByPhases=Preempted", "/filterByPhases"),
        ("workloads/telemetry?telemetryType=PENDING_TIME_DISTRIBUTION&groupBy=Phase,Type", "/groupBy"),
        ("nodes?filterBy=clusterUuid==lab", "/filterBy"),
        ("nodes?filterBy=labels==x", "/filterBy"),
        ("node-pools?sortBy=cluster__credential", "/sortBy"),
        ("node-pools/count?filterBy=createdAt>=soon", "/filterBy"),
        ("node-pools/count?filterBy=createdAt>=0001-01-01T00:00:00%2B14:00", "/filterBy"),
        ("workloads?filterBy=createdAt<=9999-12-31T23:59:59-14:00", "/filterBy"),
        ("authorization/access-rules?lastUpdated=0001-01-01T00:00:00%2B14:00", "/lastUpdated"),
        ("clusters?verbosity=loud", "/verbosity"),
        ("clusters?includeRequestedForDelete=maybe", "/includeRequestedForDelete"),
        ("org-unit/projects?filterBy=gpuAllocated>=many", "/filterBy"),
        ("org-unit/projects?filterBy=totalGpuQuota==1e999", "/filterBy"),
        ("org-unit/projects?filterBy=clusterId==lab", "/filterBy"),
        ("org-unit/projects/node-pool-resources?filterBy=rank==Urgent", "/filterBy"),
    ],
)
def test_t51_a_bad_filter_order_or_parameter_is_400(robot: Robot, path: str, pointer: str) -> None:
    response = robot.get(f"v1/{path}")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_what_waits_is_counted_by_all_the_seconds_it_has_waited(database: str, llm_team: Project) -> None:
    now, second = timezone.now(), timedelta(seconds=1)
    for before, since in ((0, 30), (590, 30), (20, 3), (0, 600), (0, 200_000)):
        WorkloadFactory.create(
            project=llm_team, phase=Phase.PENDING, pending_seconds=before, phase_at=now - since * second
        )
    WorkloadFactory.create(project=llm_team, phase=Phase.RUNNING, pending_seconds=30)
    robot = Robot("platform-robot", role=Role.PLATFORM_ADMIN)
    told = robot.get("v1/workloads/telemetry?telemetryType=PENDING_TIME_DISTRIBUTION&groupBy=ProjectId").json()
    assert [[group["value"] for group in each["groups"]] + [each["value"]] for each in told["values"]] == [
        ["0-60", str(llm_team.pk), "2"],
        ["600-3600", str(llm_team.pk), "2"],
        ["86400-", str(llm_team.pk), "1"],
    ]


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_telemetry_adds_up_by_group_and_names_groups_without_any(
    database: str, llm_team: Project, vision_team: Project, h100: NodePool
) -> None:
    node = h100.nodes.all()[0]
    ObservedPodFactory(workload=WorkloadFactory(project=llm_team), node_name=node.name, gpu_milli=3000)
    robot = Robot("platform-robot", role=Role.PLATFORM_ADMIN)

    def numbers(query: str) -> dict[str, str]:
        rows = robot.get(f"v1/{query}").json()["values"]
        return {"/".join(group.get("name", group["value"]) for group in row["groups"]): row["value"] for row in rows}

    projects, departments = (
        "org-unit/projects/telemetry?telemetryType=",
        "org-unit/departments/telemetry?telemetryType=",
    )
    by_pool = numbers(f"{projects}GPU_ALLOCATION&groupBy=NodepoolId")
    assert by_pool == {"h100": "3", "a100": "0"}
    assert numbers(f"{projects}GPU_ALLOCATION&groupBy=ParentId,NodepoolId") == {
        f"{team.department.name}/{pool}": "3" if (team, pool) == (llm_team, "h100") else "0"
        for team in (llm_team, vision_team)
        for pool in by_pool
    }
    assert numbers(f"{projects}GPU_QUOTA&nodepoolId={h100.pk}&groupBy=NodepoolId").keys() == {"h100"}
    assert numbers(f"{departments}GPU_ALLOCATION&groupBy=ClusterId") == {"lab": "3"}
    assert numbers(f"{departments}GPU_ALLOCATION&nodepoolName=a100") == {"": "0"}
    assert numbers("nodes/telemetry?telemetryType=ALLOCATED_GPUS&groupBy=Node")[node.name] == "3"
    assert numbers("nodes/telemetry?telemetryType=FREE_GPUS&nodepoolName=h100") == {"": "13"}
    assert numbers("nodes/telemetry?telemetryType=FULLY_FREE_GPU_NODES&nodepoolName=h100") == {"": "1"}


@pytest.mark.parametrize("sent", [{"name": "x", "clusterId": "lab"}, {"isDefault": True}, {"labelKey": None}, [], 3])
def test_t52_a_pool_takes_only_its_fields(robot: Robot, h100: NodePool, sent: Any) -> None:
    before = NodePool.objects.values().get(pk=h100.pk)
    response = robot.send("PATCH", f"v1/node-pools/{h100.pk}", sent)
    assert response.status_code in {200, 422}
    after = NodePool.objects.values().get(pk=h100.pk)
    assert {name: after[name] for name in before if name not in {"updated_at", "updated_by"}} == {
        name: before[name] for name in before if name not in {"updated_at", "updated_by"}
    }


@pytest.mark.parametrize("key", ["0" * 40, "9" * 30, "lab", "%2e%2e", "00000000-0000-4000-8000-000000000000"])
def test_t68_an_id_that_is_none_is_404(robot: Robot, key: str) -> None:
    for path in ("clusters/{}", "node-pools/{}"):
        assert robot.get(f"v1/{path.format(key)}").status_code == 404
    for path in ("clusters/{}/metrics", "nodes/{}/metrics"):
        assert robot.get(f"v1/{path.format(key)}?metricType=TOTAL_GPU&{WINDOW}").status_code == 404


def test_a_dry_run_of_a_removal_leaves_the_cluster_as_it_is(robot: Robot, llm_team: Project) -> None:
    spare = Cluster.objects.create(name="spare", flavour="kai", backend="memory")
    response = robot.send("DELETE", f"v1/clusters/{spare.pk}?dryRun=true")
    assert (response.status_code, response["Rung-Dry-Run"]) == (200, "true")
    spare.refresh_from_db()
    assert (spare.state, spare.sync_runs.count()) == ("active", 0)


def test_an_admin_of_one_cluster_changes_that_one_and_its_pools_only(llm_team: Project, h100: NodePool) -> None:
    other = ClusterFactory.create(name="other")
    pool = NodePoolFactory.create(cluster=other, name="spare")
    robot = Robot("cluster-robot")
    role = create_role(name="Cluster admin", permission_sets=["manage-clusters"], actor=SYSTEM)
    MembershipFactory.create(user=None, service_account=robot.account, project=None, cluster=other, role=role)
    sent = {"name": "more", "labelKey": "gpu", "labelValue": "more"}

    def statuses(cluster: Cluster, of_it: NodePool) -> list[int]:
        return [
            robot.send("PUT", f"v1/clusters/{cluster.pk}", {"name": f"{cluster.name}-2"}).status_code,
            robot.send("POST", "v1/node-pools", {**sent, "clusterId": str(cluster.pk)}).status_code,
            robot.send("PATCH", f"v1/node-pools/{of_it.pk}", {"labelValue": "new"}).status_code,
        ]

    assert statuses(other, pool) == [204, 201, 200]
    assert statuses(llm_team.cluster, h100) == [403, 403, 403]
