"""A plan's change as the calls of the REST API that make it at once."""

from typing import Any

from portal.core.recipes import Request
from workloads.models import Category, Plan, Priority, WorkloadType

PRIORITIES = "/api/v1/workload-priorities"
TYPES = "/api/v1/workload-types"
METHODS = {"type": "update_workload_type", "withdraw": "delete_workload_type", "offer": "create_workload_type"}
KEYS = {"value": "value", "preemption_policy": "preemptionPolicy", "description": "description"}


def plan_requests(plan: Plan) -> list[Request]:
    """None for a plan of several changes, and for one of something that is no longer there."""
    change = plan.change
    match change["op"]:
        case "add":
            return [Request("POST", PRIORITIES, {"name": change["name"], **_fields(change)})]
        case "change":
            return _of_priority(change["name"], "PATCH", _fields(change))
        case "rename":
            return _of_priority(change["name"], "PATCH", {"name": change["new_name"]})
        case "retire":
            return _of_priority(change["name"], "DELETE", None)
        case "type" | "withdraw" | "offer":
            return _of_type(change)
        case _:
            return []


def _fields(change: dict[str, Any]) -> dict[str, Any]:
    return {key: change[name] for name, key in KEYS.items() if name in change}


def _of_priority(name: str, verb: str, body: dict[str, Any] | None) -> list[Request]:
    rows = Priority.objects.filter(name=name, retired_at__isnull=True).values_list("pk", flat=True)
    return [Request(verb, f"{PRIORITIES}/{key}", body) for key in rows[:1]]


def _of_type(change: dict[str, Any]) -> list[Request]:
    """By ids, as Run:ai's client sends it."""
    row = WorkloadType.objects.filter(name=change["name"]).select_related("category", "priority").first()
    if row is None:
        return []
    one, method = f"{TYPES}/{row.pk}", f"workloads.workload_properties.{METHODS[change['op']]}"
    if change["op"] == "withdraw":
        return [Request("DELETE", one, None, method, (str(row.pk),))]
    if change["op"] == "offer":
        body = {"name": row.name, "group": row.group, **_mapping({**_kept(row), **change})}
        return [Request("POST", TYPES, body, method)]
    return [Request("PUT", one, _mapping(change), method, (str(row.pk),))]


def _kept(row: WorkloadType) -> dict[str, str]:
    """What a plan leaves out stays, and the call must say it."""
    return {name: value.name for name, value in (("category", row.category), ("priority", row.priority)) if value}


def _mapping(change: dict[str, Any]) -> dict[str, Any]:
    named = {"categoryId": (Category.objects.all(), "category"), "priorityId": (Priority.objects.all(), "priority")}
    body = {
        field: str(rows.filter(name=change[name]).values_list("pk", flat=True).first())
        for field, (rows, name) in named.items()
        if change.get(name)
    }
    if change.get("preemptibility"):
        body["preemptibility"] = change["preemptibility"]
    return body
