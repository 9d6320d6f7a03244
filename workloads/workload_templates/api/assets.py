"""Assets: an image with its command and settings (environment), or a size (compute), under a name for a scope."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.urls.converters import StringConverter
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import flag_in
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import (
    AcceptedSchema,
    ignored_parameters,
    operation,
    validated_body,
)
from portal.kit.errors import BadRequest
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from workloads.policies.api import owner_of_meta, word_in
from workloads.policies.rules.merge import Scope
from workloads.policies.selectors import below, owner_at, reaching
from workloads.policies.serializers import SCOPES
from workloads.workload_templates.models import Asset, AssetKind
from workloads.workload_templates.selectors import asset_or_404, users_of, visible_assets
from workloads.workload_templates.serializers import (
    AssetCreate,
    AssetReplacement,
    AssetSchema,
    AssetsSchema,
    asset_json,
)
from workloads.workload_templates.services import AssetDraft, change_asset, create_asset, delete_asset

READ, KEEP = RoutePermission("view_project", "project"), RoutePermission("manage_workload", "project")
KEYS: Final = (Scope.PROJECT, Scope.DEPARTMENT, Scope.CLUSTER)
MEANT_FOR: Final[Mapping[str, str]] = {
    "isWorkspace": "workspace",
    "isTraining": "training",
    "isDistributed": "distributed",
    "isInference": "inference",
}
COMPLIANCE: Final = ignored_parameters("complyToProject", "complyToWorkloadType", "complyToReplicaType", "statusInfo")
USAGE: Final = OpenApiParameter("usageInfo", bool, description="Adds `usedBy`: the templates that use it.")


class AssetKindWord(StringConverter):
    """The kinds of assets that there are."""

    regex = "|".join(AssetKind.values)


class Assets(Route):
    """Assets of one kind; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("submit", "project")}

    @operation(
        "list_assets",
        "List assets of one kind",
        AssetsSchema,
        description="With the id of a project, department or cluster: the assets that apply there.",
        parameters=[
            OpenApiParameter("name", str, description="Exact name."),
            OpenApiParameter("scope", str, enum=SCOPES, description="Only this kind of scope."),
            *(OpenApiParameter(f"{scope}Id", str) for scope in KEYS),
            OpenApiParameter("includeDescendants", bool, description="Include scopes below the one with the id."),
            *(OpenApiParameter(name, bool, description=f"Meant for: {word}.") for name, word in MEANT_FOR.items()),
            USAGE,
            *COMPLIANCE,
        ],
    )
    def get(self, request: Request, kind: str) -> Response:
        """By name."""
        actor, query = actor_of(request), request.query_params
        rows = _named(actor, visible_assets(actor).filter(kind=kind), query)
        if name := query.get("name", ""):
            rows = rows.filter(name=name.replace("\x00", ""))
        return Response({"entries": _asset_list(actor, _meant(rows, query), query)})

    @operation(
        "create_asset",
        "Create an asset",
        AssetSchema,
        202,
        description="Allowed for everyone who may create templates in the scope. Values that look like secrets "
        "are rejected.",
        request=AssetCreate,
    )
    def post(self, request: Request, kind: str) -> Response:
        """Kept; refused at its fields."""
        actor, body = actor_of(request), validated_body(AssetCreate, request.data)
        meta = body["meta"]
        owner = owner_of_meta(actor, meta)
        supports = {
            name: support for name, support in (meta.get("workloadSupportedTypes") or {}).items() if support is not None
        }
        made = create_asset(kind=kind, owner=owner, draft=_draft(body, supports), actor=actor)
        return Response(asset_json(made), status=202)


class AssetDetail(Route):
    """An asset by id."""

    access = {"GET": READ, "PUT": KEEP, "DELETE": KEEP}

    @operation("get_asset", "Read an asset", AssetSchema, parameters=[USAGE, *COMPLIANCE])
    def get(self, request: Request, kind: str, asset_id: UUID) -> Response:
        """404 if it is absent, foreign or of another kind."""
        actor = actor_of(request)
        (shown,) = _asset_list(actor, [asset_or_404(actor, asset_id, kind=kind)], request.query_params)
        return Response(shown)

    @operation(
        "update_asset",
        "Replace an asset",
        AssetSchema,
        202,
        description="Templates that use it change with it; existing workloads do not.",
        request=AssetReplacement,
    )
    def put(self, request: Request, kind: str, asset_id: UUID) -> Response:
        """What is absent is said no more; its scope stays."""
        actor = actor_of(request)
        row = asset_or_404(actor, asset_id, kind=kind)
        draft = _draft(validated_body(AssetReplacement, request.data), row.supports)
        return Response(asset_json(change_asset(asset=row, draft=draft, actor=actor)), status=202)

    @operation("delete_asset", "Delete an asset", AcceptedSchema, 202)
    def delete(self, request: Request, kind: str, asset_id: UUID) -> Response:
        """Gone; 409 while templates refer to it."""
        actor = actor_of(request)
        row = asset_or_404(actor, asset_id, kind=kind)
        delete_asset(asset=row, actor=actor)
        return Response({"code": 202, "message": f"Deleted {row.name}."}, status=202)


def _draft(body: Mapping[str, Any], supports: Mapping[str, Any]) -> AssetDraft:
    meta = body["meta"]
    return AssetDraft(meta["name"], meta.get("description") or "", body.get("spec") or {}, supports)


def _asset_list(actor: Actor, rows: Sequence[Asset], query: Mapping[str, str]) -> list[dict[str, Any]]:
    """The assets, with the templates that refer to them where the query asks for those."""
    if not flag_in(query, "usageInfo"):
        return [asset_json(row) for row in rows]
    users = users_of(actor, rows)
    return [asset_json(row, users[row.pk]) for row in rows]


def _named(actor: Actor, rows: QuerySet[Asset], query: Mapping[str, str]) -> QuerySet[Asset]:
    """Those of the sort of scope, or those that hold at the place, that the query names; none for a foreign place."""
    scope, within = word_in(query, "scope", SCOPES), flag_in(query, "includeDescendants")
    if scope and within:
        raise BadRequest.at("/includeDescendants", "exactly_one", "Send either scope or includeDescendants.")
    if scope:
        rows = rows.filter(scope=scope)
    level = next((each for each in KEYS if query.get(f"{each}Id")), None)
    if level is None:
        return rows
    try:
        owner = owner_at(actor, level, query[f"{level}Id"])
    except LookupError:
        return rows.none()
    if scope == level:
        return rows.filter(**{str(level): owner})
    return rows.filter(reaching(owner) | below(owner) if within else reaching(owner))


def _meant(rows: Iterable[Asset], query: Mapping[str, str]) -> list[Asset]:
    """Those for the kinds of workloads that the query asks for; an asset that names none is for all."""
    words = [word for name, word in MEANT_FOR.items() if flag_in(query, name)]
    return [row for row in rows if not row.supports or all(row.supports.get(word) for word in words)]
