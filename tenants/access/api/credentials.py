"""Access keys over REST: create, read and revoke them, and exchange one for a token.

Tokens are given by `POST /api/v1/token` in every spelling that Run:ai's clients use, and by `POST /api/v2/token` as
OAuth 2.0 has it.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import id_number
from portal.kit.api.parsers import StrictFormParser
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, rendered, validated_body
from portal.kit.errors import BadRequest, NotFound, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of, client_ip, request_origin
from tenants.access.models import AccessKey
from tenants.access.selectors import visible_departments, visible_projects
from tenants.access.serializers.subjects import (
    GRANTS,
    AccessKeyCreate,
    AccessKeyCreated,
    AccessKeySchema,
    AdministeredKeySchema,
    OAuthError,
    OAuthRequest,
    OAuthResponse,
    SecretCreated,
    TokenError,
    TokenRequest,
    TokenResponse,
)
from tenants.access.serializers.subjects import AccessKeyList as KeysSchema
from tenants.access.serializers.subjects import AdministeredKeyList as KeysOfAll
from tenants.access.services import credentials
from tenants.access.services.credentials import Token as Given
from tenants.access.services.credentials import exchange, throttle_guess
from tenants.organisation.models import Department, Project

CLIENT_ID: Final = ("appid", "clientid", "client_id")
CLIENT_SECRET: Final = ("appsecret", "clientsecret", "client_secret")
LONGEST: Final = 512


class TokenExchange(Route):
    """Tokens for service accounts and access keys. A wrong secret is 400, as Run:ai answers: 401 would be repeated."""

    access = {"POST": RoutePermission(at="nowhere", reads=True)}

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="grant_token",
        summary="Get a bearer token",
        request=TokenRequest,
        responses={200: TokenResponse, 400: TokenError, 413: TokenError, 422: TokenError, 429: TokenError},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a secret. Wrong guesses are counted; right ones are not."""
        token = issue_token(request, *read_credentials(request.data))
        answer = {"accessToken": token.text, "idToken": "", "refreshToken": "", "expiresIn": token.seconds}
        return Response(answer, headers={"Cache-Control": "no-store"})


