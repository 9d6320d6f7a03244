"""Routes of the workloads: pages, and REST below `/api/`. No trailing slashes in REST; fixed words win over ids."""

from django.urls import include, path, register_converter

from workloads.detectors import api as detectors_api
from workloads.detectors import views as detectors_views
from workloads.dictionary import api as dictionary_api
from workloads.dictionary import views as dictionary_views
from workloads.lifecycle.api import metrics, pods, streams, workloads
from workloads.lifecycle.views import detail, home
from workloads.notifications import api as notifications_api
from workloads.notifications import views as notifications_views
from workloads.plans import api as plans_api
from workloads.plans import views as plans_views
from workloads.policies import api as policies_api
from workloads.policies import views as policies_views
from workloads.preemption import api as preemption_api
from workloads.quota_requests import api as quota_requests_api
from workloads.quota_requests import views as quota_requests_views
from workloads.replay import api as replay_api
from workloads.replay import views as replay_views
from workloads.reports import api as reports_api
from workloads.reports import views as reports_views
from workloads.submission import views as submission_views
from workloads.submission.api import inferences, manifests, native
from workloads.submission.views import take_way_out
from workloads.workload_templates import views as workload_templates_views
from workloads.workload_templates.api import assets, templates

register_converter(native.StoppableKind, "stoppable")
register_converter(policies_api.PolicyKindConverter, "policy")
register_converter(templates.TemplateKindWord, "template")
register_converter(templates.ChangeableKindWord, "changeable")
register_converter(assets.AssetKindWord, "asset")

