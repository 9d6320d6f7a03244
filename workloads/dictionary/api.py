"""REST of priorities, categories and workload types.

Nobody makes a type of their own: a kind is served only where intake can read it and every scheduler's objects are
known for it. Deleting one withdraws it from submission, making one offers a withdrawn one again.

Every write goes through a plan and is applied at once; the answer carries what it did. `dryRun=true` answers the same
and changes nothing.
"""

from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster
from portal.kit.api.lists import Column, as_number, filters, flag_in, ordering
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import FILTERS, operation, validated_body
from portal.kit.errors import BadRequest, NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_projects
from tenants.organisation.models import Project
from tenants.quotas.selectors.reclaims import reclaims_on
from tenants.usage.serializers import parse_uuid
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.dictionary.selectors import matrix_notes, matrix_on, require_dictionary, workload_types
from workloads.dictionary.serializers import (
    READY,
    UPDATING,
    CategoriesSchema,
    CategorySchema,
    ChangedSchema,
    DictionaryEntrySchema,
    EvictionMatrixSchema,
    PrioritiesSchema,
    PriorityChange,
    PriorityCreate,
    PriorityReplace,
    RetiredSchema,
    TypeChange,
    TypeSchema,
    TypesSchema,
    WorkloadTypeCreate,
    category_json,
    matrix_json,
    priority_json,
    type_json,
)
from workloads.dictionary.services.changes import (
    add_priority,
    change_priority_entry,
    offer_type,
    rename_priority,
    retire_priority,
    update_type,
    withdraw_type,
)
from workloads.plans.api import plan_json
from workloads.plans.models import Plan

TYPE_COLUMNS = {"name": Column("name"), "group": Column("group")}


class Categories(Route):
    """Build, Train, Deploy."""

    access = {"GET": RoutePermission()}

    @operation("list_categories", "List categories", CategoriesSchema)
    def get(self, request: Request) -> Response:
        """Every category."""
        return Response({"categories": [category_json(row) for row in Category.objects.all()]})


class CategoryDetail(Route):
    """A category by id."""

    access = {"GET": RoutePermission()}

    @operation("get_category_by_id", "Read a category", CategorySchema)
    def get(self, request: Request, category_id: str) -> Response:
        """The category, or 404."""
        found = Category.objects.filter(pk=category_id).first()
        if found is None:
            raise NotFound
        return Response(category_json(found))


