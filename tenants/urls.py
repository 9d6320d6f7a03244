"""Addresses of the tenants' pages."""

from django.urls import path

from tenants.views import audit, clusters, projects

app_name = "tenants"
urlpatterns = [
    path("projects/", projects.project_list, name="projects"),
    path("projects/<slug:name>/", projects.project_detail, name="project"),
    path("clusters/", clusters.cluster_list, name="clusters"),
    path("clusters/<slug:name>/", clusters.cluster_detail, name="cluster"),
    path("clusters/<slug:name>/reconcile/", clusters.reconcile_now, name="reconcile"),
    path("audit/", audit.trail, name="audit"),
]
