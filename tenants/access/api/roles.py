"""REST of roles, permission sets and the caller's permissions."""

from typing import Any, Final

from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.access.models import AccessRole
from tenants.access.rules import ACTIONS, NEEDS, SETS, WIDE
from tenants.access.selectors import EVERYTHING, access_for
from tenants.access.serializers.access_rules import (
    PermissionSchema,
    PermissionSetSchema,
    PermittedScopesSchema,
    RoleCreate,
    RoleV1Schema,
    RoleV2Schema,
    ScopesQuery,
    permissions_json,
    role_v1,
    role_v2,
    scopes_json,
    set_json,
)
from tenants.access.services import roles

PERMISSIONS: Final = PermissionSchema(many=True)
PERMISSION_SETS: Final = PermissionSetSchema(many=True)


class OwnPermissions(Route):
    """The caller's permissions, wherever they hold."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_permissions",
        "List your permissions",
        PERMISSIONS,
        description="Resource types and actions permitted in at least one scope; all of them for a platform admin.",
    )
    def get(self, request: Request) -> Response:
        """A summary of the caller's permissions."""
        access = access_for(actor_of(request))
        return Response(permissions_json(access.permissions, access.permissions_in()))


class PermissionSets(Route):
    """What roles are made of."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_permission_sets",
        "List permission sets",
        PERMISSION_SETS,
        description="Run:ai's since 2.24; its Python client has no method for it. The ids go into custom roles.",
    )
    def get(self, request: Request) -> Response:
        """Every permission set with its permissions."""
        return Response([set_json(each) for each in SETS.values()])


class PermissionSetDetail(Route):
    """A permission set by id."""

    access = {"GET": RoutePermission()}

    @operation("get_permission_set", "Read a permission set", PermissionSetSchema)
    def get(self, request: Request, set_id: str) -> Response:
        """The set with its permissions."""
        if set_id not in SETS:
            raise NotFound
        return Response(set_json(SETS[set_id]))


class PermittedScopes(Route):
    """Where something is permitted."""

    access = {"POST": RoutePermission(reads=True)}

    @operation(
        "get_permitted_scopes",
        "List the scopes where an action is permitted",
        PermittedScopesSchema,
        description="Covers all four actions. A scope includes everything below it. Resource types that Rung does "
        "not have are permitted nowhere.",
        request=ScopesQuery,
    )
    def post(self, request: Request) -> Response:
        """The caller's scopes per action."""
        kind, access = validated_body(ScopesQuery, request.data)["resourceType"], access_for(actor_of(request))
        reaching = [each for each in access.grants if each.everywhere or kind not in WIDE]
        found = {}
        for action in ACTIONS:
            needed = NEEDS.get((kind, action))
            grants = [] if needed is None else [each for each in reaching if needed <= each.permissions]
            found[action] = scopes_json([EVERYTHING] if needed == frozenset() else grants)
        return Response(found)


LIST_V1: Final = RoleV1Schema(many=True)
LIST_V2: Final = RoleV2Schema(many=True)


class RolesV1(Route):
    """Every role, for every user: who grants roles needs to know them."""

    access = {"GET": RoutePermission()}

    @operation("get_roles_v1", "List roles", LIST_V1)
    def get(self, request: Request) -> Response:
        """Those that come with Rung, then custom ones."""
        return Response([role_v1(each) for each in AccessRole.objects.all()])


class RoleDetailV1(Route):
    """A role by id."""

    access = {"GET": RoutePermission()}

    @operation("get_role_v1", "Read a role", RoleV1Schema)
    def get(self, request: Request, role_id: int) -> Response:
        """The role with its permissions."""
        return Response(role_v1(_role(role_id)))


class RolesV2(Route):
    """Every role; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_access", "installation")}

    @operation(
        "get_roles_v2",
        "List roles with their permission sets",
        LIST_V2,
        description="Run:ai's since 2.24; its Python client has no method for it.",
    )
    def get(self, request: Request) -> Response:
        """Those that come with Rung, then custom ones."""
        return Response([role_v2(each) for each in AccessRole.objects.all()])

    @operation(
        "create_role_v2",
        "Create a custom role",
        RoleV2Schema,
        201,
        description="Run:ai's since 2.24; its Python client has no method for it. A role cannot have more "
        "permissions than its creator has in the whole installation.",
        request=RoleCreate,
    )
    def post(self, request: Request) -> Response:
        """A role made of permission sets."""
        made = roles.create_role(**_role_fields(request), actor=actor_of(request))
        return Response(role_v2(made), status=201)


class RoleDetailV2(Route):
    """A role by id."""

    access = {
        "GET": RoutePermission(),
        **dict.fromkeys(("PUT", "DELETE"), RoutePermission("manage_access", "installation")),
    }

    @operation("get_role_v2", "Read a role with its permission sets", RoleV2Schema)
    def get(self, request: Request, role_id: int) -> Response:
        """The role with its permission sets and what they come to."""
        return Response(role_v2(_role(role_id)))

    @operation(
        "update_role_v2",
        "Change a custom role",
        RoleV2Schema,
        description="Replaces the whole role. Takes effect at the next request of its holders.",
        request=RoleCreate,
    )
    def put(self, request: Request, role_id: int) -> Response:
        """Another name, other sets, enabled or not."""
        role = _role(role_id)
        return Response(role_v2(roles.update_role(role=role, **_role_fields(request), actor=actor_of(request))))

    @operation("delete_role_v2", "Delete a custom role", status=204)
    def delete(self, request: Request, role_id: int) -> Response:
        """Gone; 409 while an access rule gives it."""
        roles.delete_role(role=_role(role_id), actor=actor_of(request))
        return Response(status=204)


def _role(role_id: int) -> AccessRole:
    found = AccessRole.objects.filter(pk=role_id).first()
    if found is None:
        raise NotFound
    return found


def _role_fields(request: Request) -> dict[str, Any]:
    body = validated_body(RoleCreate, request.data)
    if body.get("kubernetesPermissions"):
        text = _("Roles do not grant permissions inside clusters. Remove this field.")
        raise ValidationFailed.at("/kubernetesPermissions", "unsupported", text)
    return {
        "name": body["name"],
        "description": body["description"],
        "enabled": body["enabled"] is not False,
        "permission_sets": [each["id"] for each in body["permissionSets"]],
    }