class Types(Route):
    """Workload types with their default mapping."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_dictionary", "installation")}

    @operation(
        "list_workload_types",
        "List workload types",
        TypesSchema,
        parameters=[
            OpenApiParameter("externalTypesOnly", bool),
            OpenApiParameter("withdrawn", bool, description="Types that can be enabled again, instead."),
            *FILTERS,
        ],
    )
    def get(self, request: Request) -> Response:
        """Every type that is offered; `externalTypesOnly=true` leaves the native ones out."""
        query = request.query_params
        rows = workload_types(withdrawn=flag_in(query, "withdrawn")).filter(
            filters(query.get("filterBy", ""), TYPE_COLUMNS, actor_of(request))
        )
        rows = rows.order_by(ordering(query, TYPE_COLUMNS, "name"))
        if flag_in(query, "externalTypesOnly"):
            rows = rows.filter(native=False)
        return Response({"types": [type_json(row) for row in rows]})

    @operation(
        "create_workload_type",
        "Enable a workload type",
        TypeSchema,
        201,
        description="For kinds that Rung supports; an enabled type answers 409. Platform admins only.",
        request=WorkloadTypeCreate,
    )
    def post(self, request: Request) -> Response:
        """It is submitted again, with this category, priority and preemptibility."""
        actor = actor_of(request)
        require_dictionary(actor)
        body = validated_body(WorkloadTypeCreate, request.data)
        offered = offer_type(name=body["name"], group=body["group"], actor=actor, **_mapping(body))
        return Response(type_json(offered), status=201)


class WorkloadTypeDetail(Route):
    """A workload type by id."""

    access = {
        "GET": RoutePermission(),
        **dict.fromkeys(("PUT", "DELETE"), RoutePermission("manage_dictionary", "installation")),
    }

    @operation("get_workload_type", "Read a workload type", TypeSchema)
    def get(self, request: Request, type_id: str) -> Response:
        """The type, or 404."""
        return Response(type_json(_type_or_404(type_id)))

    @operation(
        "update_workload_type",
        "Change a type's default mapping",
        TypeSchema,
        description="Applies to new submissions; existing workloads keep their values. Platform admins only.",
        request=TypeChange,
    )
    def put(self, request: Request, type_id: str) -> Response:
        """Set category, priority, preemptibility; what is absent stays."""
        kind = _type_or_404(type_id)
        change = validated_body(TypeChange, request.data)
        return Response(type_json(update_type(workload_type=kind, actor=actor_of(request), **_mapping(change))))

    @operation(
        "delete_workload_type",
        "Disable a workload type",
        status=204,
        description="New workloads of the type are rejected. Existing workloads keep running. Platform admins only.",
    )
    def delete(self, request: Request, type_id: str) -> Response:
        """It leaves the lists until it is offered again."""
        withdraw_type(workload_type=_type_or_404(type_id), actor=actor_of(request))
        return Response(status=204)


def _type_or_404(type_id: str) -> WorkloadType:
    found = workload_types().filter(pk=type_id).first()
    if found is None:
        raise NotFound
    return found


def _mapping(body: dict[str, Any]) -> dict[str, str | None]:
    """Category, priority and preemptibility by name; None where they are absent."""
    return {
        "category": _chosen(Category.objects.all(), "categoryId", body),
        "priority": _chosen(Priority.objects.filter(retired_at__isnull=True), "priorityId", body),
        "preemptibility": body.get("preemptibility"),
    }


def _chosen(rows: QuerySet[Any], field: str, change: dict[str, Any]) -> str | None:
    """The name of the row with an id; None where the id is absent. An id of nothing is refused at its field."""
    if field not in change:
        return None
    name: str | None = rows.filter(pk=change[field]).values_list("name", flat=True).first()
    if name is None:
        known = rows.values_list("name", flat=True)
        raise ValidationFailed.at(f"/{field}", "unknown_id", f"{field} does not exist.", allowed=known)
    return name


COLUMNS: Final = {"name": Column("name"), "source": Column("source"), "value": Column("value", as_number)}
ADMIN: Final = RoutePermission("manage_dictionary", "installation")
BEYOND: Final = "Beyond Run:ai, whose dictionary is fixed. Applied immediately; `dryRun=true` only returns the plan."


class Priorities(Route):
    """The priority dictionary."""

    access = {"GET": RoutePermission(), "POST": ADMIN}

    @operation("get_workload_priorities", "List priorities", PrioritiesSchema, parameters=FILTERS)
    def get(self, request: Request) -> Response:
        """Every offered priority with its sync per cluster."""
        query = request.query_params
        offered = Priority.objects.filter(alias_of__isnull=True, retired_at__isnull=True)
        rows = offered.filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
        rows = rows.order_by(ordering(query, COLUMNS, "value"), "name")
        status = _sync()
        return Response({"priorities": [priority_json(row, status) for row in rows]})

    @operation(
        "add_workload_priority", "Add a priority", ChangedSchema, 201, description=BEYOND, request=PriorityCreate
    )
    def post(self, request: Request) -> Response:
        """A new entry, or an alias of one."""
        body = validated_body(PriorityCreate, request.data)
        plan = add_priority(
            name=body["name"],
            value=body["value"],
            preemption_policy=body["preemptionPolicy"],
            description=body["description"],
            alias_of=body["aliasOf"],
            actor=actor_of(request),
        )
        return Response(_changed(body["name"], plan, actor_of(request)), status=201)


class PriorityDetail(Route):
    """A dictionary entry by id."""

    access = {"GET": RoutePermission(), "PUT": ADMIN, "PATCH": ADMIN, "DELETE": ADMIN}

    @operation("get_workload_priority", "Read a priority", DictionaryEntrySchema)
    def get(self, request: Request, priority_id: str) -> Response:
        """The entry, or 404 where it is absent or retired."""
        return Response(_entry(_priority_or_404(priority_id)))

    @operation(
        "overwrite_workload_priority",
        "Set a priority",
        ChangedSchema,
        description=f"{BEYOND} A changed value replaces the PriorityClass. Pods keep the old value; KAI uses the "
        "new one immediately. The plan lists the workloads.",
        request=PriorityReplace,
    )
    def put(self, request: Request, priority_id: str) -> Response:
        """All of the entry; what is absent goes back to its default."""
        return _change(request, _priority_or_404(priority_id), validated_body(PriorityReplace, request.data))

    @operation(
        "update_workload_priority",
        "Change a priority",
        ChangedSchema,
        description=f"{BEYOND} A rename creates a new entry with a new id; the old name becomes its alias.",
        request=PriorityChange,
    )
    def patch(self, request: Request, priority_id: str) -> Response:
        """Value, preemption policy, description, or the name alone."""
        return _change(request, _priority_or_404(priority_id), validated_body(PriorityChange, request.data))

    @operation(
        "retire_workload_priority",
        "Retire a priority",
        RetiredSchema,
        description=f"{BEYOND} 409 with the list of users while it is in use.",
    )
    def delete(self, request: Request, priority_id: str) -> Response:
        """No longer offered nor accepted."""
        row = _priority_or_404(priority_id)
        actor = actor_of(request)
        return Response({"plan": plan_json(retire_priority(name=row.name, actor=actor), actor)})


class EvictionMatrixRoute(Route):
    """Who can evict whom on a cluster."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_eviction_matrix",
        "Read who can evict whom",
        EvictionMatrixSchema,
        description="Beyond Run:ai. By the model of the cluster's scheduler, its configuration as Rung last read it, "
        "and the quotas and usage last observed. Names of projects and departments you may not see are withheld.",
        parameters=[
            OpenApiParameter("clusterId", OpenApiTypes.UUID, description="Required unless `project` is given."),
            OpenApiParameter("project", str, description="Name of a project: its reclaims and minimum runtime only."),
        ],
    )
    def get(self, request: Request) -> Response:
        """Priority by priority, and between projects and departments."""
        actor, name = actor_of(request), request.query_params.get("project", "")
        key = parse_uuid(request.query_params, "clusterId")
        project = _project_or_404(actor, name) if name else None
        cluster = project.cluster if project else _cluster_or_404(key)
        if key not in {None, cluster.pk}:
            raise BadRequest.at("/project", "other_cluster", f"{name} is in another cluster.")
        matrix = matrix_on(cluster)
        notes = matrix_notes(cluster, matrix, project)
        return Response(matrix_json(cluster, name, matrix, reclaims_on(cluster, actor, project=project), notes))


