"""Addresses of the tenants' pages."""

from django.urls import path

from tenants.views import (
    access_keys,
    audit,
    clusters,
    connections,
    differences,
    metrics,
    pools,
    projects,
    security,
    switching,
)

app_name = "tenants"
urlpatterns = [
    path("projects/", projects.project_list, name="projects"),
    path("projects/<slug:name>/", projects.project_detail, name="project"),
    path("clusters/", clusters.cluster_list, name="clusters"),
    path("clusters/<slug:name>/", clusters.cluster_detail, name="cluster"),
    path("clusters/<slug:name>/pod-security/", clusters.pod_security, name="pod-security"),
    path("clusters/<slug:name>/reconcile/", clusters.reconcile_now, name="reconcile"),
    path("clusters/<slug:name>/dry-run/", differences.dry_run, name="dry-run"),
    path("clusters/<slug:name>/difference/", differences.show, name="difference"),
    path("clusters/<slug:name>/runs/<int:number>/", differences.run, name="run"),
    path("clusters/<slug:name>/connection/", connections.connection, name="connection"),
    path("clusters/<slug:name>/connection/test/", connections.try_connection, name="try-connection"),
    path("clusters/<slug:name>/hold/", connections.hold, name="hold"),
    path("clusters/<slug:name>/leave/", connections.leave, name="leave"),
    path("clusters/<slug:name>/scheduler/", switching.scheduler, name="scheduler"),
    path("clusters/<slug:name>/gpu-use/", metrics.source, name="metrics"),
    path("clusters/<slug:name>/gpu-use/remove/", metrics.remove, name="remove-metrics"),
    path("clusters/<slug:name>/pools/", pools.pools, name="pools"),
    path("clusters/<slug:name>/pools/<slug:pool>/", pools.change, name="pool"),
    path("clusters/<slug:name>/pools/<slug:pool>/remove/", pools.remove, name="remove-pool"),
    path("connect-cluster/", connections.connect, name="connect"),
    path("connect-cluster/rights/<slug:flavour>.yaml", connections.rights, name="rights"),
    path("access-keys/", access_keys.keys, name="access-keys"),
    path("access-keys/<uuid:key_id>/secret/", access_keys.rotate, name="rotate-key"),
    path("access-keys/<uuid:key_id>/revoke/", access_keys.revoke, name="revoke-key"),
    path("audit/", audit.trail, name="audit"),
    path("security/", security.security, name="security"),
    path("security/second-factor/", security.set_up, name="second-factor"),
    path("security/<slug:name>/", security.act, name="security-act"),
]
