"""What can be permitted, what the caller may do, and where."""

from typing import Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.api.access_schemas import AskedScopes, PermissionSchema, PermissionSetSchema, PermittedScopesSchema
from tenants.api.access_shapes import permissions_json, scopes_json, set_json
from tenants.permissions import EVERYTHING, standing_of
from tenants.roles import ACTIONS, NEEDS, SETS, WIDE

PERMISSIONS: Final = PermissionSchema(many=True)
PERMISSION_SETS: Final = PermissionSetSchema(many=True)


class Permissions(Route):
    """The caller's permissions, wherever they hold."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_permissions",
        summary="List what you may do",
        description="Resource types and actions that you may somewhere; for a platform admin all that Rung has.",
        responses={200: PERMISSIONS, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """A summary of the caller's permissions."""
        standing = standing_of(actor_of(request))
        return Response(permissions_json(standing.verbs, standing.verbs_in()))


class PermissionSets(Route):
    """What roles are made of."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_permission_sets",
        summary="List permission sets",
        description="Run:ai's since 2.24; its Python client has no method for it. The ids go into custom roles.",
        responses={200: PERMISSION_SETS, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Every permission set with its permissions."""
        return Response([set_json(each) for each in SETS.values()])


class OnePermissionSet(Route):
    """A permission set by id."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_permission_set",
        summary="Read a permission set",
        responses={200: PermissionSetSchema, **REFUSALS},
    )
    def get(self, request: Request, set_id: str) -> Response:
        """The set with its permissions."""
        if set_id not in SETS:
            raise Absent
        return Response(set_json(SETS[set_id]))


class PermittedScopes(Route):
    """Where something is permitted."""

    access = {"POST": Rule(reads=True)}

    @extend_schema(
        operation_id="get_permitted_scopes",
        summary="Ask where you may do something",
        description="For all four actions, whichever is asked about. A scope includes what is below it. What Rung does "
        "not have is permitted nowhere.",
        request=AskedScopes,
        responses={200: PermittedScopesSchema, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """The caller's scopes per action."""
        kind, standing = checked(AskedScopes, request.data)["resourceType"], standing_of(actor_of(request))
        reaching = [each for each in standing.grants if each.everywhere or kind not in WIDE]
        found = {}
        for action in ACTIONS:
            needed = NEEDS.get((kind, action))
            grants = [] if needed is None else [each for each in reaching if needed <= each.verbs]
            found[action] = scopes_json([EVERYTHING] if needed == frozenset() else grants)
        return Response(found)
