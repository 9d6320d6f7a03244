"""Users over REST, and the caller: identity, password, roles and own access rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db.models import BooleanField, ExpressionWrapper, Model, Q, QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster
from portal.kit.api.lists import (
    LARGEST_PAGE,
    NAME_SEARCH,
    Column,
    as_time,
    bounds_in,
    filters,
    ordering,
)
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, PAGES, CountSchema, ErrorSchema, operation, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.actors import Actor, ActorKind, CredentialLimits
from portal.kit.security.request_identity import actor_of
from tenants.access.api.access_rules import SEARCH
from tenants.access.models import AccessRole, Role, User
from tenants.access.rules import Permission
from tenants.access.selectors import Grant, access_for, matching_text, own_rules, require, with_api_columns
from tenants.access.serializers.access_rules import NestedMeRules, own_rule, superusers_rule
from tenants.access.serializers.subjects import (
    EmptySchema,
    PasswordChange,
    TemporaryPassword,
    UserCreate,
    UserCreated,
    UserSchema,
)
from tenants.access.services import subjects
from tenants.organisation.models import Department, Project

ADMINS: Final = RoutePermission("manage_access", "installation")
LOOKING: Final = RoutePermission("view_access", "installation")


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
            NAME_SEARCH,
        ],
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        query = request.query_params
        rows = _wanted(request).order_by(ordering(query, COLUMNS, "username"), "pk")
        return Response([user_json(each) for each in rows[bounds_in(query, size=LARGEST_PAGE)]])

    @operation("create_user", "Create a user", UserCreated, 201, request=UserCreate)
    def post(self, request: Request) -> Response:
        """Without roles; the temporary password is shown this once."""
        actor = actor_of(request)
        require(actor, Permission.MANAGE_ACCESS)
        body = validated_body(UserCreate, request.data)
        _check_supported(body)
        user, password = subjects.create_user(email=body["email"], actor=actor)
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
        subjects.delete_user(user=_user(actor, user_id), actor=actor)
        return Response(status=204)


class UserPassword(Route):
    """A user's password."""

    access = {"POST": ADMINS}
    shown_once = ("tempPassword",)

    @operation("reset_user_password", "Reset a user's password to a temporary one", TemporaryPassword)
    def post(self, request: Request, user_id: int) -> Response:
        """Shown this once; the old password and all sessions end."""
        actor = actor_of(request)
        return Response({"tempPassword": subjects.reset_password(user=_user(actor, user_id), actor=actor)})


class UserLogout(Route):
    """A user's sessions."""

    access = {"POST": ADMINS}

    @operation("logout_user", "Sign a user out")
    def post(self, request: Request, user_id: int) -> Response:
        """Out of every browser; access keys go on until they are revoked."""
        actor = actor_of(request)
        subjects.end_sessions(user=_user(actor, user_id), actor=actor)
        return Response()


class OwnPassword(Route):
    """The caller's own password."""

    access = {"POST": RoutePermission(at="self")}

    @operation("change_user_password", "Change your password", EmptySchema, also=(429,), request=PasswordChange)
    def post(self, request: Request) -> Response:
        """For people, by one of their keys; wrong guesses of the current one are counted. All sessions end."""
        body = validated_body(PasswordChange, request.data)
        subjects.change_own_password(current=body["currentPassword"], new=body["newPassword"], actor=actor_of(request))
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
    parameters=[*FILTERS, NAME_SEARCH],
)


def _user(actor: Actor, user_id: int, permission: Permission = Permission.MANAGE_ACCESS) -> User:
    require(actor, permission)
    found = User.objects.filter(pk=user_id).first()
    if found is None:
        raise NotFound
    return found


MOST: Final = 10_000


class OwnRules(Route):
    """One's own rules."""

    access = {"GET": RoutePermission(at="self")}

    @operation(
        "get_me_access_rules",
        "List your own access rules",
        NestedMeRules,
        description="`/api/v1/whoami` shows them restricted by the access key.",
        parameters=[*PAGES, SEARCH],
    )
    def get(self, request: Request) -> Response:
        """One page, oldest first."""
        query, found = request.query_params, _own(request)
        page = found[bounds_in(query)]
        rules = {"totalRecords": len(found), "displayRecords": len(page), "accessRules": page}
        return Response({"accessRules": rules})


