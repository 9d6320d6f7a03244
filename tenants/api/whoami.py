"""Who asks: the subject behind the request, its roles and where they hold. Beyond Run:ai."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Model
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import Cluster
from portal.core.actors import Limits
from portal.core.bodies import ErrorSchema
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.models import Department, Project
from tenants.permissions import Grant, standing_of


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

    access = {"GET": Rule(at="self")}

    @extend_schema(
        operation_id="whoami",
        summary="Read who you are",
        description="Beyond Run:ai. The subject of the token, its roles, and what its access key leaves of them.",
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
                "roles": _held(standing_of(actor).grants),
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


def _narrowed(limits: Limits | None) -> dict[str, Any] | None:
    if limits is None or not (limits.read_only or limits.project_id or limits.department_id):
        return None
    return {
        "readOnly": limits.read_only,
        "projectId": None if limits.project_id is None else str(limits.project_id),
        "departmentId": None if limits.department_id is None else str(limits.department_id),
    }
