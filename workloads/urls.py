"""Addresses of the workloads' pages."""

from django.urls import include, path

from workloads.views import (
    actions,
    channels,
    detail,
    dictionary,
    home,
    listing,
    notifications,
    plans,
    policies,
    reports,
    submit,
    types,
)

pages = [
    path("workloads/", listing.workload_list, name="list"),
    path("workloads/bulk/", listing.bulk, name="bulk"),
    path("workloads/submit/", submit.submit_form, name="submit"),
    path("workloads/submit/yaml/", submit.submit_text, name="submit-yaml"),
    path("workloads/<uuid:workload_id>/", detail.workload_detail, name="detail"),
    path("workloads/<uuid:workload_id>/stop/", actions.stop, name="stop"),
    path("workloads/<uuid:workload_id>/resume/", actions.resume, name="resume"),
    path("workloads/<uuid:workload_id>/delete/", actions.delete, name="delete"),
    path("workloads/<uuid:workload_id>/priority/", actions.change_priority, name="change-priority"),
    path("priorities/", dictionary.priorities, name="priorities"),
    path("priorities/add/", dictionary.add, name="priority-add"),
    path("priorities/preset/<slug:name>/", dictionary.preset, name="preset"),
    path("priorities/<slug:name>/", dictionary.edit, name="priority"),
    path("priorities/<slug:name>/retire/", dictionary.retire, name="priority-retire"),
    path("types/", types.type_list, name="types"),
    path("types/<uuid:type_id>/", types.edit, name="type"),
    path("policies/", policies.policies, name="policies"),
    path("policies/add/", policies.add, name="policy-add"),
    path("policies/<uuid:policy_id>/", policies.edit, name="policy"),
    path("policies/<uuid:policy_id>/lift/", policies.lift, name="policy-lift"),
    path("notifications/", notifications.mine, name="notifications"),
    path("notifications/switch/", notifications.switch, name="mail-switch"),
    path("notifications/add-channel/", channels.add, name="channel-add"),
    path("notifications/channels/<slug:name>/", channels.edit, name="channel"),
    path("notifications/channels/<slug:name>/test/", channels.try_it, name="channel-test"),
    path("notifications/channels/<slug:name>/delete/", channels.remove, name="channel-delete"),
    path("reports/", reports.reports, name="reports"),
    path("reports/<uuid:report_id>/file/", reports.file, name="report-file"),
    path("reports/<uuid:report_id>/delete/", reports.delete, name="report-delete"),
    path("plans/<uuid:plan_id>/", plans.show, name="plan"),
    path("plans/<uuid:plan_id>/apply/", plans.apply, name="plan-apply"),
    path("plans/<uuid:plan_id>/discard/", plans.discard, name="plan-discard"),
]
urlpatterns = [path("", home.home, name="home"), path("", include((pages, "workloads")))]
