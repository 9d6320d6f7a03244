"""Departments and projects over REST, as Run:ai's clients read, create and change them."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster
from portal.kit.api.lists import (
    NAME_SEARCH,
    PAGES,
    Column,
    Columns,
    PageSlice,
    as_number,
    as_time,
    as_uuid,
    filters,
    flag_in,
    ordering,
    part_of,
    without_cursor,
)
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, ignored_parameters, operation, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import CLUSTER_ID, DEPARTMENT_ID, DEPARTMENT_NAME, visible_departments, visible_projects
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.organisation.selectors import SPANS, annotate_figures
from tenants.organisation.serializers import (
    DepartmentCreate,
    DepartmentsSchema,
    EntrySchema,
    OrgUnitChange,
    OrgUnitSchema,
    ProjectChange,
    ProjectCreate,
    ProjectsSchema,
    departments_json,
    projects_json,
)
from tenants.quotas.rules import gpu_milli
from tenants.quotas.serializers import warned_entries, warnings_json
from tenants.quotas.services.pool_quotas import planned_resources, set_resources
from tenants.quotas.services.runtime_rules import set_scheduling_rules

OrgUnitRow = TypeVar("OrgUnitRow", Project, Department)
NOT_MEASURED: Final = ("avgGpuUtilization", "avgGpuMemoryUtilization")


FIGURES: Final[Mapping[str, Column]] = {
    "totalGpuQuota": Column("figure_quota", gpu_milli),
    "gpuAllocated": Column("figure_held", gpu_milli),
    **{f"avgGpuAllocation{span}": Column(f"figure_{field}", gpu_milli) for span, field in SPANS.items()},
    **{f"{name}{span}": Column("figure_nothing", gpu_milli) for name in NOT_MEASURED for span in SPANS},
}
"""What projects and departments have in common. Nothing is known of utilization: it equals nothing."""
PHASE: Final = Column("figure_phase")
COMPUTED_PATHS: Final = frozenset(column.path for column in (*FIGURES.values(), PHASE))
"""Paths that are no columns of a table."""


def with_figures(rows: QuerySet[OrgUnitRow], query: Mapping[str, str]) -> QuerySet[OrgUnitRow]:
    """The rows with those figures that the filter or the order names."""
    requested = f"{query.get('filterBy', '')} {query.get('sortBy', '')}".lower().replace("_", "")
    named = {column.path for name, column in (*FIGURES.items(), ("phase", PHASE)) if name.lower() in requested}
    return annotate_figures(rows, named)


DEPARTMENT_COLUMNS: Final = {
    "name": Column("name"),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "createdAt": Column("created_at", as_time),
    **FIGURES,
}
ENTRIES: Final = EntrySchema(many=True)


def page(rows: QuerySet[OrgUnitRow], request: Request, columns: Columns) -> PageSlice[OrgUnitRow]:
    """One page, by name unless `sortBy` says otherwise. An order by figures has no cursor."""
    order = ordering(request.query_params, columns, "name")
    if order.lstrip("-") not in COMPUTED_PATHS:
        return part_of(rows, request, order=order)
    return without_cursor(rows.order_by(order, "-pk" if order.startswith("-") else "pk"), request)


def cluster_of(key: UUID) -> Cluster:
    """The cluster of a new department or project. Raises ValidationFailed."""
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise ValidationFailed.at("/clusterId", "unknown_cluster", _("Cluster not found."))
    return found


def set_quotas_and_limits(
    owner: Department | Project, body: Mapping[str, Any], actor: Actor
) -> dict[str, list[dict[str, Any]]]:
    """Quotas and time limits of a body; answers `warnings`."""
    found = set_resources(owner=owner, entries=body["resources"], actor=actor, whole=True)
    if "schedulingRules" in body:
        set_scheduling_rules(owner=owner, rules=body["schedulingRules"], actor=actor)
    return {"warnings": warnings_json(found)}


def check_supported(body: Mapping[str, Any], *, pools: bool = True) -> None:
    """What would be lost without a word."""
    if body.get("nodeTypes"):
        raise ValidationFailed.at("/nodeTypes", "unsupported", _("Rung selects nodes by node pool. Leave this empty."))
    if body.get("enforceRunaiScheduler") is False:
        text = _("Workloads always use the scheduler of their cluster. Only true is accepted.")
        raise ValidationFailed.at("/enforceRunaiScheduler", "unsupported", text)
    if not pools and body.get("defaultNodePools"):
        raise ValidationFailed.at("/defaultNodePools", "unsupported", _("Set default node pools on the projects."))


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
        part = page(_wanted_departments(request), request, DEPARTMENT_COLUMNS)
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
        """Replace every quota; other absent fields stay."""
        actor = actor_of(request)
        row, body = _department(actor, unit_id), validated_body(OrgUnitChange, request.data)
        check_supported(body, pools=False)
        with transaction.atomic():
            description = body.get("description", row.description) or ""
            organisation_services.update_department(department=row, actor=actor, description=description)
            warnings = set_quotas_and_limits(row, body, actor)
        return Response(departments_json([_department(actor, unit_id)])[0] | warnings)

    @operation("delete_department", "Delete a department", status=204)
    def delete(self, request: Request, unit_id: int) -> Response:
        """Gone; 409 while it has projects, or quota that only an approved plan may take away."""
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
        """Replace every quota: pools that are not named have none."""
        return _set_department_resources(request, unit_id, whole=True)

    @operation("patch_department_resources", "Change a department's quotas", ENTRIES, request=ENTRIES)
    def patch(self, request: Request, unit_id: int) -> Response:
        """Pool by pool: absent keys keep their value, null clears it."""
        return _set_department_resources(request, unit_id, whole=False)


def _wanted_departments(request: Request) -> QuerySet[Department]:
    """What the caller may see, as the query narrows it."""
    query = request.query_params
    rows = with_figures(visible_departments(actor_of(request)), query)
    return rows.filter(filters(query.get("filterBy", ""), DEPARTMENT_COLUMNS, actor_of(request))).select_related(
        "cluster"
    )


DepartmentCount = count_route(
    "count_departments", "Count departments", "The number of departments the filter finds.", _wanted_departments
)


def _department(actor: Actor, key: int) -> Department:
    found = visible_departments(actor).select_related("cluster").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _set_department_resources(request: Request, unit_id: int, *, whole: bool) -> Response:
    actor = actor_of(request)
    found = set_resources(owner=_department(actor, unit_id), entries=request.data or [], actor=actor, whole=whole)
    return Response(warned_entries(departments_json([_department(actor, unit_id)])[0]["resources"], found))


PROJECT_COLUMNS: Final[Columns] = {
    **DEPARTMENT_COLUMNS,
    "departmentId": Column("department_id", as_number, DEPARTMENT_ID),
    "parentId": Column("department_id", as_number, DEPARTMENT_ID),
    "parentName": Column("department__name", known=DEPARTMENT_NAME),
    "phase": PHASE,
}


STARTABLE: Final = OpenApiParameter(
    "startable", bool, description="Beyond Run:ai: with what each project could start now in each node pool."
)


class Projects(Route):
    """Projects that the caller may see; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_project", "department")}

    @operation("get_projects", "List projects", ProjectsSchema, parameters=[*PAGES, *FILTERS, NAME_SEARCH, STARTABLE])
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        startable = flag_in(request.query_params, "startable")
        part = page(_wanted_projects(request), request, PROJECT_COLUMNS)
        return Response({"projects": projects_json(part.rows, startable=startable), **part.ways_on})

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
        """Replace every quota; other absent fields stay."""
        actor = actor_of(request)
        project, body = _project(actor, unit_id), validated_body(ProjectChange, request.data)
        check_supported(body)
        with transaction.atomic():
            pools = body.get("defaultNodePools", project.default_node_pools) or ()
            description = body.get("description", project.description) or ""
            organisation_services.update_project(
                project=project, actor=actor, description=description, default_node_pools=pools
            )
            warnings = set_quotas_and_limits(project, body, actor)
        return Response(projects_json([_project(actor, unit_id)])[0] | warnings)

    @operation("delete_project", "Delete a project", status=204)
    def delete(self, request: Request, unit_id: int) -> Response:
        """Gone with its namespace; 409 while it has workloads, or quota that only an approved plan may take away."""
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
        """Replace every quota: pools that are not named have none."""
        return _set_project_resources(request, unit_id, whole=True)

    @operation("patch_project_resources", "Change a project's quotas", ENTRIES, request=ENTRIES)
    def patch(self, request: Request, unit_id: int) -> Response:
        """Pool by pool: absent keys keep their value, null clears it."""
        return _set_project_resources(request, unit_id, whole=False)


