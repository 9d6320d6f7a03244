"""REST of the caller: identity, roles and own access rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import Model
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster
from portal.kit.api.lists import LARGEST_OFFSET, LARGEST_PAGE, PAGE, number_in
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import PAGES, CountSchema, ErrorSchema, operation
from portal.kit.security.actors import Actor, ActorKind, CredentialLimits
from portal.kit.security.request_identity import actor_of
from tenants.access.api.access_rules import SEARCH
from tenants.access.models import AccessRole, Role, User
from tenants.access.selectors import Grant, access_for, matching_text, own_rules, with_api_columns
from tenants.access.serializers.access_rules import NestedMeRules, own_rule, superusers_rule
from tenants.organisation.models import Department, Project

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
        offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
        page = found[offset : offset + number_in(query, "limit", PAGE, 1, LARGEST_PAGE)]
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
    """All of them: nobody has many."""
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
