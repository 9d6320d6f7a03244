"""Service accounts over REST, also under the older names of Run:ai's scripts: applications and user applications."""

from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.parsers import TENANT_ID
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import ERROR_RESPONSES, operation, rendered, validated_body
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api import credentials
from tenants.access.models import ServiceAccount
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.serializers.subjects import (
    AccessKeySchema,
    AccountChange,
    AccountCreated,
    AccountSchema,
    AdministeredKeySchema,
    ApplicationCreated,
    ApplicationSecretCreated,
    SecretCreated,
    SubjectCreate,
)
from tenants.access.services import subjects

ADMINS: Final = RoutePermission("manage_access", "installation")
LOOKING: Final = RoutePermission("view_access", "installation")


class ServiceAccounts(Route):
    """Every service account; new ones."""

    access = {"GET": LOOKING, "POST": ADMINS}
    shown_once = ("clientSecret",)

    @operation("get_service_accounts", "List service accounts", AccountSchema(many=True))
    def get(self, request: Request) -> Response:
        """All of them, by name."""
        require(actor_of(request), Permission.VIEW_ACCESS)
        return Response([_account_json(each) for each in ServiceAccount.objects.all()])

    @operation("create_service_account", "Create a service account", AccountCreated, 201, request=SubjectCreate)
    def post(self, request: Request) -> Response:
        """Without roles; its secret is shown this once."""
        actor = actor_of(request)
        require(actor, Permission.MANAGE_ACCESS)
        body = validated_body(SubjectCreate, request.data)
        account, secret = subjects.create_service_account(
            name=body["name"], expires_at=body.get("expiresAt"), actor=actor
        )
        shown = {"id": str(account.pk), "name": account.name, "clientId": account.client_id}
        return Response({**shown, self.shown_once[0]: secret}, status=201)


class ServiceAccountDetail(Route):
    """A service account by id."""

    access = {"GET": LOOKING, "PATCH": ADMINS, "DELETE": ADMINS}

    @operation("get_service_account", "Read a service account", AccountSchema)
    def get(self, request: Request, account_id: UUID) -> Response:
        """The account without its secret."""
        return Response(_account_json(_account(actor_of(request), account_id, Permission.VIEW_ACCESS)))

    @operation("update_service_account", "Enable or disable a service account", request=AccountChange)
    def patch(self, request: Request, account_id: UUID) -> Response:
        """It counts from its next request on."""
        actor = actor_of(request)
        account = _account(actor, account_id)
        enabled = validated_body(AccountChange, request.data)["enabled"]
        subjects.enable_service_account(account=account, enabled=enabled, actor=actor)
        return Response()

    @operation("delete_service_account", "Remove a service account", status=204)
    def delete(self, request: Request, account_id: UUID) -> Response:
        """Gone with its roles, and every token with it."""
        actor = actor_of(request)
        subjects.delete_service_account(account=_account(actor, account_id), actor=actor)
        return Response(status=204)


class ServiceAccountSecret(Route):
    """The secret of a service account."""

    access = {"POST": ADMINS}
    shown_once = ("clientSecret",)

    @operation("regenerate_service_account_secret", "Rotate the secret of a service account", SecretCreated)
    def post(self, request: Request, account_id: UUID) -> Response:
        """The new secret, shown this once; the old one and its tokens stop working."""
        actor = actor_of(request)
        return Response(
            {self.shown_once[0]: subjects.rotate_service_account(account=_account(actor, account_id), actor=actor)}
        )


def _account_json(account: ServiceAccount) -> dict[str, Any]:
    return rendered(AccountSchema, account, tenantId=str(TENANT_ID))


def _account(actor: Actor, account_id: UUID, permission: Permission = Permission.MANAGE_ACCESS) -> ServiceAccount:
    require(actor, permission)
    found = ServiceAccount.objects.filter(pk=account_id).first()
    if found is None:
        raise NotFound
    return found


@extend_schema_view(
    get=extend_schema(operation_id="get_applications", deprecated=True),
    post=extend_schema(
        operation_id="create_application", responses={201: ApplicationCreated, **ERROR_RESPONSES}, deprecated=True
    ),
)
class Applications(ServiceAccounts):
    """Service accounts."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(operation_id="get_application", deprecated=True),
    patch=extend_schema(operation_id="update_application", deprecated=True),
    delete=extend_schema(operation_id="delete_application", deprecated=True),
)
class ApplicationDetail(ServiceAccountDetail):
    """A service account."""


@extend_schema_view(
    post=extend_schema(
        operation_id="regenerate_application_secret",
        responses={200: ApplicationSecretCreated, **ERROR_RESPONSES},
        deprecated=True,
    )
)
class ApplicationSecret(ServiceAccountSecret):
    """A service account's secret."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(
        operation_id="get_user_applications",
        responses={200: AccessKeySchema(many=True), **ERROR_RESPONSES},
        deprecated=True,
    ),
    post=extend_schema(
        operation_id="create_user_application", responses={201: ApplicationCreated, **ERROR_RESPONSES}, deprecated=True
    ),
)
class UserApplications(credentials.AccessKeys):
    """Access keys, as a bare array."""

    shown_once = ("secret",)
    listed_as = ""


@extend_schema_view(
    get=extend_schema(operation_id="get_user_application", deprecated=True),
    delete=extend_schema(operation_id="delete_user_application", deprecated=True),
)
class UserApplicationDetail(credentials.AccessKeyDetail):
    """An access key."""


@extend_schema_view(
    post=extend_schema(
        operation_id="regenerate_user_application_secret",
        responses={200: ApplicationSecretCreated, **ERROR_RESPONSES},
        deprecated=True,
    )
)
class UserApplicationSecret(credentials.AccessKeySecret):
    """An access key's secret."""

    shown_once = ("secret",)


@extend_schema_view(
    get=extend_schema(
        operation_id="get_user_applications_administration",
        responses={200: AdministeredKeySchema(many=True), **ERROR_RESPONSES},
        deprecated=True,
    )
)
class AdministeredApplications(credentials.AdministeredKeys):
    """Everybody's access keys, as a bare array."""

    listed_as = ""


@extend_schema_view(delete=extend_schema(operation_id="delete_user_application_administration", deprecated=True))
class AdministeredApplicationDetail(credentials.AdministeredKeyDetail):
    """A user's access key."""