def _wanted_projects(request: Request) -> QuerySet[Project]:
    """What the caller may see, as the query narrows it."""
    query = request.query_params
    actor = actor_of(request)
    rows = with_figures(visible_projects(actor), query).filter(
        filters(query.get("filterBy", ""), PROJECT_COLUMNS, actor)
    )
    search = query.get("search", "").replace("\x00", "")
    return (rows.filter(name__icontains=search) if search else rows).select_related("cluster", "department")


ProjectCount = count_route(
    "count_projects",
    "Count projects",
    "The number of projects the filter finds.",
    _wanted_projects,
    parameters=[*FILTERS, NAME_SEARCH],
)


def _project(actor: Actor, key: int) -> Project:
    found = visible_projects(actor).select_related("cluster", "department").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _set_project_resources(request: Request, unit_id: int, *, whole: bool) -> Response:
    actor = actor_of(request)
    found = set_resources(owner=_project(actor, unit_id), entries=request.data or [], actor=actor, whole=whole)
    return Response(warned_entries(projects_json([_project(actor, unit_id)])[0]["resources"], found))


def _parent(actor: Actor, body: Mapping[str, Any]) -> Department:
    """The department that is named, or the only one of the cluster."""
    cluster = cluster_of(body["clusterId"])
    rows = visible_departments(actor).filter(cluster=cluster).select_related("cluster")
    parent = body.get("parentId")
    found = list(
        rows.filter(pk=parent) if parent and parent.isascii() and parent.isdecimal() else [] if parent else rows[:2]
    )
    if len(found) == 1:
        return found[0]
    text = _("Send the id of a department in %(cluster)s.") % {"cluster": cluster.name}
    allowed = [str(pk) for pk in rows.values_list("pk", flat=True)[:50]]
    raise ValidationFailed.at("/parentId", "unknown_department", text, allowed=allowed)
