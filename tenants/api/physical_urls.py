"""REST routes of clusters, nodes, node pools, metrics and telemetry. Fixed words win over ids."""

from django.urls import path

from tenants.api import cluster_acts, clusters, metrics, node_pools, nodes, pool_resources, telemetry

urlpatterns = [
    path("v1/clusters", clusters.Clusters.as_view()),
    path("v1/clusters/<uuid:cluster_id>", clusters.OneCluster.as_view()),
    path("v1/clusters/<uuid:cluster_id>/syncs", cluster_acts.Syncs.as_view()),
    path("v1/clusters/<uuid:cluster_id>/sync-rehearsals", cluster_acts.Rehearsals.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences", cluster_acts.Differences.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences/repair", cluster_acts.Repairs.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences/adopt", cluster_acts.Adoptions.as_view()),
    path("v1/clusters/<uuid:cluster_id>/pod-security", cluster_acts.PodSecurity.as_view()),
    path("v1/clusters/<uuid:cluster_id>/pause", cluster_acts.Pause.as_view()),
    path("v1/clusters/<uuid:cluster_id>/unpause", cluster_acts.Unpause.as_view()),
    path("v1/clusters/<uuid:cluster_id>/connection-test", cluster_acts.ConnectionTest.as_view()),
    path("v1/clusters/<uuid:cluster_id>/nodes", nodes.ClusterNodes.as_view()),
    path("v1/clusters/<uuid:cluster_id>/metrics", metrics.ClusterMetrics.as_view()),
    path("v1/clusters/<uuid:cluster_id>/nodepools/<str:pool_name>/metrics", metrics.PoolMetrics.as_view()),
    path("v1/nodes", nodes.Nodes.as_view()),
    path("v1/nodes/count", nodes.NodeCount.as_view()),
    path("v1/nodes/telemetry", telemetry.NodeTelemetry.as_view()),
    path("v1/nodes/<int:node_id>/metrics", metrics.NodeMetrics.as_view()),
    path("v1/node-pools", node_pools.NodePools.as_view()),
    path("v1/node-pools/count", node_pools.NodePoolCount.as_view()),
    path("v1/node-pools/<int:pool_id>", node_pools.OneNodePool.as_view()),
    path("v1/org-unit/priorities", pool_resources.Ranks.as_view()),
    path("v1/org-unit/projects/telemetry", telemetry.ProjectTelemetry.as_view()),
    path("v1/org-unit/projects/node-pool-resources", pool_resources.ProjectPools.as_view()),
    path("v1/org-unit/projects/node-pool-resources/count", pool_resources.ProjectPoolCount.as_view()),
    path("v1/org-unit/projects/<int:unit_id>/metrics", metrics.ProjectMetrics.as_view()),
    path("v1/org-unit/departments/telemetry", telemetry.DepartmentTelemetry.as_view()),
    path("v1/org-unit/departments/node-pool-resources", pool_resources.DepartmentPools.as_view()),
    path("v1/org-unit/departments/node-pool-resources/count", pool_resources.DepartmentPoolCount.as_view()),
    path("v1/org-unit/departments/<int:unit_id>/metrics", metrics.DepartmentMetrics.as_view()),
]