class OwnRuleCount(Route):
    """How many."""

    access = {"GET": RoutePermission(at="self")}

    @operation("count_me_access_rules", "Count your own access rules", CountSchema, parameters=[SEARCH])
    def get(self, request: Request) -> Response:
        """Of those that the list has."""
        return Response({"count": len(_own(request))})


def _own(request: Request) -> list[dict[str, Any]]:
    """All of them: there are never many."""
    actor, text = actor_of(request), request.query_params.get("search", "").replace("\x00", "\ufffd")
    rows = with_api_columns(own_rules(actor)).order_by("pk")
    return [*_superuser(actor, text), *(own_rule(each) for each in rows.filter(matching_text(text))[:MOST])]


def _superuser(actor: Actor, text: str) -> list[dict[str, Any]]:
    if actor.kind is not ActorKind.USER or not User.objects.filter(pk=int(actor.id), is_superuser=True).exists():
        return []
    rule = superusers_rule(actor.name, AccessRole.objects.get(key=Role.PLATFORM_ADMIN))
    words = (rule["subjectId"], rule["roleName"], rule["scopeName"])
    return [rule] if any(text.lower() in word.lower() for word in words) else []


class HeldRoleSchema(serializers.Serializer[Any]):
    """A role where it holds; the id and name of the scope are empty for the whole installation."""

    role = serializers.CharField()
    scopeType = serializers.ChoiceField(choices=["system", "cluster", "department", "project"])
    scopeId = serializers.CharField(allow_blank=True)
    scopeName = serializers.CharField(allow_blank=True)


class NarrowedSchema(serializers.Serializer[Any]):
    """What the credential leaves of all that."""

    readOnly = serializers.BooleanField()
    projectId = serializers.CharField(allow_null=True)
    departmentId = serializers.CharField(allow_null=True)


class WhoSchema(serializers.Serializer[Any]):
    """The subject. `narrowed` is null unless its access key allows less than the subject itself."""

    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=["user", "service-account"])
    roles = HeldRoleSchema(many=True)
    narrowed = NarrowedSchema(allow_null=True)


class WhoAmI(Route):
    """Oneself."""

    access = {"GET": RoutePermission(at="self")}

    @extend_schema(
        operation_id="whoami",
        summary="Read the current subject",
        description="Beyond Run:ai. The subject of the token, its roles, and the limits of its access key.",
        responses={200: WhoSchema, 400: ErrorSchema, 401: ErrorSchema},
    )
    def get(self, request: Request) -> Response:
        """Name, kind, roles."""
        actor = actor_of(request)
        return Response(
            {
                "id": actor.id,
                "name": actor.name,
                "kind": str(actor.kind),
                "roles": _held(access_for(actor).grants),
                "narrowed": _narrowed(actor.limits),
            }
        )


def _held(grants: Sequence[Grant]) -> list[dict[str, str]]:
    projects = _names(Project, {each.project_id for each in grants})
    departments = _names(Department, {each.department_id for each in grants})
    clusters = _names(Cluster, {each.cluster_id for each in grants})
    named = {"project": projects, "department": departments, "cluster": clusters}
    return [_role(each, named) for each in grants]


def _names(model: type[Model], ids: Iterable[int | UUID | None]) -> Mapping[object, str]:
    return dict(model._default_manager.filter(pk__in=[each for each in ids if each]).values_list("pk", "name"))


def _role(grant: Grant, named: Mapping[str, Mapping[object, str]]) -> dict[str, str]:
    """The smallest scope that it names."""
    places = zip(named.items(), grant.place, strict=True)
    held = next(((kind, str(pk), names.get(pk, "")) for (kind, names), pk in places if pk), ("system", "", ""))
    return {"role": grant.role, **dict(zip(("scopeType", "scopeId", "scopeName"), held, strict=True))}


def _narrowed(limits: CredentialLimits | None) -> dict[str, Any] | None:
    if limits is None or not (limits.read_only or limits.project_id or limits.department_id):
        return None
    return {
        "readOnly": limits.read_only,
        "projectId": None if limits.project_id is None else str(limits.project_id),
        "departmentId": None if limits.department_id is None else str(limits.department_id),
    }
