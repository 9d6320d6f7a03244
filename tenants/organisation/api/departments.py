"""Departments as Run:ai's clients read, make and change them."""

from django.db import transaction
from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.filters import filters
from portal.kit.api.pagination import PAGES
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission, count_route
from portal.kit.api.serializers import (
    FILTERS,
    ignored_parameters,
    operation,
    validated_body,
)
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_departments
from tenants.organisation import services as organisation_services
from tenants.organisation.api.org_units import (
    COLUMNS,
    ENTRIES,
    check_supported,
    cluster_of,
    page,
    set_quotas_and_limits,
    with_figures,
)
from tenants.organisation.models import Department
from tenants.organisation.serializers import (
    DepartmentCreate,
    DepartmentsSchema,
    OrgUnitChange,
    OrgUnitSchema,
    departments_json,
)
from tenants.quotas.serializers import warned_entries
from tenants.quotas.services.pool_quotas import planned_resources, set_resources


class Departments(Route):
    """Departments where the caller has a role; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_organisation", "installation")}

    @operation(
        "get_departments",
        "List departments",
        DepartmentsSchema,
        parameters=[*PAGES, *FILTERS, *ignored_parameters("verbosity")],
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        part = page(_wanted(request), request, COLUMNS)
        return Response({"departments": departments_json(part.rows), **part.ways_on})

    @operation("create_department", "Create a department", OrgUnitSchema, 201, request=DepartmentCreate)
    def post(self, request: Request) -> Response:
        """The department with its quotas and rules: all of it or nothing."""
        actor, body = actor_of(request), validated_body(DepartmentCreate, request.data)
        check_supported(body, pools=False)
        with transaction.atomic():
            made = organisation_services.create_department(
                cluster=cluster_of(body["clusterId"]),
                name=body["name"],
                actor=actor,
                description=body.get("description") or "",
            )
            warnings = set_quotas_and_limits(made, body, actor)
        return Response(departments_json([_department(actor, made.pk)])[0] | warnings, status=201)


class DepartmentDetail(Route):
    """A department by id."""

    access = {
        "GET": RoutePermission("view_department", "department"),
        "PUT": RoutePermission("manage_department", "department"),
        "DELETE": RoutePermission("manage_organisation", "installation"),
    }

    @operation("get_department", "Read a department", OrgUnitSchema)
    def get(self, request: Request, unit_id: int) -> Response:
        """The department; 404 if it is absent or not yours."""
        return Response(departments_json([_department(actor_of(request), unit_id)])[0])

    def planned(self, request: Request, unit_id: int) -> PlannedWrite | None:
        """The quotas that the body sets."""
        if request.method != "PUT":
            return None
        entries = validated_body(OrgUnitChange, request.data)["resources"]
        return planned_resources(_department(actor_of(request), unit_id), entries, whole=True)

    @operation("update_department", "Change a department", OrgUnitSchema, request=OrgUnitChange)
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew; what else is absent stays."""
        actor = actor_of(request)
        row, body = _department(actor, unit_id), validated_body(OrgUnitChange, request.data)
        check_supported(body, pools=False)
        with transaction.atomic():
            said = body.get("description", row.description) or ""
            organisation_services.update_department(
                department=row, actor=actor, description=said, enforce_deserved=row.enforce_deserved
            )
            warnings = set_quotas_and_limits(row, body, actor)
        return Response(departments_json([_department(actor, unit_id)])[0] | warnings)

    @operation("delete_department", "Delete a department", status=204)
    def delete(self, request: Request, unit_id: int) -> Response:
        """Gone; 409 while it has projects."""
        actor = actor_of(request)
        organisation_services.delete_department(department=_department(actor, unit_id), actor=actor)
        return Response(status=204)


class DepartmentResources(Route):
    """A department's quotas."""

    access = dict.fromkeys(("PUT", "PATCH"), RoutePermission("manage_department_quota", "department"))

    def planned(self, request: Request, unit_id: int) -> PlannedWrite | None:
        """The quotas that the body sets."""
        owner = _department(actor_of(request), unit_id)
        return planned_resources(owner, request.data or [], whole=request.method == "PUT")

    @operation("update_department_resources", "Set a department's quotas", ENTRIES, request=ENTRIES)
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew: pools that are not named have none."""
        return _set(request, unit_id, whole=True)

    @operation("patch_department_resources", "Change a department's quotas", ENTRIES, request=ENTRIES)
    def patch(self, request: Request, unit_id: int) -> Response:
        """Pool by pool: absent keys keep their value, null clears it."""
        return _set(request, unit_id, whole=False)


def _wanted(request: Request) -> QuerySet[Department]:
    """What the caller may see, as the query narrows it."""
    query = request.query_params
    rows = with_figures(visible_departments(actor_of(request)), query)
    return rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request))).select_related("cluster")


DepartmentCount = count_route(
    "count_departments", "Count departments", "The number of departments the filter finds.", _wanted
)


def _department(actor: Actor, key: int) -> Department:
    found = visible_departments(actor).select_related("cluster").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _set(request: Request, unit_id: int, *, whole: bool) -> Response:
    actor = actor_of(request)
    found = set_resources(owner=_department(actor, unit_id), entries=request.data or [], actor=actor, whole=whole)
    return Response(warned_entries(departments_json([_department(actor, unit_id)])[0]["resources"], found))
