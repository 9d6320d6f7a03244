"""Forms of the workloads' pages as calls of the REST API that do the same."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from portal.core.recipes import Request
from portal.core.wire import stamp
from workloads.models import NotificationChannel, Report, Subscription, Workload, WorkloadTemplate
from workloads.models.scoped import Owner
from workloads.policy_documents import Document, place_json
from workloads.policy_rules import Kind, Scope
from workloads.report_requests import CLUSTER_ID, DEPARTMENT_NAME, PROJECT_NAME
from workloads.scopes import place_of
from workloads.services.templates import TemplateDraft

REPORTS: Final = "/api/v1/org-unit/reports"
TEMPLATES: Final = "/api/v1/workload-templates"
CHANNELS: Final = "/api/v1/notification-channels"
POLICIES: Final[Mapping[Kind, str]] = {
    Kind.WORKSPACE: "workspaces",
    Kind.TRAINING: "trainings",
    Kind.DISTRIBUTED: "distributed",
    Kind.INFERENCE: "inferences",
    Kind.DISTRIBUTED_INFERENCE: "distributed-inferences",
    Kind.NIM_SERVICE: "nim-services",
}
"""The word of each kind in the addresses of its policies."""


def act_on(workload: Workload, action: str) -> Request:
    """`suspend`, `resume`, `retry` or `delete` of one workload, of whatever type."""
    return act_on_all([workload], action)


def act_on_all(rows: Iterable[Workload], action: str) -> Request:
    """The same of several."""
    named = {str(each.pk): f"{each.project.name}/{each.name}" for each in rows}
    body = {"ids": list(named), "action": action}
    words = (action, *named.values(), *(("--yes",) if action == "delete" else ()))
    return Request("POST", "/api/v1/workloads/batch", body, "workloads.workloads_batch.batch_workloads", rung=words)


def other_priority(workload: Workload, name: str) -> Request:
    """Another priority for a workload; its preemptibility stays."""
    return Request("PUT", f"/api/v2/workloads/{workload.pk}", {"metadata": {"priority": name}})


def set_policy(kind: Kind, owner: Owner, name: str, document: Document) -> Request:
    """The policy of a kind at a scope, put in the place of the one that is there."""
    body = {"meta": {"name": name, **place_json(place_of(owner))}, "policy": document}
    return Request("PUT", f"/api/v2/policy/{POLICIES[kind]}", body)


def policy_lifted(kind: Kind, owner: Owner) -> Request:
    """The policy of a kind at a scope taken away."""
    query = urlencode(place_json(place_of(owner)))
    return Request("DELETE", f"/api/v2/policy/{POLICIES[kind]}?{query}")


def report_gone(report: Report) -> Request:
    """A report thrown away."""
    key = str(report.pk)
    words = ("reports", "delete", key, "--yes")
    return Request("DELETE", f"{REPORTS}/{key}", None, "organizations.reports.delete_report_by_id", (key,), rung=words)


def new_report(asked: Mapping[str, Any]) -> Request:
    """A usage report."""
    body = {
        "name": asked["name"],
        "start": stamp(asked["start"]),
        "end": stamp(asked["end"]),
        "groupBy": asked["group_by"],
        **({"filterBy": asked["filter_by"]} if asked["filter_by"] else {}),
    }
    return Request("POST", REPORTS, body, "organizations.reports.create_report", rung=_made_by_rung(asked))


def _made_by_rung(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Its days are whole ones: the last has only come as far as it has."""
    last = (asked["end"] - timedelta(microseconds=1)).date()
    days = ("--from", f"{asked['start']:%Y-%m-%d}", "--to", f"{last:%Y-%m-%d}")
    places = [part for each in asked["filter_by"] for part in _place_flag(*each.split("==", 1))]
    by = {"Nodepool": "node-pool"}.get(asked["group_by"], asked["group_by"].lower())
    return ("reports", "make", "--no-wait", *days, "--by", by, *places, "--", asked["name"])


def _place_flag(field: str, value: str) -> tuple[str, str]:
    return {PROJECT_NAME: "--project", DEPARTMENT_NAME: "--department", CLUSTER_ID: "--cluster"}[field], value


def wish(old: Subscription | None, events: Sequence[Mapping[str, Any]], channels: Sequence[str]) -> Request:
    """A subscription, kept anew, changed, or taken away where nothing is wanted any more."""
    path, key = "/api/v1/subscriptions", (str(old.pk),) if old else ()
    group = "notifications.subscriptions"
    if old and not events:
        return Request("DELETE", f"{path}/{old.pk}", None, f"{group}.delete_subscription", key)
    body = {"events": list(events), "channels": list(channels)}
    if old:
        return Request("PUT", f"{path}/{old.pk}", body, f"{group}.update_subscription", key)
    return Request("POST", path, body, f"{group}.create_subscription")


def channel(old: NotificationChannel | None, name: str, config: Mapping[str, Any]) -> Request:
    """A channel of mail. A password that was typed stands in no text."""
    said = {key: value for key, value in config.items() if key != "password"}
    secrets = {"/config/password": "MAIL_PASSWORD"} if config.get("password") else {}
    body = {"type": "email", "config": said}
    if old:
        return Request("PUT", f"{CHANNELS}/{old.name}", body, secrets=secrets)
    return Request("POST", CHANNELS, {"name": name, **body}, secrets=secrets)


def channel_tried(row: NotificationChannel, to: str) -> Request:
    """A test message by a channel."""
    return Request("POST", f"{CHANNELS}/{row.name}/trial-messages", {"to": to})


def channel_gone(row: NotificationChannel) -> Request:
    """A channel deleted."""
    return Request("DELETE", f"{CHANNELS}/{row.name}")


def mail_switched(*, on: bool) -> Request:
    """Mail on or off for the installation."""
    return Request("PATCH", "/api/v1/notification-state", {"email": {"enabled": on}})


def new_template(kind: str, owner: Owner, draft: TemplateDraft) -> Request:
    """A template."""
    place = place_of(owner)
    scope = {"scopeType": str(place.scope), **({} if place.scope is Scope.TENANT else {"scopeId": place.key})}
    return Request("POST", f"{TEMPLATES}/{kind}", _template(draft, scope))


def changed_template(row: WorkloadTemplate, draft: TemplateDraft) -> Request:
    """Another one in its place."""
    return Request("PUT", f"{TEMPLATES}/{row.kind}/{row.pk}", _template(draft, {}))


def template_gone(row: WorkloadTemplate) -> Request:
    """A template deleted."""
    return Request("DELETE", f"{TEMPLATES}/{row.kind}/{row.pk}")


def _template(draft: TemplateDraft, scope: Mapping[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {"meta": {"name": draft.name, "description": draft.description, **scope}, "spec": draft.spec}
    body |= _assets(draft.environment, draft.compute)
    if draft.master_same is not None:
        body["masterSpecSameAsWorker"] = draft.master_same
    if draft.master is not None:
        body["master"] = {"spec": draft.master, **_assets(draft.master_environment, draft.master_compute)}
    return body


def _assets(environment: UUID | None, compute: UUID | None) -> dict[str, Any]:
    named = {"environment": environment, "compute": compute}
    said = {name: str(key) for name, key in named.items() if key}
    return {"assets": said} if said else {}
