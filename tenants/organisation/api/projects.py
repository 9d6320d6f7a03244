"""Projects as Run:ai's clients read, make and change them."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.filters import Column, Columns, as_number, filters
from portal.kit.api.pagination import NAME_SEARCH, PAGES
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, operation, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api.filter_values import DEPARTMENT_ID, DEPARTMENT_NAME
from tenants.access.selectors import visible_departments, visible_projects
from tenants.organisation import services as organisation_services
from tenants.organisation.api import org_units
from tenants.organisation.api.org_units import (
    ENTRIES,
    PHASE,
    check_supported,
    cluster_of,
    page,
    set_quotas_and_limits,
    with_figures,
)
from tenants.organisation.models import Department, Project
from tenants.organisation.serializers import OrgUnitSchema, ProjectChange, ProjectCreate, ProjectsSchema, projects_json
from tenants.quotas.serializers import warned_entries
from tenants.quotas.services.pool_quotas import planned_resources, set_resources

COLUMNS: Final[Columns] = {
    **org_units.COLUMNS,
    "departmentId": Column("department_id", as_number, DEPARTMENT_ID),
    "parentId": Column("department_id", as_number, DEPARTMENT_ID),
    "parentName": Column("department__name", known=DEPARTMENT_NAME),
    "phase": PHASE,
}


class Projects(Route):
    """Projects that the caller may see; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_project", "department")}

    @operation("get_projects", "List projects", ProjectsSchema, parameters=[*PAGES, *FILTERS, NAME_SEARCH])
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        part = page(_wanted(request), request, COLUMNS)
        return Response({"projects": projects_json(part.rows), **part.ways_on})

    @operation("create_project", "Create a project", OrgUnitSchema, 201, request=ProjectCreate)
    def post(self, request: Request) -> Response:
        """The project with its quotas and rules: all of it or nothing."""
        actor, body = actor_of(request), validated_body(ProjectCreate, request.data)
        check_supported(body)
        with transaction.atomic():
            made = organisation_services.create_project(
                department=_parent(actor, body),
                name=body["name"],
                actor=actor,
                namespace=body.get("requestedNamespace") or "",
                description=body.get("description") or "",
                default_node_pools=body.get("defaultNodePools") or (),
            )
            warnings = set_quotas_and_limits(made, body, actor)
        return Response(projects_json([_project(actor, made.pk)])[0] | warnings, status=201)


class ProjectDetail(Route):
    """A project by id."""

    access = {
        "GET": RoutePermission("view_project", "project"),
        "PUT": RoutePermission("manage_project", "project"),
        "DELETE": RoutePermission("manage_project", "project"),
    }

    @operation("get_project", "Read a project", OrgUnitSchema)
    def get(self, request: Request, unit_id: int) -> Response:
        """The project; 404 if it is absent or not yours."""
        return Response(projects_json([_project(actor_of(request), unit_id)])[0])

    def planned(self, request: Request, unit_id: int) -> PlannedWrite | None:
        """The quotas that the body sets."""
        if request.method != "PUT":
            return None
        entries = validated_body(ProjectChange, request.data)["resources"]
        return planned_resources(_project(actor_of(request), unit_id), entries, whole=True)

    @operation("update_project", "Change a project", OrgUnitSchema, request=ProjectChange)
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew; what else is absent stays."""
        actor = actor_of(request)
        project, body = _project(actor, unit_id), validated_body(ProjectChange, request.data)
        check_supported(body)
        with transaction.atomic():
            pools = body.get("defaultNodePools", project.default_node_pools) or ()
            said = body.get("description", project.description) or ""
            organisation_services.update_project(
                project=project, actor=actor, description=said, default_node_pools=pools
            )
            warnings = set_quotas_and_limits(project, body, actor)
        return Response(projects_json([_project(actor, unit_id)])[0] | warnings)

    @operation("delete_project", "Delete a project", status=204)
    def delete(self, request: Request, unit_id: int) -> Response:
        """Gone with its namespace; 409 while workloads of it live or are remembered."""
        actor = actor_of(request)
        organisation_services.delete_project(project=_project(actor, unit_id), actor=actor)
        return Response(status=204)


class ProjectResources(Route):
    """A project's quotas."""

    access = dict.fromkeys(("PUT", "PATCH"), RoutePermission("manage_project_quota", "project"))

    def planned(self, request: Request, unit_id: int) -> PlannedWrite | None:
        """The quotas that the body sets."""
        owner = _project(actor_of(request), unit_id)
        return planned_resources(owner, request.data or [], whole=request.method == "PUT")

    @operation("update_project_resources", "Set a project's quotas", ENTRIES, request=ENTRIES)
    def put(self, request: Request, unit_id: int) -> Response:
        """Every quota anew: pools that are not named have none."""
        return _set(request, unit_id, whole=True)

    @operation("patch_project_resources", "Change a project's quotas", ENTRIES, request=ENTRIES)
    def patch(self, request: Request, unit_id: int) -> Response:
        """Pool by pool: absent keys keep their value, null clears it."""
        return _set(request, unit_id, whole=False)


def _wanted(request: Request) -> QuerySet[Project]:
    """What the caller may see, as the query narrows it."""
    query = request.query_params
    actor = actor_of(request)
    rows = with_figures(visible_projects(actor), query).filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    search = query.get("search", "").replace("\x00", "")
    return (rows.filter(name__icontains=search) if search else rows).select_related("cluster", "department")


ProjectCount = count_route(
    "count_projects",
    "Count projects",
    "The number of projects the filter finds.",
    _wanted,
    parameters=[*FILTERS, NAME_SEARCH],
)


def _project(actor: Actor, key: int) -> Project:
    found = visible_projects(actor).select_related("cluster", "department").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _set(request: Request, unit_id: int, *, whole: bool) -> Response:
    actor = actor_of(request)
    found = set_resources(owner=_project(actor, unit_id), entries=request.data or [], actor=actor, whole=whole)
    return Response(warned_entries(projects_json([_project(actor, unit_id)])[0]["resources"], found))


def _parent(actor: Actor, body: Mapping[str, Any]) -> Department:
    """The department that is named, or the only one of the cluster."""
    cluster = cluster_of(body["clusterId"])
    rows = visible_departments(actor).filter(cluster=cluster).select_related("cluster")
    said = body.get("parentId")
    found = list(rows.filter(pk=said) if said and said.isascii() and said.isdecimal() else [] if said else rows[:2])
    if len(found) == 1:
        return found[0]
    text = _("Send the id of a department in %(cluster)s.") % {"cluster": cluster.name}
    allowed = [str(pk) for pk in rows.values_list("pk", flat=True)[:50]]
    raise ValidationFailed.at("/parentId", "unknown_department", text, allowed=allowed)
