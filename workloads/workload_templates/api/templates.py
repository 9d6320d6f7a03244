"""Workload templates: submissions of one kind that are filled in beforehand, for everybody in a scope."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.urls.converters import StringConverter
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import (
    LARGEST_OFFSET,
    PAGES,
    Column,
    as_number,
    as_time,
    as_uuid,
    filters,
    number_in,
    ordering,
    part_of,
)
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import (
    FILTERS,
    ignored_parameters,
    operation,
    validated_body,
)
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import BadRequest, Conflict, ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.access.api.authentication import reads_of
from tenants.access.selectors import CLUSTER_ID, DEPARTMENT_ID, PROJECT_ID
from tenants.organisation.models import Project
from workloads.intake.rules.native.objects import TYPES
from workloads.policies.api import missing, owner_in_body, word_in
from workloads.policies.rules.documents import patched
from workloads.policies.rules.merge import Scope
from workloads.policies.selectors import columns_of, owner_at
from workloads.policies.serializers import SCOPES, issue_json
from workloads.workload_templates.models import TemplateKind, WorkloadTemplate
from workloads.workload_templates.selectors import template_or_404, visible_templates
from workloads.workload_templates.serializers import (
    TemplateChange,
    TemplateCreate,
    TemplateReplacement,
    TemplateSchema,
    TemplatesSchema,
    draft_of,
    template_body,
    template_json,
)
from workloads.workload_templates.services import change_template, create_template, delete_template, issues_in

READ, KEEP = RoutePermission("view_project", "project"), RoutePermission("manage_workload", "project")


def _kind(written: str) -> str:
    """The kind of a type's name as Run:ai writes it."""
    for kind in TemplateKind.values:
        if TYPES[kind].lower() == written.lower():
            return kind
    raise ValueError(written)


COLUMNS: Final[Mapping[str, Column]] = {
    "name": Column("name"),
    "description": Column("description"),
    "workloadType": Column("kind", _kind),
    "scopeType": Column("scope"),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "departmentId": Column("department_id", as_number, DEPARTMENT_ID),
    "projectId": Column("project_id", as_number, PROJECT_ID),
    "createdBy": Column("created_by"),
    "createdAt": Column("created_at", as_time),
    "updatedBy": Column("updated_by"),
    "updatedAt": Column("updated_at", as_time),
}
WANTED: Final = [OpenApiParameter("search", str, description="Part of a name."), *FILTERS]
COMPLY: Final = OpenApiParameter(
    "complyToProject",
    int,
    description="Adds `complianceIssues`: why a submission to this project would be rejected.",
)
REFINED: Final = ignored_parameters("complyToWorkloadType", "complyToReplicaType")


class TemplateKindWord(StringConverter):
    """The kinds of templates."""

    regex = "|".join(TemplateKind.values)


class ChangeableKindWord(StringConverter):
    """Those that Run:ai's clients change; a template of an inference is deleted and created again."""

    regex = "|".join(kind for kind in TemplateKind.values if kind != TemplateKind.INFERENCES)


class Templates(Route):
    """Templates of every kind that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation("list_templates1", "List templates", TemplatesSchema, parameters=[*PAGES, *WANTED, COMPLY, *REFINED])
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(request, _wanted(request))


class TemplateNames(Route):
    """Is a name free in a scope?"""

    access = {"GET": RoutePermission()}

    @operation(
        "template_name_availability",
        "Check whether a template name is available",
        status=204,
        also=(409, 422),
        description="204: the name is free in the scope. 409: a template of some kind has it.",
        parameters=[
            OpenApiParameter("templateName", str, required=True),
            OpenApiParameter("scopeType", str, required=True, enum=SCOPES),
            OpenApiParameter("scopeId", str),
        ],
    )
    def get(self, request: Request) -> Response:
        """Free or taken."""
        query = request.query_params
        name = query.get("templateName", "").strip() or missing("/templateName")
        scope = Scope(word_in(query, "scopeType", SCOPES) or missing("/scopeType"))
        owner = owner_in_body(actor_of(request), scope, query.get("scopeId") or None, at="/scopeId")
        if WorkloadTemplate.objects.filter(name=name.replace("\x00", ""), **columns_of(owner)).exists():
            raise Conflict.at("/templateName", "name_taken", "A template in this scope already has this name.")
        return Response(status=204)


class AnyTemplate(Route):
    """A template by id, of whatever kind."""

    access = {"GET": READ}

    @operation("get_template_by_id1", "Read a template", TemplateSchema)
    def get(self, request: Request, template_id: UUID) -> Response:
        """The template; 404 if it is absent or foreign."""
        return Response(template_json(template_or_404(actor_of(request), template_id)))


class TemplatesOfKind(Route):
    """Templates of one kind; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("submit", "project")}

    @operation(
        "list_templates_of_kind",
        "List templates of one kind",
        TemplatesSchema,
        parameters=[*PAGES, *WANTED, COMPLY, *REFINED],
    )
    def get(self, request: Request, kind: str) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(request, _wanted(request).filter(kind=kind))

    @operation(
        "create_template",
        "Create a template",
        TemplateSchema,
        202,
        description="Needs permission to submit in the project or to manage the department; platform admins for "
        "clusters and the whole installation. Values that look like secrets are rejected.",
        request=TemplateCreate,
    )
    def post(self, request: Request, kind: str) -> Response:
        """Kept; refused at its fields."""
        actor, body = actor_of(request), validated_body(TemplateCreate, request.data)
        meta = body["meta"]
        owner = owner_in_body(actor, Scope(meta["scopeType"]), meta.get("scopeId") or None, at="/meta/scopeId")
        made = create_template(kind=kind, owner=owner, draft=draft_of(body), actor=actor)
        return Response(template_json(made), status=202)


