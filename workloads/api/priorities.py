"""The priority dictionary: read as Run:ai's clients do, and written, which Run:ai has no verbs for.

Every write goes through a plan and is applied at once; the answer carries what it did. `dryRun=true` answers the same
and changes nothing.
"""

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import Cluster
from portal.core.bodies import FILTERS, REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent, Refused
from portal.core.filtering import Column, as_number, filters, ordering
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.priority_schemas import (
    ChangedSchema,
    DictionaryEntrySchema,
    NewPriority,
    PriorityChange,
    RetiredSchema,
    WholePriority,
)
from workloads.api.schemas import PrioritiesSchema
from workloads.api.shapes import priority_json
from workloads.models import Plan, Priority
from workloads.services.dictionary import add_priority, change_priority_entry, rename_priority, retire_priority

COLUMNS: Final = {"name": Column("name"), "source": Column("source"), "value": Column("value", as_number)}
WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
ADMIN: Final = Rule("manage_dictionary", "installation")
BEYOND: Final = "Beyond Run:ai, whose dictionary is closed. Applied at once; `dryRun=true` shows the plan only."


class Priorities(Route):
    """The priority dictionary."""

    access = {"GET": Rule(), "POST": ADMIN}

    @extend_schema(
        operation_id="get_workload_priorities",
        summary="List priorities",
        parameters=FILTERS,
        responses={200: PrioritiesSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Every offered priority with its sync per cluster."""
        query = request.query_params
        offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True)
        rows = offered.filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
        rows = rows.order_by(ordering(query, COLUMNS, "value"), "name")
        clusters, changing = _sync()
        return Response({"priorities": [priority_json(row, clusters, changing) for row in rows]})

    @extend_schema(
        operation_id="add_workload_priority",
        summary="Add a priority",
        description=BEYOND,
        request=NewPriority,
        responses={201: ChangedSchema, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """A new entry, or an alias of one."""
        body = checked(NewPriority, request.data)
        plan = add_priority(
            name=body["name"],
            value=body["value"],
            preemption_policy=body["preemptionPolicy"],
            description=body["description"],
            alias_of=body["aliasOf"],
            actor=actor_of(request),
        )
        return Response(_changed(body["name"], plan), status=201)


class OnePriority(Route):
    """A dictionary entry by id."""

    access = {"GET": Rule(), "PUT": ADMIN, "PATCH": ADMIN, "DELETE": ADMIN}

    @extend_schema(
        operation_id="get_workload_priority",
        summary="Read a priority",
        responses={200: DictionaryEntrySchema, **REFUSALS},
    )
    def get(self, request: Request, priority_id: str) -> Response:
        """The entry, or 404 where it is absent or retired."""
        return Response(_entry(_priority_or_404(priority_id)))

    @extend_schema(
        operation_id="overwrite_workload_priority",
        summary="Set a priority",
        description=f"{BEYOND} A changed value replaces the PriorityClass. Pods keep the old number; KAI goes by the "
        "new one at once. The plan says whose.",
        request=WholePriority,
        responses={200: ChangedSchema, **WRITES},
    )
    def put(self, request: Request, priority_id: str) -> Response:
        """All of the entry; what is absent goes back to its default."""
        return _change(request, _priority_or_404(priority_id), checked(WholePriority, request.data))

    @extend_schema(
        operation_id="update_workload_priority",
        summary="Change a priority",
        description=f"{BEYOND} A rename is a new entry, with an id of its own; the old name stays behind as its alias.",
        request=PriorityChange,
        responses={200: ChangedSchema, **WRITES},
    )
    def patch(self, request: Request, priority_id: str) -> Response:
        """Value, preemption policy, description, or the name alone."""
        return _change(request, _priority_or_404(priority_id), checked(PriorityChange, request.data))

    @extend_schema(
        operation_id="retire_workload_priority",
        summary="Retire a priority",
        description=f"{BEYOND} 409 with the list while anything uses it.",
        responses={200: RetiredSchema, **WRITES},
    )
    def delete(self, request: Request, priority_id: str) -> Response:
        """No longer offered nor accepted."""
        row = _priority_or_404(priority_id)
        return Response({"plan": plan_json(retire_priority(name=row.name, actor=actor_of(request)))})


def plan_json(plan: Plan) -> dict[str, Any]:
    """What a plan says it does."""
    shown = ("sentence", "objects", "workloads", "victims", "types", "warnings")
    return {"id": str(plan.pk), "title": plan.title, **{name: plan.effect[name] for name in shown}}


_ATTRIBUTES: Final = {"value": "value", "preemptionPolicy": "preemption_policy", "description": "description"}


def _change(request: Request, row: Priority, wanted: dict[str, Any]) -> Response:
    """A rename, or everything else: a PriorityClass keeps its name, so a rename is another entry."""
    actor = actor_of(request)
    given = {_ATTRIBUTES[name]: value for name, value in wanted.items() if name in _ATTRIBUTES}
    changed = {name: value for name, value in given.items() if value != getattr(row, name)}
    name = wanted.get("name", row.name)
    if name == row.name:
        return Response(_changed(name, change_priority_entry(name=name, actor=actor, **changed)))
    if changed:
        raise Refused.at("/name", "rename_alone", "Rename alone: send the other changes before or after it.")
    return Response(_changed(name, rename_priority(name=row.name, new_name=name, actor=actor)))


def _changed(name: str, plan: Plan) -> dict[str, Any]:
    row = Priority.objects.select_related("alias_of").get(name=name)
    return {**_entry(row), "plan": plan_json(plan)}


def _entry(row: Priority) -> dict[str, Any]:
    clusters, changing = _sync()
    return {**priority_json(row, clusters, changing), "aliasOf": row.alias_of.name if row.alias_of else ""}


def _sync() -> tuple[list[Cluster], set[str]]:
    """Every cluster, and the ids of those that are not in step yet."""
    clusters = list(Cluster.objects.all())
    return clusters, {str(each.pk) for each in clusters if each.synced_generation < each.generation}


def _priority_or_404(priority_id: str) -> Priority:
    found = Priority.objects.filter(pk=priority_id, retired_at__isnull=True).select_related("alias_of").first()
    if found is None:
        raise Absent
    return found
