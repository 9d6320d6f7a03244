"""REST routes of the workloads. No trailing slashes; fixed words win over ids."""

from django.urls import include, path, register_converter

from workloads.api import (
    actions,
    catalogue,
    clone,
    explain,
    happenings,
    lists,
    logs,
    manifests,
    native,
    nim,
    pods,
    policies,
    priorities,
    serving,
    stream,
)

register_converter(native.StoppableKind, "stoppable")
register_converter(policies.PolicyKind, "policy")

# What is asked most comes first: a request tries every address before its own.
urlpatterns = [
    path("v2/workloads", manifests.Manifests.as_view()),
    path("v2/workloads/explain", explain.Explain.as_view()),
    path("v2/workloads/nim-services", nim.NimServices.as_view()),
    path("v2/workloads/nim-services/<uuid:nim_service_id>", nim.OneNimService.as_view()),
    path("v2/workloads/<uuid:workload_id>", manifests.OneManifest.as_view()),
    path("v1/workloads", lists.Workloads.as_view()),
    path("v1/workloads/count", lists.WorkloadCount.as_view()),
    path("v1/workloads/pods", pods.Pods.as_view()),
    path("v1/workloads/pods/count", pods.PodCount.as_view()),
    path("v1/workloads/batch", actions.BatchAction.as_view()),
    path("v1/workloads/<uuid:workload_id>", lists.OneWorkload.as_view()),
    path("v1/workloads/<uuid:workload_id>/pods", pods.WorkloadPods.as_view()),
    path("v1/workloads/<uuid:workload_id>/events", happenings.Events.as_view()),
    path("v1/workloads/<uuid:workload_id>/history", happenings.History.as_view()),
    path("v1/workloads/<uuid:workload_id>/stream", stream.Life.as_view()),
    path("v1/workloads/<uuid:workload_id>/logs", logs.Logs.as_view()),
    path("v1/workloads/<uuid:workload_id>/clone", clone.Clone.as_view()),
    path("v1/workloads/workspaces", native.Workspaces.as_view()),
    path("v1/workloads/trainings", native.Trainings.as_view()),
    path("v1/workloads/distributed", native.DistributedTrainings.as_view()),
    path("v1/workloads/inferences", native.Inferences.as_view()),
    path("v1/workloads/distributed-inferences", native.DistributedInferences.as_view()),
    path("v1/workloads/inferences/<uuid:inference_id>", serving.OneInference.as_view()),
    path("v1/workloads/distributed-inferences/<uuid:distributed_inference_id>", serving.OneGroup.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>", native.OneNative.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/suspend", native.Suspend.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/resume", native.Resume.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/retry", native.Retry.as_view()),
    path("v1/workload-priorities", priorities.Priorities.as_view()),
    path("v1/workload-priorities/<uuid:priority_id>", priorities.OnePriority.as_view()),
    path("v1/workload-categories", catalogue.Categories.as_view()),
    path("v1/workload-categories/<uuid:category_id>", catalogue.OneCategory.as_view()),
    path("v1/workload-types", catalogue.Types.as_view()),
    path("v1/workload-types/<uuid:type_id>", catalogue.OneType.as_view()),
    path("v2/policy", policies.Policies.as_view()),
    path("v2/policy/<policy:kind>", policies.OnePolicy.as_view()),
    path("", include("workloads.api.measured_urls")),
    path("", include("workloads.api.notification_urls")),
    path("", include("workloads.api.template_urls")),
    path("", include("workloads.api.report_urls")),
]
