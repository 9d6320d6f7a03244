"""GPU caps of priorities, time and idle limits per category, and minimum runtimes. Beyond Run:ai.

Each is named by its owner and, where an owner may have several, by its priority or category: PUT makes or replaces it.
"""

from typing import Any, Final, TypeVar

from django.db.models import Model, Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import PAGES, part_of
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission
from portal.kit.api.serializers import operation, rendered, validated_body
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_departments, visible_projects
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, RuntimeLimit, TimeLimit
from tenants.quotas.serializers import (
    EnforcementWrite,
    MinRuntimeSchema,
    MinRuntimesSchema,
    MinRuntimeWrite,
    PriorityCapSchema,
    PriorityCapsSchema,
    PriorityCapWrite,
    RuntimeLimitSchema,
    RuntimeLimitsSchema,
    RuntimeLimitWrite,
)
from tenants.quotas.services.quotas import planned_rule, set_deserved_enforcement, set_priority_cap
from tenants.quotas.services.runtime_rules import (
    NOTICE,
    owner_fields,
    remove_limit,
    remove_min_runtime,
    set_limit,
    set_min_runtime,
)

M = TypeVar("M", bound=Model)
Unit = type[Project] | type[Department]
LIMIT_KINDS: Final[dict[type[RuntimeLimit], str]] = {TimeLimit: "time limit", IdleLimit: "idle limit"}


class PriorityCaps(Route):
    """GPU caps of priorities in the projects that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation("get_priority_caps", "List GPU caps of priorities", PriorityCapsSchema, parameters=PAGES)
    def get(self, request: Request) -> Response:
        """One page, the oldest first."""
        rows = PriorityCap.objects.filter(project__in=visible_projects(actor_of(request))).select_related("project")
        part = part_of(rows, request, order="id")
        return Response({"priorityCaps": [_cap(each) for each in part.rows], **part.ways_on})


class PriorityCapDetail(Route):
    """The GPU cap of one priority in one project."""

    access = {
        "GET": RoutePermission("view_project", "project"),
        **dict.fromkeys(("PUT", "DELETE"), RoutePermission("manage_project_quota", "project")),
    }

    def planned(self, request: Request, unit_id: int, priority_name: str) -> PlannedWrite:
        """The cap that the body sets; without a body: its removal."""
        project = _owner(Project, actor_of(request), unit_id)
        body = validated_body(PriorityCapWrite, request.data) if request.method == "PUT" else {}
        limit = int(body["gpuLimit"] * 1000) if body else None
        return "priority_cap", planned_rule(project, body.get("reason", ""), priority=priority_name, gpu_limit=limit)

    @operation("get_priority_cap", "Read the GPU cap of a priority", PriorityCapSchema)
    def get(self, request: Request, unit_id: int, priority_name: str) -> Response:
        """The cap; 404 where the project has none for this priority."""
        return Response(_cap(_cap_of(_owner(Project, actor_of(request), unit_id), priority_name)))

    @operation("set_priority_cap", "Set the GPU cap of a priority", PriorityCapSchema, request=PriorityCapWrite)
    def put(self, request: Request, unit_id: int, priority_name: str) -> Response:
        """At most so many GPUs of this priority at a time."""
        actor = actor_of(request)
        project, body = _owner(Project, actor, unit_id), validated_body(PriorityCapWrite, request.data)
        limit = int(body["gpuLimit"] * 1000)
        set_priority_cap(
            project=project, priority=priority_name, gpu_limit=limit, actor=actor, reason=body.get("reason", "")
        )
        return Response(_cap(_cap_of(project, priority_name)))

    @operation("delete_priority_cap", "Remove the GPU cap of a priority", status=204)
    def delete(self, request: Request, unit_id: int, priority_name: str) -> Response:
        """Without a cap the project's limit alone holds."""
        actor = actor_of(request)
        cap = _cap_of(_owner(Project, actor, unit_id), priority_name)
        set_priority_cap(project=cap.project, priority=cap.priority, gpu_limit=None, actor=actor)
        return Response(status=204)