pages = [
    path("workloads/", home.workload_list, name="list"),
    path("workloads/bulk/", home.bulk, name="bulk"),
    path("workloads/submit/", submission_views.submit_form, name="submit"),
    path("workloads/submit/yaml/", submission_views.submit_text, name="submit-yaml"),
    path("workloads/<uuid:workload_id>/", detail.workload_detail, name="detail"),
    path("workloads/<uuid:workload_id>/waiting/", detail.waiting_card, name="waiting"),
    path("workloads/<uuid:workload_id>/stop/", detail.stop, name="stop"),
    path("workloads/<uuid:workload_id>/resume/", detail.resume, name="resume"),
    path("workloads/<uuid:workload_id>/retry/", detail.retry, name="retry"),
    path("workloads/<uuid:workload_id>/delete/", detail.delete, name="delete"),
    path("workloads/<uuid:workload_id>/priority/", detail.change_priority, name="change-priority"),
    path("workloads/<uuid:workload_id>/way-out/", take_way_out, name="way-out"),
    path("priorities/", dictionary_views.priorities, name="priorities"),
    path("priorities/add/", dictionary_views.add_priority, name="priority-add"),
    path("priorities/preset/<slug:name>/", dictionary_views.load_preset, name="preset"),
    path("priorities/<slug:name>/", dictionary_views.edit_priority, name="priority"),
    path("priorities/<slug:name>/retire/", dictionary_views.retire_priority, name="priority-retire"),
    path("eviction-matrix/", dictionary_views.eviction_matrix, name="eviction-matrix"),
    path("types/", dictionary_views.type_list, name="types"),
    path("types/<uuid:type_id>/", dictionary_views.edit_type, name="type"),
    path("types/<uuid:type_id>/withdraw/", dictionary_views.withdraw_type, name="type-withdraw"),
    path("types/<uuid:type_id>/offer/", dictionary_views.offer_type, name="type-offer"),
    path("policies/", policies_views.policies, name="policies"),
    path("policies/add/", policies_views.add, name="policy-add"),
    path("policies/<uuid:policy_id>/", policies_views.edit, name="policy"),
    path("policies/<uuid:policy_id>/lift/", policies_views.lift, name="policy-lift"),
    path("templates/", workload_templates_views.templates, name="templates"),
    path("templates/add/", workload_templates_views.add, name="template-add"),
    path("templates/<uuid:template_id>/", workload_templates_views.one, name="template"),
    path("templates/<uuid:template_id>/delete/", workload_templates_views.delete, name="template-delete"),
    path("notifications/", notifications_views.mine, name="notifications"),
    path("notifications/switch/", notifications_views.switch, name="mail-switch"),
    path("notifications/add-channel/", notifications_views.add, name="channel-add"),
    path("notifications/channels/<slug:name>/", notifications_views.edit, name="channel"),
    path("notifications/channels/<slug:name>/test/", notifications_views.try_it, name="channel-test"),
    path("notifications/channels/<slug:name>/delete/", notifications_views.remove, name="channel-delete"),
    path("notifications/add-webhook/", notifications_views.add_webhook, name="webhook-add"),
    path("notifications/webhooks/<slug:name>/", notifications_views.edit_webhook, name="webhook"),
    path("notifications/webhooks/<slug:name>/test/", notifications_views.try_webhook, name="webhook-test"),
    path("notifications/webhooks/<slug:name>/secret/", notifications_views.rotate_webhook, name="webhook-secret"),
    path("notifications/webhooks/<slug:name>/delete/", notifications_views.remove_webhook, name="webhook-delete"),
    path("findings/", detectors_views.findings, name="findings"),
    path("quota-requests/", quota_requests_views.requests, name="quota-requests"),
    path("quota-requests/add/", quota_requests_views.add, name="quota-request-add"),
    path("quota-requests/<uuid:request_id>/", quota_requests_views.one, name="quota-request"),
    path("quota-requests/<uuid:request_id>/approve/", quota_requests_views.approve, name="quota-request-approve"),
    path("quota-requests/<uuid:request_id>/decline/", quota_requests_views.decline, name="quota-request-decline"),
    path("quota-requests/<uuid:request_id>/withdraw/", quota_requests_views.withdraw, name="quota-request-withdraw"),
    path("reports/", reports_views.reports, name="reports"),
    path("reports/<uuid:report_id>/file/", reports_views.file, name="report-file"),
    path("reports/<uuid:report_id>/delete/", reports_views.delete, name="report-delete"),
    path("quotas/", plans_views.quotas, name="quotas"),
    path("plans/", plans_views.plan_list, name="plans"),
    path("plans/approval/", plans_views.plan_approval, name="plan-approval"),
    path("plans/<uuid:plan_id>/", plans_views.plan_detail, name="plan"),
    path("plans/<uuid:plan_id>/apply/", plans_views.plan_apply, name="plan-apply"),
    path("plans/<uuid:plan_id>/approve/", plans_views.plan_approve, name="plan-approve"),
    path("plans/<uuid:plan_id>/discard/", plans_views.plan_discard, name="plan-discard"),
    path("plans/<uuid:plan_id>/again/", plans_views.plan_recreate, name="plan-again"),
    path("plans/<uuid:plan_id>/roll-back/", plans_views.plan_roll_back, name="plan-roll-back"),
    path("replay/", replay_views.replays, name="replays"),
    path("replay/<uuid:replay_id>/", replay_views.replay, name="replay"),
    path("replay/<uuid:replay_id>/cancel/", replay_views.cancel, name="replay-cancel"),
    path("replay/<uuid:replay_id>/file/", replay_views.file, name="replay-file"),
]
urlpatterns = [path("", home.home, name="home"), path("", include((pages, "workloads")))]

