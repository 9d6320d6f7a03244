"""Categories and workload types as Run:ai's clients read them.

Nobody makes a type of their own: a kind is served only where intake can read it and every scheduler's objects are known
for it. Deleting one withdraws it from submission, making one offers a withdrawn one again.
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
    NewType,
    TypeChange,
    TypeSchema,
    TypesSchema,
)
from workloads.api.shapes import category_json, type_json
from workloads.models import Category, Priority, WorkloadType
from workloads.permissions import require_dictionary
from workloads.selectors import workload_types
from workloads.services.types import offer_type, update_type, withdraw_type

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

    access = {"GET": Rule(), "POST": Rule("manage_dictionary", "installation")}

    @extend_schema(
        operation_id="list_workload_types",
        summary="List workload types",
        parameters=[
            OpenApiParameter("externalTypesOnly", bool),
            OpenApiParameter("withdrawn", bool, description="Those that can be offered again, instead."),
            *FILTERS,
        ],
        responses={200: TypesSchema, **REFUSALS},
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

    @extend_schema(
        operation_id="create_workload_type",
        summary="Offer a withdrawn workload type again",
        description="Of the kinds that Rung reads; one that is offered is 409. Platform admins only.",
        request=NewType,
        responses={201: TypeSchema, 409: ErrorSchema, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """It is submitted again, with this category, priority and preemptibility."""
        actor = actor_of(request)
        require_dictionary(actor)
        body = checked(NewType, request.data)
        offered = offer_type(name=body["name"], group=body["group"], actor=actor, **_mapping(body))
        return Response(type_json(offered), status=201)


class OneType(Route):
    """A workload type by id."""

    access = {"GET": Rule(), **dict.fromkeys(("PUT", "DELETE"), Rule("manage_dictionary", "installation"))}

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
        return Response(type_json(update_type(workload_type=kind, actor=actor_of(request), **_mapping(change))))

    @extend_schema(
        operation_id="delete_workload_type",
        summary="Withdraw a workload type",
        description="No more submissions of it, through any door. What there is of it goes on. Platform admins only.",
        responses={204: None, **REFUSALS},
    )
    def delete(self, request: Request, type_id: str) -> Response:
        """It leaves the lists until it is offered again."""
        withdraw_type(workload_type=_type_or_404(type_id), actor=actor_of(request))
        return Response(status=204)


def _type_or_404(type_id: str) -> WorkloadType:
    found = workload_types().filter(pk=type_id).first()
    if found is None:
        raise Absent
    return found


def _mapping(body: dict[str, Any]) -> dict[str, str | None]:
    """Category, priority and preemptibility by name; None where they are absent."""
    return {
        "category": _chosen(Category.objects.all(), "categoryId", body),
        "priority": _chosen(Priority.objects.filter(retired_at__isnull=True), "priorityId", body),
        "preemptibility": body.get("preemptibility"),
    }


def _chosen(rows: QuerySet[Any], field: str, change: dict[str, Any]) -> str | None:
    """The name of the row an id stands for; None where the id is absent. An id of nothing is refused at its field."""
    if field not in change:
        return None
    name: str | None = rows.filter(pk=change[field]).values_list("name", flat=True).first()
    if name is None:
        known = rows.values_list("name", flat=True)
        raise Refused.at(f"/{field}", "unknown_id", f"{field} names nothing that exists.", allowed=known)
    return name
