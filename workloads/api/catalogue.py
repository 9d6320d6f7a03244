"""Categories and workload types as Run:ai's clients read them.

Types are neither made nor deleted: a kind is served only where intake can read it and every scheduler's objects are
known for it, so a type of anybody's own would be a promise that nothing keeps.
"""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import FILTERS, REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent, Refused
from portal.core.filtering import Column, filters, flag_in, ordering
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.schemas import (
    CategoriesSchema,
    CategorySchema,
    TypeChange,
    TypeSchema,
    TypesSchema,
)
from workloads.api.shapes import category_json, type_json
from workloads.models import Category, Priority, WorkloadType
from workloads.services.types import update_type

TYPE_COLUMNS = {"name": Column("name"), "group": Column("group")}


class Categories(Route):
    """Build, Train, Deploy."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="list_categories", summary="List categories", responses={200: CategoriesSchema, **REFUSALS}
    )
    def get(self, request: Request) -> Response:
        """Every category."""
        return Response({"categories": [category_json(row) for row in Category.objects.all()]})


class OneCategory(Route):
    """A category by id."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_category_by_id", summary="Read a category", responses={200: CategorySchema, **REFUSALS}
    )
    def get(self, request: Request, category_id: str) -> Response:
        """The category, or 404."""
        found = Category.objects.filter(pk=category_id).first()
        if found is None:
            raise Absent
        return Response(category_json(found))


class Types(Route):
    """Workload types with their default mapping."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="list_workload_types",
        summary="List workload types",
        parameters=[OpenApiParameter("externalTypesOnly", bool), *FILTERS],
        responses={200: TypesSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Every type; `externalTypesOnly=true` leaves the native ones out."""
        query = request.query_params
        rows = _types().filter(filters(query.get("filterBy", ""), TYPE_COLUMNS))
        rows = rows.order_by(ordering(query, TYPE_COLUMNS, "name"))
        if flag_in(query, "externalTypesOnly"):
            rows = rows.filter(native=False)
        return Response({"types": [type_json(row) for row in rows]})


class OneType(Route):
    """A workload type by id."""

    access = {"GET": Rule(), "PUT": Rule("manage_dictionary", "installation")}

    @extend_schema(
        operation_id="get_workload_type", summary="Read a workload type", responses={200: TypeSchema, **REFUSALS}
    )
    def get(self, request: Request, type_id: str) -> Response:
        """The type, or 404."""
        return Response(type_json(_type_or_404(type_id)))

    @extend_schema(
        operation_id="update_workload_type",
        summary="Change a type's default mapping",
        description="Acts at once on new submissions; existing workloads keep their values. Platform admins only.",
        request=TypeChange,
        responses={200: TypeSchema, 422: ErrorSchema, **REFUSALS},
    )
    def put(self, request: Request, type_id: str) -> Response:
        """Set category, priority, preemptibility; what is absent stays."""
        kind = _type_or_404(type_id)
        change = checked(TypeChange, request.data)
        changed = update_type(
            type=kind,
            category=_chosen(Category.objects.all(), "categoryId", change),
            priority=_chosen(Priority.objects.filter(retired_at__isnull=True), "priorityId", change),
            preemptibility=change.get("preemptibility"),
            actor=actor_of(request),
        )
        return Response(type_json(changed))


def _types() -> QuerySet[WorkloadType]:
    return WorkloadType.objects.select_related("category", "priority")


def _type_or_404(type_id: str) -> WorkloadType:
    found = _types().filter(pk=type_id).first()
    if found is None:
        raise Absent
    return found


def _chosen(rows: QuerySet[Any], field: str, change: dict[str, Any]) -> str | None:
    """The name of the row an id stands for; None where the id is absent. An id of nothing is refused at its field."""
    if field not in change:
        return None
    name: str | None = rows.filter(pk=change[field]).values_list("name", flat=True).first()
    if name is None:
        known = rows.values_list("name", flat=True)
        raise Refused.at(f"/{field}", "unknown_id", f"{field} names nothing that exists.", allowed=known)
    return name