# A request tries every address before its own: what is requested most comes first.
api_patterns = [
    path("v2/workloads", manifests.ManifestCollection.as_view()),
    path("v2/workloads/explain", manifests.Explain.as_view()),
    path("v2/workloads/nim-services", inferences.NimServices.as_view()),
    path("v2/workloads/nim-services/<uuid:nim_service_id>", inferences.NimServiceDetail.as_view()),
    path("v2/workloads/<uuid:workload_id>", manifests.ManifestDetail.as_view()),
    path("v1/workloads", workloads.Workloads.as_view()),
    path("v1/workloads/count", workloads.WorkloadCount.as_view()),
    path("v1/workloads/pods", pods.Pods.as_view()),
    path("v1/workloads/pods/count", pods.PodCount.as_view()),
    path("v1/workloads/stream", streams.WorkloadChanges.as_view()),
    path("v1/workloads/batch", workloads.BatchAction.as_view()),
    path("v1/workloads/<uuid:workload_id>", workloads.WorkloadDetail.as_view()),
    path("v1/workloads/<uuid:workload_id>/pods", pods.WorkloadPods.as_view()),
    path("v1/workloads/<uuid:workload_id>/events", pods.Events.as_view()),
    path("v1/workloads/<uuid:workload_id>/alternatives", workloads.WorkloadAlternatives.as_view()),
    path("v1/workloads/<uuid:workload_id>/waiting", workloads.WorkloadWaiting.as_view()),
    path("v1/workloads/<uuid:workload_id>/history", pods.History.as_view()),
    path("v1/workloads/<uuid:workload_id>/stream", streams.WorkloadStream.as_view()),
    path("v1/workloads/<uuid:workload_id>/logs", pods.Logs.as_view()),
    path("v1/workloads/<uuid:workload_id>/clone", manifests.Clone.as_view()),
    path("v1/workloads/workspaces", native.Workspaces.as_view()),
    path("v1/workloads/trainings", native.Trainings.as_view()),
    path("v1/workloads/distributed", native.DistributedTrainings.as_view()),
    path("v1/workloads/inferences", native.Inferences.as_view()),
    path("v1/workloads/distributed-inferences", native.DistributedInferences.as_view()),
    path("v1/workloads/inferences/<uuid:inference_id>", inferences.InferenceDetail.as_view()),
    path(
        "v1/workloads/distributed-inferences/<uuid:distributed_inference_id>",
        inferences.DistributedInferenceDetail.as_view(),
    ),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>", native.NativeWorkloadDetail.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/suspend", native.Suspend.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/resume", native.Resume.as_view()),
    path("v1/workloads/<stoppable:kind>/<uuid:workload_id>/retry", native.Retry.as_view()),
    path("v1/workload-priorities", dictionary_api.Priorities.as_view()),
    path("v1/workload-priorities/<uuid:priority_id>", dictionary_api.PriorityDetail.as_view()),
    path("v1/eviction-matrix", dictionary_api.EvictionMatrixRoute.as_view()),
    path("v1/workload-categories", dictionary_api.Categories.as_view()),
    path("v1/workload-categories/<uuid:category_id>", dictionary_api.CategoryDetail.as_view()),
    path("v1/workload-types", dictionary_api.Types.as_view()),
    path("v1/workload-types/<uuid:type_id>", dictionary_api.WorkloadTypeDetail.as_view()),
    path("v1/plans", plans_api.Plans.as_view()),
    path("v1/plans/<uuid:plan_id>", plans_api.PlanDetail.as_view()),
    path("v1/plans/<uuid:plan_id>/apply", plans_api.PlanApply.as_view()),
    path("v1/plans/<uuid:plan_id>/approve", plans_api.PlanApprove.as_view()),
    path("v1/plan-approvals", plans_api.PlanApprovals.as_view()),
    path("v1/plans/<uuid:plan_id>/discard", plans_api.PlanDiscard.as_view()),
    path("v1/plans/<uuid:plan_id>/rollback", plans_api.PlanRollback.as_view()),
    path("v2/policy", policies_api.Policies.as_view()),
    path("v2/policy/<policy:kind>", policies_api.PolicyDetail.as_view()),
    path("v1/workloads/telemetry", metrics.Telemetry.as_view()),
    path("v1/workloads/<uuid:workload_id>/metrics", metrics.WorkloadMetrics.as_view()),
    path("v1/workloads/<uuid:workload_id>/pods/<uuid:pod_id>/metrics", metrics.PodMetrics.as_view()),
    path("v1/notification-types", notifications_api.NotificationTypes.as_view()),
    path("v1/notification-state", notifications_api.State.as_view()),
    path("v1/notification-channels", notifications_api.Channels.as_view()),
    path("v1/notification-channels/<str:channel_name>", notifications_api.ChannelDetail.as_view()),
    path("v1/notification-channels/<str:channel_name>/trial-messages", notifications_api.TrialMessages.as_view()),
    path("v1/webhooks", notifications_api.Webhooks.as_view()),
    path("v1/webhooks/<str:webhook_name>", notifications_api.WebhookDetail.as_view()),
    path("v1/webhooks/<str:webhook_name>/secret", notifications_api.WebhookSecret.as_view()),
    path("v1/webhooks/<str:webhook_name>/trial-messages", notifications_api.WebhookTrials.as_view()),
    path("v1/validate-notification-channel", notifications_api.ChannelTrial.as_view()),
    path("v1/subscriptions", notifications_api.Subscriptions.as_view()),
    path("v1/subscriptions/<uuid:subscription_id>", notifications_api.SubscriptionDetail.as_view()),
    path("v1/workload-templates", templates.Templates.as_view()),
    path("v1/workload-templates/count", templates.TemplateCount.as_view()),
    path("v1/workload-templates/name-availability", templates.TemplateNames.as_view()),
    path("v1/workload-templates/<template:kind>", templates.TemplatesOfKind.as_view()),
    path("v1/workload-templates/<uuid:template_id>", templates.AnyTemplate.as_view()),
    path("v1/workload-templates/<changeable:kind>/<uuid:template_id>", templates.TemplateDetail.as_view()),
    path("v1/workload-templates/inferences/<uuid:inference_template_id>", templates.InferenceTemplateDetail.as_view()),
    path("v1/asset/<asset:kind>", assets.Assets.as_view()),
    path("v1/asset/<asset:kind>/<uuid:asset_id>", assets.AssetDetail.as_view()),
    path("v1/evictions", preemption_api.Evictions.as_view()),
    path("v1/evictions/count", preemption_api.EvictionCount.as_view()),
    path("v1/findings", detectors_api.FindingCollection.as_view()),
    path("v1/findings/<int:finding_id>", detectors_api.FindingDetail.as_view()),
    path("v1/quota-requests", quota_requests_api.QuotaRequests.as_view()),
    path("v1/quota-requests/<uuid:request_id>", quota_requests_api.QuotaRequestDetail.as_view()),
    path("v1/quota-requests/<uuid:request_id>/approve", quota_requests_api.QuotaRequestApproval.as_view()),
    path("v1/quota-requests/<uuid:request_id>/decline", quota_requests_api.QuotaRequestDecline.as_view()),
    path("v1/quota-requests/<uuid:request_id>/withdraw", quota_requests_api.QuotaRequestWithdrawal.as_view()),
    path("v1/replays", replay_api.Replays.as_view()),
    path("v1/replays/<uuid:replay_id>", replay_api.ReplayDetail.as_view()),
    path("v1/replays/<uuid:replay_id>/cancel", replay_api.ReplayCancel.as_view()),
    path("v1/replays/<uuid:replay_id>/file", replay_api.ReplayFile.as_view()),
    path("v1/org-unit/reports", reports_api.Reports.as_view()),
    path("v1/org-unit/reports/count", reports_api.ReportCount.as_view()),
    path("v1/org-unit/reports/availability", reports_api.Availability.as_view()),
    path("v1/org-unit/reports/<uuid:report_id>", reports_api.ReportDetail.as_view()),
    path("v1/org-unit/reports/<uuid:report_id>/file", reports_api.ReportFile.as_view()),
]
