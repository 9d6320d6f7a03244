"""Departments as Run:ai's clients read, make and change them."""

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import FILTERS, REFUSALS, CountSchema, checked, without_effect
from portal.core.errors import Absent
from portal.core.filtering import filters
from portal.core.http import actor_of
from portal.core.paging import PAGES
from portal.core.routes import Route, Rule
from tenants.api.org_figures import with_figures
from tenants.api.org_schemas import DepartmentsSchema, NewDepartment, OrgUnitChange, OrgUnitSchema
from tenants.api.org_shapes import departments_json
from tenants.api.org_units import COLUMNS, ENTRIES, WRITES, cluster_of, page, refuse_unsupported, set_rest
from tenants.models import Department
from tenants.permissions import visible_departments
from tenants.services import organisation
from tenants.services.resources import set_resources


class Departments(Route):
    """Departments where the caller has a role; new ones."""

    access = {"GET": Rule(), "POST": Rule("manage_organisation", "installation")}

    @extend_schema(
        operation_id="get_departments",
        summary="List departments",
        parameters=[*PAGES, *FILTERS, *without_effect("verbosity")],
        responses={200: DepartmentsSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        part = page(_wanted(request), request, COLUMNS)
        return Response({"departments": departments_json(part.rows), **part.ways_on})

    @extend_schema(
        operation_id="create_department",
        summary="Make a department",
        request=NewDepartment,
        responses={201: OrgUnitSchema, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """The department with its quotas and rules: all of it or nothing."""
        actor, body = actor_of(request), checked(NewDepartment, request.data)
        refuse_unsupported(body, pools=False)
        with transaction.atomic():
            made = organisation.create_department(
                cluster=cluster_of(body["clusterId"]),
                name=body["name"],
                actor=actor,
                description=body.get("description") or "",
            )
            set_rest(made, body, actor)
        return Response(departments_json([_department(actor, made.pk)])[0], status=201)


class OneDepartment(Route):
    """A department by id."""

    access = {
        "GET": Rule("view_department", "department"),
        "PUT": Rule("manage_department", "department"),
        "DELETE": Rule("manage_organisation", "installation"),
    }

    @extend_schema(
        operation_id="get_department", summary="Read a department", responses={200: OrgUnitSchema, **REFUSALS}
    )
    def get(self, request: Request, unit_id: int) -> Response:
        """The department; 404 if it is absent or not yours."""
        return Response(departments_json([_department(actor_of(request), unit_id)])[0])

    @extend_schema(
        operation_id="update_department",
        summary="Change a department",
        request=OrgUnitChange,
        responses={200: OrgUnitSchema, **WRITES},
    )
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew; what else is absent stays."""
        actor = actor_of(request)
        row, body = _department(actor, unit_id), checked(OrgUnitChange, request.data)
        refuse_unsupported(body, pools=False)
        with transaction.atomic():
            said = body.get("description", row.description) or ""
            organisation.update_department(
                department=row, actor=actor, description=said, enforce_deserved=row.enforce_deserved
            )
            set_rest(row, body, actor)
        return Response(departments_json([_department(actor, unit_id)])[0])

    @extend_schema(operation_id="delete_department", summary="Delete a department", responses={204: None, **WRITES})
    def delete(self, request: Request, unit_id: int) -> Response:
        """Gone; 409 while it has projects."""
        actor = actor_of(request)
        organisation.delete_department(department=_department(actor, unit_id), actor=actor)
        return Response(status=204)


class DepartmentResources(Route):
    """A department's quotas."""

    access = dict.fromkeys(("PUT", "PATCH"), Rule("manage_department_quota", "department"))

    @extend_schema(
        operation_id="update_department_resources",
        summary="Set a department's quotas",
        request=ENTRIES,
        responses={200: ENTRIES, **WRITES},
    )
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew: pools that are not named have none."""
        return _set(request, unit_id, whole=True)

    @extend_schema(
        operation_id="patch_department_resources",
        summary="Change a department's quotas",
        request=ENTRIES,
        responses={200: ENTRIES, **WRITES},
    )
    def patch(self, request: Request, unit_id: int) -> Response:
        """Pool by pool: absent keys keep their value, null clears it."""
        return _set(request, unit_id, whole=False)


class DepartmentCount(Route):
    """How many departments the same filter finds."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="count_departments",
        summary="Count departments",
        parameters=FILTERS,
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """The number of departments the filter finds."""
        return Response({"count": _wanted(request).count()})


def _wanted(request: Request) -> QuerySet[Department]:
    """What the caller may see, as the query narrows it."""
    query = request.query_params
    rows = with_figures(visible_departments(actor_of(request)), query)
    return rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request))).select_related("cluster")


def _department(actor: Actor, key: int) -> Department:
    found = visible_departments(actor).select_related("cluster").filter(pk=key).first()
    if found is None:
        raise Absent
    return found


def _set(request: Request, unit_id: int, *, whole: bool) -> Response:
    actor = actor_of(request)
    set_resources(owner=_department(actor, unit_id), entries=request.data or [], actor=actor, whole=whole)
    return Response(departments_json([_department(actor, unit_id)])[0]["resources"])