class DeservedEnforcement(Route):
    """Whether projects of a department keep within what it deserves."""

    access = {"PUT": RoutePermission("manage_department_quota", "department")}

    def planned(self, request: Request, unit_id: int) -> PlannedWrite:
        """What the body sets."""
        department = _owner(Department, actor_of(request), unit_id)
        body = validated_body(EnforcementWrite, request.data)
        enforced = body["enforceDeserved"]
        return "enforce_deserved", planned_rule(department, body.get("reason") or "", enforce_deserved=enforced)

    @operation(
        "set_deserved_enforcement",
        "Enforce a department's deserved quota, or stop it",
        status=204,
        request=EnforcementWrite,
    )
    def put(self, request: Request, unit_id: int) -> Response:
        """Quotas of its projects above it are then refused; 409 where they deserve more now."""
        actor = actor_of(request)
        department, body = _owner(Department, actor, unit_id), validated_body(EnforcementWrite, request.data)
        how = {"enforced": body["enforceDeserved"], "reason": body.get("reason") or ""}
        set_deserved_enforcement(department=department, actor=actor, **how)
        return Response(status=204)


def limits_route(kind: type[RuntimeLimit]) -> type[Route]:
    """The list of all limits of a kind, of projects and departments that the caller may see."""
    name = LIMIT_KINDS[kind]

    class Limits(Route):
        """Limits of one kind."""

        access = {"GET": RoutePermission()}

        @operation(f"get_{name.replace(' ', '_')}s", f"List {name}s", RuntimeLimitsSchema, parameters=PAGES)
        def get(self, request: Request) -> Response:
            """One page, the oldest first."""
            part = part_of(_visible(kind._default_manager.all(), actor_of(request)), request, order="id")
            return Response({"limits": [_limit(each) for each in part.rows], **part.ways_on})

    return Limits


def limit_route(unit: Unit, kind: type[RuntimeLimit]) -> type[Route]:
    """The limit of one kind and category of a project or a department."""
    name, owner_name = LIMIT_KINDS[kind], str(unit._meta.verbose_name)
    key = f"{owner_name}_{name.replace(' ', '_')}"

    class LimitDetail(Route):
        """The limit of one category."""

        access = _access(owner_name)

        def planned(self, request: Request, unit_id: int, category_name: str) -> PlannedWrite:
            """The limit that the body sets; without a body: its removal."""
            owner = _owner(unit, actor_of(request), unit_id)
            body = validated_body(RuntimeLimitWrite, request.data) if request.method == "PUT" else {"minutes": None}
            values = {"minutes": body["minutes"], "notice_minutes": body.get("noticeMinutes")}
            reason = body.get("reason") or ""
            return name.replace(" ", "_"), planned_rule(owner, reason, category=category_name, **values)

        @operation(f"get_{key}", f"Read a {owner_name}'s {name}", RuntimeLimitSchema)
        def get(self, request: Request, unit_id: int, category_name: str) -> Response:
            """What is set here; 404 where nothing is set for this category."""
            return Response(_limit(_limit_of(kind, _owner(unit, actor_of(request), unit_id), category_name)))

        @operation(f"set_{key}", f"Set a {owner_name}'s {name}", RuntimeLimitSchema, request=RuntimeLimitWrite)
        def put(self, request: Request, unit_id: int, category_name: str) -> Response:
            """Also for what runs now. 409 where a department allows less."""
            actor = actor_of(request)
            owner, body = _owner(unit, actor, unit_id), validated_body(RuntimeLimitWrite, request.data)
            made = set_limit(
                kind,
                owner=owner,
                category=category_name,
                minutes=body["minutes"],
                notice_minutes=body.get("noticeMinutes", min(NOTICE, body["minutes"] - 1)),
                actor=actor,
                reason=body.get("reason", ""),
            )
            return Response(_limit(made))

        @operation(f"delete_{key}", f"Remove a {owner_name}'s {name}", status=204)
        def delete(self, request: Request, unit_id: int, category_name: str) -> Response:
            """In a project that of its department, if any, holds from then on."""
            actor = actor_of(request)
            found = _limit_of(kind, _owner(unit, actor, unit_id), category_name)
            remove_limit(limit=found, actor=actor)
            return Response(status=204)

    return LimitDetail