def _cluster_or_404(key: UUID | None) -> Cluster:
    if key is None:
        raise BadRequest.at("/clusterId", "required", "Name a cluster or a project.")
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _project_or_404(actor: Actor, name: str) -> Project:
    found = visible_projects(actor).select_related("cluster", "department").filter(name=name).first()
    if found is None:
        raise NotFound
    return found


_ATTRIBUTES: Final = {"value": "value", "preemptionPolicy": "preemption_policy", "description": "description"}


def _change(request: Request, row: Priority, wanted: dict[str, Any]) -> Response:
    """A rename, or everything else: a PriorityClass keeps its name, so a rename is another entry."""
    actor = actor_of(request)
    given = {_ATTRIBUTES[name]: value for name, value in wanted.items() if name in _ATTRIBUTES}
    changed = {name: value for name, value in given.items() if value != getattr(row, name)}
    name = wanted.get("name", row.name)
    if name == row.name:
        return Response(_changed(name, change_priority_entry(name=name, actor=actor, **changed), actor))
    if changed:
        raise ValidationFailed.at(
            "/name", "rename_alone", "Rename in a separate request, before or after other changes."
        )
    return Response(_changed(name, rename_priority(name=row.name, new_name=name, actor=actor), actor))


def _changed(name: str, plan: Plan, actor: Actor) -> dict[str, Any]:
    row = Priority.objects.select_related("alias_of").get(name=name)
    return {**_entry(row), "plan": plan_json(plan, actor)}


def _entry(row: Priority) -> dict[str, Any]:
    return {**priority_json(row, _sync()), "aliasOf": row.alias_of.name if row.alias_of else ""}


def _sync() -> list[dict[str, str]]:
    """One entry per cluster: is it in step with the dictionary?"""
    rows = Cluster.objects.values_list("pk", "synced_generation", "generation")
    return [
        {"clusterId": str(pk), "phase": UPDATING if synced < generation else READY} for pk, synced, generation in rows
    ]


def _priority_or_404(priority_id: str) -> Priority:
    found = Priority.objects.filter(pk=priority_id, retired_at__isnull=True).select_related("alias_of").first()
    if found is None:
        raise NotFound
    return found
