"""REST routes of workloads in numbers. Fixed words win over ids."""

from django.urls import path

from workloads.api import metrics, telemetry

urlpatterns = [
    path("v1/workloads/telemetry", telemetry.Telemetry.as_view()),
    path("v1/workloads/<uuid:workload_id>/metrics", metrics.WorkloadMetrics.as_view()),
    path("v1/workloads/<uuid:workload_id>/pods/<uuid:pod_id>/metrics", metrics.PodMetrics.as_view()),
]