class MinRuntimeList(Route):
    """Minimum runtimes of the projects and departments that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation("get_min_runtimes", "List minimum runtimes", MinRuntimesSchema, parameters=PAGES)
    def get(self, request: Request) -> Response:
        """One page, the oldest first."""
        part = part_of(_visible(MinRuntime.objects.all(), actor_of(request)), request, order="id")
        return Response({"minRuntimes": [_min_runtime(each) for each in part.rows], **part.ways_on})


def min_runtime_route(unit: Unit) -> type[Route]:
    """The minimum runtime of a project or a department."""
    owner_name = str(unit._meta.verbose_name)

    class MinRuntimeDetail(Route):
        """How long preemptible runs are left alone."""

        access = _access(owner_name)

        def planned(self, request: Request, unit_id: int) -> PlannedWrite:
            """The minimum runtime that the body sets; without a body: its removal."""
            owner = _owner(unit, actor_of(request), unit_id)
            body = validated_body(MinRuntimeWrite, request.data) if request.method == "PUT" else {"minutes": None}
            return "min_runtime", planned_rule(owner, body.get("reason") or "", minutes=body["minutes"])

        @operation(f"get_{owner_name}_min_runtime", f"Read a {owner_name}'s minimum runtime", MinRuntimeSchema)
        def get(self, request: Request, unit_id: int) -> Response:
            """What is set here; 404 where nothing is set."""
            return Response(_min_runtime(_min_runtime_of(_owner(unit, actor_of(request), unit_id))))

        @operation(
            f"set_{owner_name}_min_runtime",
            f"Set a {owner_name}'s minimum runtime",
            MinRuntimeSchema,
            request=MinRuntimeWrite,
        )
        def put(self, request: Request, unit_id: int) -> Response:
            """409 where a department guarantees less. See the cluster's guarantees for what its scheduler keeps."""
            actor = actor_of(request)
            owner, body = _owner(unit, actor, unit_id), validated_body(MinRuntimeWrite, request.data)
            made = set_min_runtime(owner=owner, minutes=body["minutes"], actor=actor, reason=body.get("reason", ""))
            return Response(_min_runtime(made))

        @operation(f"delete_{owner_name}_min_runtime", f"Remove a {owner_name}'s minimum runtime", status=204)
        def delete(self, request: Request, unit_id: int) -> Response:
            """In a project that of its department, if any, holds from then on."""
            actor = actor_of(request)
            remove_min_runtime(rule=_min_runtime_of(_owner(unit, actor, unit_id)), actor=actor)
            return Response(status=204)

    return MinRuntimeDetail


def _access(owner_name: str) -> dict[str, RoutePermission]:
    write = RoutePermission(f"manage_{owner_name}_quota", owner_name)  # type: ignore[arg-type]  # project or department
    read = RoutePermission(f"view_{owner_name}", owner_name)  # type: ignore[arg-type]  # the same
    return {"GET": read, "PUT": write, "DELETE": write}


def _owner(unit: Unit, actor: Actor, key: int) -> Any:
    rows: QuerySet[Any] = visible_projects(actor) if unit is Project else visible_departments(actor)
    found = rows.select_related("cluster").filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _visible(rows: QuerySet[Any], actor: Actor) -> QuerySet[Any]:
    mine = Q(project__in=visible_projects(actor)) | Q(department__in=visible_departments(actor))
    return rows.filter(mine).select_related("project", "department")


def _cap_of(project: Project, priority: str) -> PriorityCap:
    return _found(PriorityCap.objects.filter(project=project, priority=priority).select_related("project"))


def _limit_of(kind: type[RuntimeLimit], owner: Project | Department, category: str) -> RuntimeLimit:
    return _found(kind._default_manager.filter(category=category, **owner_fields(owner)))


def _min_runtime_of(owner: Project | Department) -> MinRuntime:
    return _found(MinRuntime.objects.filter(**owner_fields(owner)))


def _found(rows: QuerySet[M]) -> M:
    row = rows.first()
    if row is None:
        raise NotFound
    return row


def _cap(row: PriorityCap) -> dict[str, Any]:
    return rendered(
        PriorityCapSchema,
        row,
        projectId=str(row.project_id),
        projectName=row.project.name,
        gpuLimit=row.gpu_limit / 1000,
    )


def _limit(row: RuntimeLimit) -> dict[str, Any]:
    return rendered(RuntimeLimitSchema, row, **_owned(row))


def _min_runtime(row: MinRuntime) -> dict[str, Any]:
    return rendered(MinRuntimeSchema, row, **_owned(row))


def _owned(row: RuntimeLimit | MinRuntime) -> dict[str, str]:
    owner = row.owner
    return {"orgUnitType": str(owner._meta.verbose_name), "orgUnitId": str(owner.pk), "orgUnitName": owner.name}
