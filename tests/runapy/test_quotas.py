"""Node pools, and quotas by node pool, through Run:ai's own client."""

from typing import Any

import pytest
from runai import models
from runai.exceptions import ConflictException, ForbiddenException, NotFoundException, UnprocessableEntityException
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, Node, NodePool
from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of


def wanted(cluster: Cluster, **fields: Any) -> models.NodepoolCreateFields:
    """A request as their model makes it, with the defaults that it always sends."""
    base = {"name": "b200", "labelKey": "gpu", "labelValue": "b200", "clusterId": str(cluster.pk)}
    found = models.NodepoolCreateFields.from_dict({**base, **fields})
    assert found is not None
    return found


def test_a_pool_is_made_read_typed_changed_and_deleted(runai: RunaiClient, cluster: Cluster) -> None:
    pools = runai.organizations.node_pools
    answer = pools.create_nodepool(
        wanted(cluster, schedulingConfiguration={"placementStrategy": {"gpu": "spread"}, "minGuaranteedRuntime": "0"})
    )
    made = models.Nodepool.from_dict(answer.data)
    assert (answer.status_code, made.name, made.label_value, made.cluster_name) == (201, "b200", "b200", "lab")
    assert (made.phase, made.is_default, made.created_by) == ("Empty", False, "moving-script")
    assert made.scheduling_configuration.placement_strategy.gpu == "spread"
    change = models.NodepoolUpdateFields(label_value="b200-sxm")
    assert pools.patch_nodepool(made.id, change).data["labelValue"] == "b200-sxm"
    assert pools.update_nodepool(made.id, models.NodepoolUpdateFields(label_key="chip")).data["labelKey"] == "chip"
    row = NodePool.objects.get(pk=made.id)
    assert (row.label_key, row.label_value, row.gpu_placement) == ("chip", "b200-sxm", "spread")
    assert AuditRecord.objects.filter(action="node_pool.update", entity_id=made.id).count() == 2
    assert pools.delete_nodepool(made.id).status_code == 204
    with pytest.raises(NotFoundException):
        pools.get_nodepool(made.id)


def test_pools_are_listed_filtered_and_counted(runai: RunaiClient, cluster: Cluster, a100: NodePool) -> None:
    Node.objects.filter(pool=a100).update(unschedulable=True)
    pools = runai.organizations.node_pools
    rows = [models.Nodepool.from_dict(each) for each in pools.get_nodepools().data["nodepools"]]
    assert [(row.name, row.phase, len(row.status.nodes)) for row in rows] == [
        ("a100", "Unschedulable", 1),
        ("h100", "Ready", 2),
    ]
    assert pools.count_nodepools(filter_by=["phase==Ready"]).data == {"count": 1}
    by_phase = pools.get_nodepools(sort_by=models.NodepoolSortFilterFields.PHASE, sort_order="asc", limit=1).data
    assert [row["name"] for row in by_phase["nodepools"]] == ["h100"]


def test_a_used_pool_stays_and_says_by_how_many(runai: RunaiClient, llm_team: Project, h100: NodePool) -> None:
    NodePool.objects.filter(cluster=llm_team.cluster).update(is_default=False)
    with pytest.raises(ConflictException) as refused:
        runai.organizations.node_pools.delete_nodepool(str(h100.pk))
    (problem,) = refused.value.data["errors"]
    assert (problem["code"], problem["numbers"]) == ("pool_in_use", {"quotas": "2"})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"schedulingConfiguration": {"minGuaranteedRuntime": "5m"}}, "/schedulingConfiguration/minGuaranteedRuntime"),
    ({"placementStrategy": {"cpu": "spread"}}, "/placementStrategy/cpu"),
    (
        {"placementStrategy": {"gpu": "spread"}, "schedulingConfiguration": {"placementStrategy": {"gpu": "binpack"}}},
        "/placementStrategy/gpu",
    ),
    ({"overProvisioningRatio": 3}, "/overProvisioningRatio"),
    ({"networkTopologyId": "7"}, "/networkTopologyId"),
    ({"gpuResourceOptimization": {"swapEnabled": True}}, "/gpuResourceOptimization/swapEnabled"),
    ({"labelKey": "not a label"}, "/labelKey"),
    ({"name": "Not a name"}, "/name"),
]


def test_what_rung_does_not_do_is_refused_at_its_field(runai: RunaiClient, cluster: Cluster) -> None:
    for fields, pointer in REFUSED:
        with pytest.raises(UnprocessableEntityException) as refused:
            runai.organizations.node_pools.create_nodepool(wanted(cluster, **fields))
        assert refused.value.data["errors"][0]["pointer"] == pointer
    assert not NodePool.objects.filter(label_value="b200").exists()