class TemplateRoute(Route):
    """What every template of a kind has: it is read and deleted."""

    @staticmethod
    def read(request: Request, kind: str, template_id: UUID) -> Response:
        """404 if it is absent, foreign or of another kind."""
        return Response(template_json(template_or_404(actor_of(request), template_id, kind=kind)))

    @staticmethod
    def drop(request: Request, kind: str, template_id: UUID) -> Response:
        actor = actor_of(request)
        delete_template(template=template_or_404(actor, template_id, kind=kind), actor=actor)
        return Response(status=204)


class TemplateDetail(TemplateRoute):
    """A template of a workspace, training or distributed training."""

    access = {"GET": READ, "PUT": KEEP, "PATCH": KEEP, "DELETE": KEEP}

    @operation("get_template", "Read a template of one kind", TemplateSchema)
    def get(self, request: Request, kind: str, template_id: UUID) -> Response:
        """404 if it is absent, foreign or of another kind."""
        return self.read(request, kind, template_id)

    @operation("update_template", "Replace a template", TemplateSchema, request=TemplateReplacement)
    def put(self, request: Request, kind: str, template_id: UUID) -> Response:
        """What is absent is said no more; kind and scope stay."""
        actor = actor_of(request)
        row = template_or_404(actor, template_id, kind=kind)
        draft = draft_of(validated_body(TemplateReplacement, request.data))
        return Response(template_json(change_template(template=row, draft=draft, actor=actor)))

    @operation(
        "patch_template",
        "Change a template",
        TemplateSchema,
        description="Absent fields stay, null removes; `fieldsToClear` is applied first.",
        request=TemplateChange,
    )
    def patch(self, request: Request, kind: str, template_id: UUID) -> Response:
        """As it is with the change in it."""
        actor = actor_of(request)
        row = template_or_404(actor, template_id, kind=kind)
        body = validated_body(TemplateChange, request.data)
        document = template_body(row)
        for index, path in enumerate(body.pop("fieldsToClear", None) or ()):
            _clear(document, path, f"/fieldsToClear/{index}")
        draft = draft_of(patched(document, {name: part for name, part in body.items() if name != "meta" or part}))
        return Response(template_json(change_template(template=row, draft=draft, actor=actor)))

    @operation("delete_template", "Delete a template", status=204)
    def delete(self, request: Request, kind: str, template_id: UUID) -> Response:
        """Gone; what was submitted with it stays."""
        return self.drop(request, kind, template_id)


class InferenceTemplateDetail(TemplateRoute):
    """A template of an inference: as in Run:ai it is not changed."""

    access = {"GET": READ, "DELETE": KEEP}

    @operation("get_inference_template", "Read a template of an inference", TemplateSchema)
    def get(self, request: Request, inference_template_id: UUID) -> Response:
        """404 if it is absent, foreign or of another kind."""
        return self.read(request, TemplateKind.INFERENCES, inference_template_id)

    @operation("delete_inference_template", "Delete a template of an inference", status=204)
    def delete(self, request: Request, inference_template_id: UUID) -> Response:
        """Gone; what was submitted with it stays."""
        return self.drop(request, TemplateKind.INFERENCES, inference_template_id)


def _wanted(request: Request) -> QuerySet[WorkloadTemplate]:
    query = request.query_params
    rows = visible_templates(actor_of(request)).filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows


TemplateCount = count_route(
    "count_templates", "Count templates", "The number of templates the filter finds.", _wanted, parameters=WANTED
)


def _page(request: Request, rows: QuerySet[WorkloadTemplate]) -> Response:
    query = request.query_params
    project = _comply_to(request)
    with cached_reads(reads_of(request)):
        part = part_of(rows, request, order=ordering(query, COLUMNS, "name"))
        entries = [template_json(row) | _issues(row, project) for row in part.rows]
    offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
    pagination = {"limit": len(entries), "offset": offset, "nextOffset": part.next, "nextAfter": part.after}
    return Response({"entries": entries, "pagination": pagination})


def _comply_to(request: Request) -> Project | None:
    key = request.query_params.get("complyToProject", "")
    if not key:
        return None
    try:
        found = owner_at(actor_of(request), Scope.PROJECT, key)
    except LookupError:
        found = None
    if not isinstance(found, Project):
        raise BadRequest.at("/complyToProject", "unknown_id", "complyToProject is not one of your projects.")
    return found


def _issues(row: WorkloadTemplate, project: Project | None) -> dict[str, Any]:
    return {} if project is None else {"complianceIssues": list(map(issue_json, issues_in(row, project)))}


def _clear(document: dict[str, Any], path: str, at: str) -> None:
    """Take away what a path such as `spec.compute.cpuCoreLimit` names; what is not there is away already."""
    *trail, last = path.split(".")
    if (trail or [last])[0] not in {
        "spec",
        "assets",
        "master",
        "masterSpecSameAsWorker",
        "meta",
    } or path == "meta.name":
        raise ValidationFailed.at(at, "unknown_field", f"{path[:80]!r} is not a template field that can be cleared.")
    node: Any = document
    for step in trail:
        node = node.get(step) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(last, None)
