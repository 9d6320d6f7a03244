"""Roles: read by Run:ai's client, written by its second version."""

from typing import Any, Final

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent, Refused
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.api.access_schemas import NewRole, RoleV1Schema, RoleV2Schema
from tenants.api.access_shapes import role_v1, role_v2
from tenants.models import AccessRole
from tenants.services import roles

WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
LIST_V1: Final = RoleV1Schema(many=True)
LIST_V2: Final = RoleV2Schema(many=True)


class RolesV1(Route):
    """Every role, for everybody: whoever gives roles needs to know them."""

    access = {"GET": Rule()}

    @extend_schema(operation_id="get_roles_v1", summary="List roles", responses={200: LIST_V1, **REFUSALS})
    def get(self, request: Request) -> Response:
        """Those that come with Rung, then custom ones."""
        return Response([role_v1(each) for each in AccessRole.objects.all()])


class OneRoleV1(Route):
    """A role by id."""

    access = {"GET": Rule()}

    @extend_schema(operation_id="get_role_v1", summary="Read a role", responses={200: RoleV1Schema, **REFUSALS})
    def get(self, request: Request, role_id: int) -> Response:
        """The role with its permissions."""
        return Response(role_v1(_role(role_id)))


class RolesV2(Route):
    """Every role; new ones."""

    access = {"GET": Rule(), "POST": Rule("manage_access", "installation")}

    @extend_schema(
        operation_id="get_roles_v2",
        summary="List roles with their permission sets",
        description="Run:ai's since 2.24; its Python client has no method for it.",
        responses={200: LIST_V2, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Those that come with Rung, then custom ones."""
        return Response([role_v2(each) for each in AccessRole.objects.all()])

    @extend_schema(
        operation_id="create_role_v2",
        summary="Make a custom role",
        description="Run:ai's since 2.24; its Python client has no method for it. Nobody makes a role of more than "
        "they hold everywhere.",
        request=NewRole,
        responses={201: RoleV2Schema, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """A role made of permission sets."""
        made = roles.create_role(**_asked(request), actor=actor_of(request))
        return Response(role_v2(made), status=201)


class OneRoleV2(Route):
    """A role by id."""

    access = {"GET": Rule(), **dict.fromkeys(("PUT", "DELETE"), Rule("manage_access", "installation"))}

    @extend_schema(
        operation_id="get_role_v2",
        summary="Read a role with its permission sets",
        responses={200: RoleV2Schema, **REFUSALS},
    )
    def get(self, request: Request, role_id: int) -> Response:
        """The role with its permission sets and what they come to."""
        return Response(role_v2(_role(role_id)))

    @extend_schema(
        operation_id="update_role_v2",
        summary="Change a custom role",
        description="The whole role anew. Whoever has it has the new rights from their next request on.",
        request=NewRole,
        responses={200: RoleV2Schema, **WRITES},
    )
    def put(self, request: Request, role_id: int) -> Response:
        """Another name, other sets, enabled or not."""
        role = _role(role_id)
        return Response(role_v2(roles.update_role(role=role, **_asked(request), actor=actor_of(request))))

    @extend_schema(operation_id="delete_role_v2", summary="Delete a custom role", responses={204: None, **WRITES})
    def delete(self, request: Request, role_id: int) -> Response:
        """Gone; 409 while an access rule gives it."""
        roles.delete_role(role=_role(role_id), actor=actor_of(request))
        return Response(status=204)


def _role(role_id: int) -> AccessRole:
    found = AccessRole.objects.filter(pk=role_id).first()
    if found is None:
        raise Absent
    return found


def _asked(request: Request) -> dict[str, Any]:
    body = checked(NewRole, request.data)
    if body.get("kubernetesPermissions"):
        text = _("Roles give no rights inside of a cluster; leave this out.")
        raise Refused.at("/kubernetesPermissions", "unsupported", text)
    return {
        "name": body["name"],
        "description": body["description"],
        "enabled": body["enabled"] is not False,
        "permission_sets": [each["id"] for each in body["permissionSets"]],
    }
