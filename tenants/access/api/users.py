"""People, as Run:ai's clients ask for them: for those who look at access and those who manage it.

One's own password is everybody's to change.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import LARGEST_OFFSET, LARGEST_PAGE, Column, as_time, filters, number_in, ordering
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, operation, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.models import User
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.serializers.subjects import (
    EmptySchema,
    PasswordChange,
    TemporaryPassword,
    UserCreate,
    UserCreated,
    UserSchema,
)
from tenants.access.services import users

ADMINS: Final = RoutePermission("manage_access", "installation")
LOOKING: Final = RoutePermission("view_access", "installation")
SEARCH: Final = OpenApiParameter("search", str, description="Part of the name.")


def as_flag(value: str) -> bool:
    """`true` or `false`."""
    if value.lower() not in {"true", "false"}:
        raise ValueError(value)
    return value.lower() == "true"


COLUMNS: Final = {
    "username": Column("username"),
    "createdBy": Column("created_by"),
    "lastLogin": Column("last_login", as_time),
    "creationTime": Column("date_joined", as_time),
    "isLocal": Column("is_local", as_flag),
}


class Users(Route):
    """Everybody who signs in; new people."""

    access = {"GET": LOOKING, "POST": ADMINS}
    shown_once = ("tempPassword",)

    @operation(
        "get_users",
        "List users",
        UserSchema(many=True),
        parameters=[
            OpenApiParameter("offset", int),
            OpenApiParameter("limit", int, description="1 to 500; default: 500."),
            *FILTERS,
            SEARCH,
        ],
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        query = request.query_params
        rows = _wanted(request).order_by(ordering(query, COLUMNS, "username"), "pk")
        offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
        limit = number_in(query, "limit", LARGEST_PAGE, 1, LARGEST_PAGE)
        return Response([user_json(each) for each in rows[offset : offset + limit]])

    @operation("create_user", "Create a user", UserCreated, 201, request=UserCreate)
    def post(self, request: Request) -> Response:
        """Without roles; the temporary password is shown this once."""
        actor = actor_of(request)
        require(actor, Permission.MANAGE_ACCESS)
        body = validated_body(UserCreate, request.data)
        _check_supported(body)
        user, password = users.create_user(email=body["email"], actor=actor)
        return Response({"id": str(user.pk), "username": user.username, "tempPassword": password}, status=201)


class UserDetail(Route):
    """A person by id."""

    access = {"GET": LOOKING, "DELETE": ADMINS}

    @operation("get_user", "Read a user", UserSchema)
    def get(self, request: Request, user_id: int) -> Response:
        """The person."""
        return Response(user_json(_user(actor_of(request), user_id, Permission.VIEW_ACCESS)))

    @operation("delete_user", "Delete a user", status=204)
    def delete(self, request: Request, user_id: int) -> Response:
        """Gone with roles and keys; 409 for the last platform admin."""
        actor = actor_of(request)
        users.delete_user(user=_user(actor, user_id), actor=actor)
        return Response(status=204)


class UserPassword(Route):
    """Somebody's password."""

    access = {"POST": ADMINS}
    shown_once = ("tempPassword",)

    @operation("reset_user_password", "Reset a user's password to a temporary one", TemporaryPassword)
    def post(self, request: Request, user_id: int) -> Response:
        """Shown this once; the old password and all sessions end."""
        actor = actor_of(request)
        return Response({"tempPassword": users.reset_password(user=_user(actor, user_id), actor=actor)})


class UserLogout(Route):
    """Somebody's sessions."""

    access = {"POST": ADMINS}

    @operation("logout_user", "Sign a user out")
    def post(self, request: Request, user_id: int) -> Response:
        """Out of every browser; access keys go on until they are revoked."""
        actor = actor_of(request)
        users.end_sessions(user=_user(actor, user_id), actor=actor)
        return Response()


class OwnPassword(Route):
    """The caller's own password."""

    access = {"POST": RoutePermission(at="self")}

    @operation("change_user_password", "Change your password", EmptySchema, also=(429,), request=PasswordChange)
    def post(self, request: Request) -> Response:
        """For people, by one of their keys; wrong guesses of the current one are counted. All sessions end."""
        body = validated_body(PasswordChange, request.data)
        users.change_own_password(current=body["currentPassword"], new=body["newPassword"], actor=actor_of(request))
        return Response({})


def user_json(user: User) -> dict[str, Any]:
    """The person. When they were last changed is not kept."""
    return {
        "id": str(user.pk),
        "username": user.username,
        "createdBy": user.created_by,
        "createdAt": rfc3339(user.date_joined),
        "updatedAt": None,
        "lastLogin": rfc3339(user.last_login),
        "isLocal": user.has_usable_password(),
        "groups": sorted(group.name for group in user.groups.all()),
    }


def _check_supported(body: Mapping[str, Any]) -> None:
    """What would be lost without a word."""
    if body.get("notify"):
        raise ValidationFailed.at(
            "/notify",
            "unsupported",
            _("Rung does not e-mail passwords. Give the temporary password to the user yourself."),
        )
    if body.get("resetPassword"):
        text = _("Rung cannot enforce a password change at the first sign-in. Remove this field.")
        raise ValidationFailed.at("/resetPassword", "unsupported", text)


def _wanted(request: Request) -> QuerySet[User]:
    require(actor_of(request), Permission.VIEW_ACCESS)
    query = request.query_params
    local = ~Q(("password__startswith", UNUSABLE_PASSWORD_PREFIX))
    rows = User.objects.annotate(is_local=ExpressionWrapper(local, BooleanField())).filter(
        filters(query.get("filterBy", ""), COLUMNS, actor_of(request))
    )
    return rows.filter(username__icontains=query.get("search", "").replace("\x00", "")).prefetch_related("groups")


UserCount = count_route(
    "count_users",
    "Count people",
    "The number of people the filter finds.",
    _wanted,
    access=LOOKING,
    parameters=[*FILTERS, SEARCH],
)


def _user(actor: Actor, user_id: int, verb: Permission = Permission.MANAGE_ACCESS) -> User:
    require(actor, verb)
    found = User.objects.filter(pk=user_id).first()
    if found is None:
        raise NotFound
    return found