class OAuthTokenExchange(Route):
    """The client-credentials grant of OAuth2, for any library of it: a form in, its own errors out, as 400.

    But too large a body is 413 and too many tries are 429, with codes of ours.
    """

    access = {"POST": RoutePermission(at="nowhere", reads=True)}

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (StrictFormParser,)

    @extend_schema(
        operation_id="grant_token_v2",
        summary="Get a bearer token, as OAuth2",
        request={"application/x-www-form-urlencoded": OAuthRequest},
        responses={200: OAuthResponse, 400: OAuthError, 413: OAuthError, 429: OAuthError},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a secret."""
        try:
            token = issue_token(request, *_client_in(request.data))
        except RungError as error:
            return oauth_error(error)
        answer = {"access_token": token.text, "token_type": "Bearer", "expires_in": token.seconds}
        return Response(answer, headers={"Cache-Control": "no-store"})


def oauth_error(error: RungError) -> Response:
    """The refusal as RFC 6749 words it."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    body = {"error": error.code, "error_description": error.message}
    return Response(body, status=error.status, headers=headers)


def _client_in(form: object) -> tuple[str, str]:
    grant = form.get("grant_type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or not grant:
        raise BadRequest(_("Send grant_type, client_id and client_secret as a form."), code="invalid_request")
    if grant not in GRANTS:
        raise BadRequest(_("grant_type must be client_credentials."), code="unsupported_grant_type")
    return _only(form, ("client_id",)), _only(form, ("client_secret",))


def issue_token(request: Request, client_id: str, secret: str) -> Given:
    """A token for the right secret. Raises BadRequest for a wrong one, TooMany for one too many."""
    address = client_ip(request) or ""
    with throttle_guess("token", name=client_id, address=address):
        return exchange(client_id, secret, arrival=request_origin(request))


def read_credentials(body: object) -> tuple[str, str]:
    """Client id and secret of a token request. Raises BadRequest."""
    if not isinstance(body, Mapping):
        raise BadRequest(_("Send a JSON object."), code="invalid_request")
    given = {str(key).lower(): value for key, value in body.items()}
    if len(given) != len(body):
        raise BadRequest(_("Duplicate key in different spellings."), code="invalid_request")
    if given.get("granttype", given.get("grant_type")) not in GRANTS:
        text = _("grantType must be one of %(grants)s.") % {"grants": ", ".join(GRANTS)}
        raise BadRequest(text, code="unsupported_grant_type")
    return _only(given, CLIENT_ID), _only(given, CLIENT_SECRET)


def _only(given: Mapping[str, object], names: tuple[str, ...]) -> str:
    found = [given[name] for name in names if given.get(name) is not None]
    if len(found) == 1 and isinstance(found[0], str) and 0 < len(found[0]) <= LONGEST:
        return found[0]
    text = _("Send exactly one of %(names)s, with at most %(most)s characters.")
    raise BadRequest(text % {"names": ", ".join(names), "most": LONGEST}, code="invalid_request")


Unit = TypeVar("Unit", Project, Department)


class AccessKeys(Route):
    """The caller's own keys; new ones."""

    access = {"GET": RoutePermission(at="self"), "POST": RoutePermission(at="self")}
    shown_once = ("clientSecret",)
    listed_as = "accessKeys"

    @operation("get_access_keys", "List your access keys", KeysSchema)
    def get(self, request: Request) -> Response:
        """By name; programs have none."""
        rows = [rendered(AccessKeySchema, each) for each in credentials.keys_of(actor_of(request))]
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
        """The key without its secret; 404 for another user's."""
        return Response(rendered(AccessKeySchema, _own(actor_of(request), key_id)))

    @operation("delete_access_key", "Revoke an access key", status=204)
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Gone, and every token with it."""
        actor = actor_of(request)
        credentials.revoke_own_key(key=_own(actor, key_id), actor=actor)
        return Response(status=204)


class AccessKeySecret(Route):
    """The secret of one of the caller's own keys."""

    access = {"POST": RoutePermission(at="self")}
    shown_once = ("clientSecret",)

    @operation("regenerate_access_key_secret", "Rotate the secret of an access key", SecretCreated)
    def post(self, request: Request, key_id: UUID) -> Response:
        """The new secret, shown this once; the old one and its tokens stop working."""
        actor = actor_of(request)
        return Response({self.shown_once[0]: credentials.rotate_access_key(key=_own(actor, key_id), actor=actor)})


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
        requested = {
            path: query[name].replace("\x00", "") for name, path in _ACCESS_KEY_FIELDS.items() if query.get(name)
        }
        keys = credentials.all_keys(actor_of(request)).filter(**requested)
        rows = [rendered(AdministeredKeySchema, each) for each in keys]
        return Response({self.listed_as: rows} if self.listed_as else rows)


class AdministeredKeyDetail(Route):
    """A user's key."""

    access = {"DELETE": RoutePermission("manage_access", "installation")}

    @operation("delete_access_key_administration", "Revoke another user's access key", status=204)
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Gone, and every token with it."""
        actor = actor_of(request)
        credentials.revoke_any_key(key=_one(credentials.all_keys(actor), key_id), actor=actor)
        return Response(status=204)


_ACCESS_KEY_FIELDS: Final = {"clientId": "client_id", "createdBy": "created_by"}


def _created_json(actor: Actor, body: Mapping[str, Any]) -> tuple[AccessKey, str]:
    return credentials.create_access_key(
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
    return _one(credentials.keys_of(actor), key_id)


def _one(keys: QuerySet[AccessKey], key_id: UUID) -> AccessKey:
    found = keys.filter(pk=key_id).first()
    if found is None:
        raise NotFound
    return found
