"""Access keys: people's own, and everybody's for platform admins, as Run:ai's clients ask for them."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import id_number
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, rendered, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.models import AccessKey
from tenants.access.selectors import visible_departments, visible_projects
from tenants.access.serializers.subjects import (
    AccessKeyCreate,
    AccessKeyCreated,
    AccessKeySchema,
    AdministeredKeySchema,
    SecretCreated,
)
from tenants.access.serializers.subjects import AccessKeyList as KeysSchema
from tenants.access.serializers.subjects import AdministeredKeyList as KeysOfAll
from tenants.access.services import access_keys
from tenants.organisation.models import Department, Project

Unit = TypeVar("Unit", Project, Department)


class AccessKeys(Route):
    """The caller's own keys; new ones."""

    access = {"GET": RoutePermission(at="self"), "POST": RoutePermission(at="self")}
    shown_once = ("clientSecret",)
    listed_as = "accessKeys"

    @operation("get_access_keys", "List your access keys", KeysSchema)
    def get(self, request: Request) -> Response:
        """By name; programs have none."""
        rows = [rendered(AccessKeySchema, each) for each in access_keys.keys_of(actor_of(request))]
        return Response({self.listed_as: rows} if self.listed_as else rows)

    @operation("create_access_key", "Create an access key", AccessKeyCreated, 201, request=AccessKeyCreate)
    def post(self, request: Request) -> Response:
        """The key with its secret, shown this once."""
        key, secret = _created_json(actor_of(request), validated_body(AccessKeyCreate, request.data))
        return Response({**rendered(AccessKeySchema, key), self.shown_once[0]: secret}, status=201)


class AccessKeyDetail(Route):
    """One of the caller's own keys."""

    access = {"GET": RoutePermission(at="self"), "DELETE": RoutePermission(at="self")}

    @operation("get_access_key", "Read an access key", AccessKeySchema)
    def get(self, request: Request, key_id: UUID) -> Response:
        """The key without its secret; somebody else's is absent."""
        return Response(rendered(AccessKeySchema, _own(actor_of(request), key_id)))

    @operation("delete_access_key", "Revoke an access key", status=204)
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Gone, and every token with it."""
        actor = actor_of(request)
        access_keys.revoke(key=_own(actor, key_id), actor=actor)
        return Response(status=204)


class AccessKeySecret(Route):
    """The secret of one of the caller's own keys."""

    access = {"POST": RoutePermission(at="self")}
    shown_once = ("clientSecret",)

    @operation("regenerate_access_key_secret", "Rotate the secret of an access key", SecretCreated)
    def post(self, request: Request, key_id: UUID) -> Response:
        """The new secret, shown this once; the old one and its tokens stop working."""
        actor = actor_of(request)
        return Response({self.shown_once[0]: access_keys.rotate(key=_own(actor, key_id), actor=actor)})


class AdministeredKeys(Route):
    """Everybody's keys."""

    access = {"GET": RoutePermission("view_access", "installation")}
    listed_as = "accessKeys"

    @operation(
        "get_access_keys_administration",
        "List all access keys",
        KeysOfAll,
        parameters=[OpenApiParameter("clientId", str), OpenApiParameter("createdBy", str)],
    )
    def get(self, request: Request) -> Response:
        """By name, perhaps of one client id or of one person."""
        query = request.query_params
        asked = {path: query[name].replace("\x00", "") for name, path in _ACCESS_KEY_FIELDS.items() if query.get(name)}
        keys = access_keys.all_keys(actor_of(request)).filter(**asked)
        rows = [rendered(AdministeredKeySchema, each) for each in keys]
        return Response({self.listed_as: rows} if self.listed_as else rows)


class AdministeredKeyDetail(Route):
    """Somebody's key."""

    access = {"DELETE": RoutePermission("manage_access", "installation")}

    @operation("delete_access_key_administration", "Revoke another user's access key", status=204)
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Gone, and every token with it."""
        actor = actor_of(request)
        access_keys.revoke_any(key=_one(access_keys.all_keys(actor), key_id), actor=actor)
        return Response(status=204)


_ACCESS_KEY_FIELDS: Final = {"clientId": "client_id", "createdBy": "created_by"}


def _created_json(actor: Actor, body: Mapping[str, Any]) -> tuple[AccessKey, str]:
    return access_keys.create(
        name=body["name"],
        actor=actor,
        expires_at=body.get("expiresAt"),
        read_only=body["readOnly"],
        project=_seen(visible_projects(actor), "/projectId", body.get("projectId")),
        department=_seen(visible_departments(actor), "/departmentId", body.get("departmentId")),
    )


def _seen(rows: QuerySet[Unit], pointer: str, key: str | None) -> Unit | None:
    if not key:
        return None
    number = id_number(key)
    found = rows.filter(pk=number).first() if number is not None else None
    if found is None:
        raise ValidationFailed.at(pointer, "unknown_id", _("Project or department not found."))
    return found


def _own(actor: Actor, key_id: UUID) -> AccessKey:
    return _one(access_keys.keys_of(actor), key_id)


def _one(keys: QuerySet[AccessKey], key_id: UUID) -> AccessKey:
    found = keys.filter(pk=key_id).first()
    if found is None:
        raise NotFound
    return found