def test_a_scheduler_without_a_placement_of_its_own_per_pool_says_so(runai: RunaiClient, cluster: Cluster) -> None:
    Cluster.objects.update(flavour="kueue")
    with pytest.raises(UnprocessableEntityException) as refused:
        runai.organizations.node_pools.create_nodepool(wanted(cluster, placementStrategy={"gpu": "spread"}))
    assert refused.value.data["details"] == "placement_unsupported"


def test_a_pool_names_its_topology_levels_beyond_what_their_model_knows(
    runai: RunaiClient, cluster: Cluster, h100: NodePool
) -> None:
    Cluster.objects.update(flavour="kai")

    def patch(levels: object, **query: str) -> Any:
        where, body = f"/api/v1/node-pools/{h100.pk}", {"topologyLevels": levels}
        return runai.organizations.node_pools._api_client.call_api(
            resource_path=where, method="PATCH", query_params=list(query.items()), body=body
        )

    assert patch(["zone", "rack"], dryRun="true").data["topologyLevels"] == ["zone", "rack"]
    assert runai.organizations.node_pools.get_nodepool(str(h100.pk)).data["topologyLevels"] == []
    assert patch(["zone", "rack"]).data["topologyLevels"] == ["zone", "rack"]
    change = models.NodepoolUpdateFields(label_value="h100-sxm")
    assert runai.organizations.node_pools.patch_nodepool(str(h100.pk), change).data["topologyLevels"] == [
        "zone",
        "rack",
    ]
    with pytest.raises(UnprocessableEntityException) as refused:
        patch(["zone", "zone"])
    assert refused.value.data["errors"][0]["pointer"] == "/topologyLevels/1"
    Cluster.objects.update(flavour="kube")
    with pytest.raises(UnprocessableEntityException) as refused:
        patch(["rack"])
    assert "kube-scheduler on lab" in refused.value.data["message"]
    assert patch([]).data["topologyLevels"] == []


def test_a_member_looks_and_changes_nothing(live_server: object, llm_team: Project, h100: NodePool) -> None:
    pools = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team).organizations.node_pools
    assert pools.get_nodepool(str(h100.pk)).data["name"] == "h100"
    with pytest.raises(ForbiddenException):
        pools.delete_nodepool(str(h100.pk))


def test_ranks_are_read_typed(runai: RunaiClient, llm_team: Project) -> None:
    told = runai.authentication_and_authorization.org_unit.get_priorities().data["priorities"]
    assert [each["name"] for each in told][:3] == ["VeryLow", "Low", "MediumLow"]
    assert [each["name"] for each in told if each["isDefault"]] == ["MediumLow"]
    assert [each["value"] for each in told] == sorted(each["value"] for each in told)


def rows_of(runai: RunaiClient, path: str, **query: str) -> list[dict[str, Any]]:
    """Their client has no method for these routes."""
    answer = runai.organizations.projects._api_client.call_api(
        resource_path=f"/api/v1/org-unit/{path}", method="GET", query_params=list(query.items())
    )
    rows: list[dict[str, Any]] = answer.data["nodePoolResources"]
    return rows


def test_quotas_by_node_pool_with_their_use(
    runai: RunaiClient, llm_team: Project, vision_team: Project, h100: NodePool
) -> None:
    ProjectQuota.objects.filter(project=llm_team).update(rank="high")
    ObservedPodFactory.create(workload=WorkloadFactory.create(project=llm_team), gpu_milli=2000)
    path = "projects/node-pool-resources"
    rows = rows_of(runai, path, filterBy="orgUnitName==llm-team")
    assert [(row["nodePoolName"], row["rank"]) for row in rows] == [("a100", "MediumLow"), ("h100", "High")]
    assert rows[1]["resources"]["gpu"] == {"deserved": 4, "limit": 12, "overQuotaWeight": 2}
    assert rows[1]["quotaStatus"]["allocated"]["gpu"] == 2
    assert (rows[1]["parentId"], rows[1]["nodePoolId"]) == (str(llm_team.department_id), str(h100.pk))
    assert [row["orgUnitName"] for row in rows_of(runai, path, filterBy="rank>=Medium")] == ["llm-team"]
    assert rows_of(runai, path, sortBy="rank", sortOrder="desc", limit="2")[0]["rank"] == "High"
    departments = rows_of(runai, "departments/node-pool-resources", filterBy="gpuDeserved>=8", sortBy="gpuDeserved")
    assert [row["orgUnitName"] for row in departments] == ["research", "perception"]
