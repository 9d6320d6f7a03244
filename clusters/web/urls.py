"""Routes of the pages and of the REST API of clusters. No trailing slashes below /api/; fixed words win over ids."""

from django.urls import path

from clusters.web.api.actions import (
    Adoptions,
    ClusterDeferral,
    ClusterPodSecurity,
    ConnectionTest,
    Differences,
    DryRuns,
    Pause,
    Repairs,
    Scheduler,
    SchedulerPlans,
    Syncs,
    Unpause,
)
from clusters.web.api.clusters import ClusterConnection, ClusterDetail, ClusterMetricsSource, Clusters, ForecastAccuracy
from clusters.web.api.metrics import ClusterMetrics, NodeMetrics, PoolMetrics
from clusters.web.api.node_pools import NodePoolCount, NodePoolDetail, NodePools
from clusters.web.api.nodes import ClusterNodes, NodeCount, Nodes, NodeTelemetry
from clusters.web.views.clusters import (
    change_node_pool,
    cluster_detail,
    cluster_list,
    defer_preemptors,
    node_pools,
    pod_security,
    reconcile_now,
    remove_node_pool,
    scheduler,
    show_difference,
    show_run,
    start_dry_run,
)
from clusters.web.views.connection import (
    connect,
    connection,
    disconnect,
    drop_metrics_source,
    edit_metrics_source,
    pause_or_resume,
    rights,
    try_connection,
)

app_name = "clusters"
urlpatterns = [
    path("clusters/", cluster_list, name="list"),
    path("clusters/<slug:name>/", cluster_detail, name="detail"),
    path("clusters/<slug:name>/pod-security/", pod_security, name="pod-security"),
    path("clusters/<slug:name>/defer-preemptors/", defer_preemptors, name="defer-preemptors"),
    path("clusters/<slug:name>/reconcile/", reconcile_now, name="reconcile"),
    path("clusters/<slug:name>/dry-run/", start_dry_run, name="dry-run"),
    path("clusters/<slug:name>/difference/", show_difference, name="difference"),
    path("clusters/<slug:name>/runs/<int:number>/", show_run, name="run"),
    path("clusters/<slug:name>/connection/", connection, name="connection"),
    path("clusters/<slug:name>/connection/test/", try_connection, name="try-connection"),
    path("clusters/<slug:name>/hold/", pause_or_resume, name="hold"),
    path("clusters/<slug:name>/leave/", disconnect, name="leave"),
    path("clusters/<slug:name>/scheduler/", scheduler, name="scheduler"),
    path("clusters/<slug:name>/gpu-use/", edit_metrics_source, name="metrics"),
    path("clusters/<slug:name>/gpu-use/remove/", drop_metrics_source, name="remove-metrics"),
    path("clusters/<slug:name>/pools/", node_pools, name="pools"),
    path("clusters/<slug:name>/pools/<slug:pool>/", change_node_pool, name="pool"),
    path("clusters/<slug:name>/pools/<slug:pool>/remove/", remove_node_pool, name="remove-pool"),
    path("connect-cluster/", connect, name="connect"),
    path("connect-cluster/rights/<slug:flavour>.yaml", rights, name="rights"),
]
api_patterns = [
    path("v1/clusters", Clusters.as_view()),
    path("v1/clusters/<uuid:cluster_id>", ClusterDetail.as_view()),
    path("v1/clusters/<uuid:cluster_id>/syncs", Syncs.as_view()),
    path("v1/clusters/<uuid:cluster_id>/sync-rehearsals", DryRuns.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences", Differences.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences/repair", Repairs.as_view()),
    path("v1/clusters/<uuid:cluster_id>/differences/adopt", Adoptions.as_view()),
    path("v1/clusters/<uuid:cluster_id>/pod-security", ClusterPodSecurity.as_view()),
    path("v1/clusters/<uuid:cluster_id>/defer-preemptors", ClusterDeferral.as_view()),
    path("v1/clusters/<uuid:cluster_id>/pause", Pause.as_view()),
    path("v1/clusters/<uuid:cluster_id>/unpause", Unpause.as_view()),
    path("v1/clusters/<uuid:cluster_id>/connection-test", ConnectionTest.as_view()),
    path("v1/clusters/<uuid:cluster_id>/connection", ClusterConnection.as_view()),
    path("v1/clusters/<uuid:cluster_id>/metrics-source", ClusterMetricsSource.as_view()),
    path("v1/clusters/<uuid:cluster_id>/scheduler-plans", SchedulerPlans.as_view()),
    path("v1/clusters/<uuid:cluster_id>/scheduler", Scheduler.as_view()),
    path("v1/clusters/<uuid:cluster_id>/nodes", ClusterNodes.as_view()),
    path("v1/clusters/<uuid:cluster_id>/forecast-accuracy", ForecastAccuracy.as_view()),
    path("v1/clusters/<uuid:cluster_id>/metrics", ClusterMetrics.as_view()),
    path("v1/clusters/<uuid:cluster_id>/nodepools/<str:pool_name>/metrics", PoolMetrics.as_view()),
    path("v1/nodes", Nodes.as_view()),
    path("v1/nodes/count", NodeCount.as_view()),
    path("v1/nodes/telemetry", NodeTelemetry.as_view()),
    path("v1/nodes/<int:node_id>/metrics", NodeMetrics.as_view()),
    path("v1/node-pools", NodePools.as_view()),
    path("v1/node-pools/count", NodePoolCount.as_view()),
    path("v1/node-pools/<int:pool_id>", NodePoolDetail.as_view()),
]
