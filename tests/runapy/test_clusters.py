"""Clusters and nodes through Run:ai's own client."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from runai import models
from runai.exceptions import ConflictException, ForbiddenException, NotFoundException, UnprocessableEntityException
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, ClusterState, Node
from clusters.inventory.services.inventory import unpause
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.services.disconnect import TRIGGER
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.clusters import ClusterFactory, NodeFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of


@pytest.fixture
def seen(cluster: Cluster) -> Cluster:
    """Looked at just now; one node is broken, one cordoned and tainted."""
    Cluster.objects.update(observed_at=timezone.now(), synced_at=timezone.now(), synced_generation=10)
    broken, cordoned = cluster.nodes.order_by("name")[:2]
    Node.objects.filter(pk=broken.pk).update(ready=False)
    taint = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
    labels = {"nvidia.com/gpu.clique": "a1b2.7"}
    Node.objects.filter(pk=cordoned.pk).update(
        unschedulable=True, taints=[taint], gpu_type="NVIDIA-H100", labels=labels, joined_at=timezone.now()
    )
    return cluster


def state_of(runai: RunaiClient, cluster: Cluster) -> str:
    found = models.DisplayedCluster.from_dict(runai.organizations.clusters.get_cluster_by_uuid(str(cluster.pk)).data)
    return str(found.status.state.value)


def test_a_cluster_is_listed_and_read_typed(runai: RunaiClient, seen: Cluster) -> None:
    clusters = runai.organizations.clusters
    (row,) = [models.DisplayedCluster.from_dict(each) for each in clusters.get_clusters().data]
    assert (row.uuid, row.name, row.tenant_id) == (str(seen.pk), "lab", 1)
    conditions = {each.type: each.status for each in row.status.conditions}
    assert conditions == {"Observed": "True", "Synced": "True"}
    (brief,) = clusters.get_clusters(verbosity="metadata").data
    assert "status" not in brief
    with pytest.raises(NotFoundException):
        clusters.get_cluster_by_uuid("00000000-0000-4000-8000-000000000000")


def test_a_paused_cluster_is_not_said_to_hold_what_is_wanted(runai: RunaiClient, seen: Cluster) -> None:
    Cluster.objects.update(state=ClusterState.PAUSED, paused_reason="another uid")
    (row,) = [models.DisplayedCluster.from_dict(each) for each in runai.organizations.clusters.get_clusters().data]
    (synced,) = [each for each in row.status.conditions if each.type == "Synced"]
    assert (synced.status, synced.reason) == ("Unknown", "NotCompared")


def test_its_state_is_what_rung_saw_last(runai: RunaiClient, seen: Cluster) -> None:
    rows = Cluster.objects.filter(pk=seen.pk)
    assert state_of(runai, seen) == "Connected"
    rows.update(breaker_reason="Unauthorized", breaker_since=timezone.now())
    assert state_of(runai, seen) == "ServiceIssues"
    rows.update(breaker_reason="", failures=2)
    assert state_of(runai, seen) == "ServiceIssues"
    rows.update(failures=0, observed_at=timezone.now() - timedelta(seconds=25))
    assert state_of(runai, seen) == "Connected"
    rows.update(observed_at=timezone.now() - timedelta(seconds=31))
    assert state_of(runai, seen) == "Disconnected"
    rows.update(observed_at=None)
    assert state_of(runai, seen) == "WaitingToConnect"
    rows.update(state=ClusterState.PAUSED, paused_reason="Its account lacks permissions. Apply them, then test again.")
    assert state_of(runai, seen) == "MissingPrerequisites"


def test_a_cluster_is_renamed(runai: RunaiClient, seen: Cluster) -> None:
    ClusterFactory.create(name="taken")
    clusters = runai.organizations.clusters
    assert clusters.update_cluster(str(seen.pk), models.ClusterUpdateRequest(name="basement")).status_code == 204
    assert Cluster.objects.get(pk=seen.pk).name == "basement"
    assert AuditRecord.objects.get(action="cluster.rename").detail == {"before": "lab", "after": "basement"}
    with pytest.raises(ConflictException):
        clusters.update_cluster(str(seen.pk), models.ClusterUpdateRequest(name="taken"))
    with pytest.raises(UnprocessableEntityException):
        clusters.update_cluster(str(seen.pk), models.ClusterUpdateRequest(name="Not a name"))


def test_an_empty_cluster_is_refused_and_says_how_one_is_connected(runai: RunaiClient, seen: Cluster) -> None:
    with pytest.raises(UnprocessableEntityException) as refused:
        runai.organizations.clusters.create_cluster(models.ClusterCreationRequest(name="new", domain="x.example"))
    assert refused.value.data["details"] == "connection_needed"
    assert "kubeconfig" in refused.value.data["message"]
    assert Cluster.objects.count() == 1


def test_a_cluster_in_use_is_not_left(runai: RunaiClient, seen: Cluster, llm_team: Project) -> None:
    with pytest.raises(ConflictException) as refused:
        runai.organizations.clusters.delete_cluster(str(seen.pk))
    assert "department research" in refused.value.data["message"]
    assert Cluster.objects.get(pk=seen.pk).state == ClusterState.ACTIVE


def test_a_cluster_is_left_in_two_steps(runai: RunaiClient, seen: Cluster) -> None:
    spare = ClusterFactory.create(name="spare")
    clusters = runai.organizations.clusters
    assert clusters.delete_cluster(str(spare.pk)).status_code == 202
    assert clusters.delete_cluster(str(spare.pk)).status_code == 202
    run = SyncRun.objects.get(cluster=spare, trigger=TRIGGER)
    assert [row["name"] for row in clusters.get_clusters().data] == ["lab"]
    (row,) = [each for each in clusters.get_clusters(include_requested_for_delete=True).data if each["name"] == "spare"]
    assert models.DisplayedCluster.from_dict(row).delete_requested_at == run.started_at
    SyncRun.objects.filter(pk=run.pk).update(state=SyncState.SUCCEEDED)
    unpause(cluster=spare, actor=SYSTEM)
    assert clusters.delete_cluster(str(spare.pk)).status_code == 202
    assert Cluster.objects.filter(pk=spare.pk, state=ClusterState.PAUSED).exists()
    SyncRun.objects.filter(cluster=spare, trigger=TRIGGER).update(state=SyncState.SUCCEEDED)
    assert clusters.delete_cluster(str(spare.pk)).status_code == 204
    assert not Cluster.objects.filter(pk=spare.pk).exists()


def test_a_cluster_is_forgotten_at_once_by_force(runai: RunaiClient, seen: Cluster) -> None:
    spare = ClusterFactory.create(name="spare")
    assert runai.organizations.clusters.delete_cluster(str(spare.pk), force=True).status_code == 204


def test_nodes_are_read_typed_filtered_and_counted(runai: RunaiClient, seen: Cluster) -> None:
    nodes = runai.organizations.nodes
    rows = [models.Node.from_dict(each) for each in nodes.get_tenant_nodes().data["nodes"]]
    assert [row.status for row in rows] == ["NotReady", "Ready", "Ready"]
    assert (rows[1].gpu_info.gpu_type, rows[1].gpu_info.gpu_count) == ("NVIDIA-H100", 8)
    assert (rows[1].nv_link_domain_uid, rows[1].nv_link_clique_id) == ("a1b2", "7")
    assert rows[1].taints[0].effect == "NoSchedule"
    assert nodes.count_tenant_nodes(filter_by=["status==NotReady"]).data == {"count": 1}
    assert nodes.count_tenant_nodes(filter_by=["nodePool==a100", f"clusterUuid=={seen.pk}"]).data == {"count": 1}
    by_pool = nodes.get_tenant_nodes(sort_by=models.NodeFilterSortFields.NODEPOOL, limit=1).data["nodes"]
    assert [row["nodePool"] for row in by_pool] == ["a100"]
    assert len(nodes.get_nodes(str(seen.pk)).data["nodes"]) == 3


def test_nodes_of_a_cluster_that_nobody_sees_are_unknown(runai: RunaiClient, seen: Cluster) -> None:
    Cluster.objects.update(observed_at=timezone.now() - timedelta(hours=1))
    assert runai.organizations.nodes.count_tenant_nodes(filter_by=["status==Unknown"]).data == {"count": 3}


NUMBERS = {
    "TOTAL_GPU_NODES": "3",
    "READY_GPU_NODES": "2",
    "TOTAL_GPUS": "24",
    "READY_GPUS": "16",
    "ALLOCATED_GPUS": "2.5",
    "FREE_GPUS": "5.5",
    "FULLY_FREE_GPU_NODES": "0",
    "ALLOCATED_CPU_CORES": "4",
    "TOTAL_CPU_MEMORY_BYTES": str(3 * 2**40),
}


def test_nodes_in_numbers(runai: RunaiClient, seen: Cluster, llm_team: Project) -> None:
    last = seen.nodes.order_by("name")[2]
    workload = WorkloadFactory.create(project=llm_team)
    ObservedPodFactory.create(workload=workload, node_name=last.name, gpu_milli=2500, cpu_milli=4000)
    for kind, expected in NUMBERS.items():
        answer = runai.organizations.nodes.get_node_telemetry(telemetry_type=models.NodeTelemetryType(kind))
        assert [each.value for each in models.TelemetryResponse.from_dict(answer.data).values] == [expected], kind


def test_nodes_in_numbers_by_pool(runai: RunaiClient, seen: Cluster) -> None:
    ask = runai.organizations.nodes.get_node_telemetry
    kind = models.NodeTelemetryType.TOTAL_GPUS
    told = models.TelemetryResponse.from_dict(ask(telemetry_type=kind, group_by=["Nodepool"]).data)
    assert {each.groups[0].value: each.value for each in told.values} == {"h100": "16", "a100": "8"}
    (one,) = ask(telemetry_type=kind, nodepool_name="a100", cluster_id=str(seen.pk)).data["values"]
    assert one == {"value": "8", "groups": []}
    assert ask(telemetry_type=models.NodeTelemetryType.USED_CPU_CORES).data["values"] == []


def test_who_may_only_look_changes_nothing(live_server: object, seen: Cluster, llm_team: Project) -> None:
    NodeFactory.create(cluster=seen)
    member: Any = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team)
    clusters = member.organizations.clusters
    assert [row["name"] for row in clusters.get_clusters().data] == ["lab"]
    for change in (
        lambda: clusters.delete_cluster(str(seen.pk), force=True),
        lambda: clusters.update_cluster(str(seen.pk), models.ClusterUpdateRequest(name="mine")),
        lambda: clusters.create_cluster(models.ClusterCreationRequest(name="mine")),
    ):
        with pytest.raises(ForbiddenException):
            change()
