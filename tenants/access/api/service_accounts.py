"""Service accounts, as Run:ai's clients ask for them: for those who look at access and those who manage it."""

from typing import Any, Final
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.parsers import TENANT_ID
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, rendered, validated_body
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.models import ServiceAccount
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.serializers.subjects import (
    AccountChange,
    AccountCreated,
    AccountSchema,
    SecretCreated,
    SubjectCreate,
)
from tenants.access.services import service_accounts

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
        account, secret = service_accounts.create(name=body["name"], expires_at=body.get("expiresAt"), actor=actor)
        told = {"id": str(account.pk), "name": account.name, "clientId": account.client_id}
        return Response({**told, self.shown_once[0]: secret}, status=201)


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
        service_accounts.set_enabled(account=account, enabled=enabled, actor=actor)
        return Response()

    @operation("delete_service_account", "Remove a service account", status=204)
    def delete(self, request: Request, account_id: UUID) -> Response:
        """Gone with its roles, and every token with it."""
        actor = actor_of(request)
        service_accounts.delete(account=_account(actor, account_id), actor=actor)
        return Response(status=204)


class ServiceAccountSecret(Route):
    """The secret of a service account."""

    access = {"POST": ADMINS}
    shown_once = ("clientSecret",)

    @operation("regenerate_service_account_secret", "Rotate the secret of a service account", SecretCreated)
    def post(self, request: Request, account_id: UUID) -> Response:
        """The new secret, shown this once; the old one and its tokens stop working."""
        actor = actor_of(request)
        return Response({self.shown_once[0]: service_accounts.rotate(account=_account(actor, account_id), actor=actor)})


def _account_json(account: ServiceAccount) -> dict[str, Any]:
    return rendered(AccountSchema, account, tenantId=str(TENANT_ID))


def _account(actor: Actor, account_id: UUID, verb: Permission = Permission.MANAGE_ACCESS) -> ServiceAccount:
    require(actor, verb)
    found = ServiceAccount.objects.filter(pk=account_id).first()
    if found is None:
        raise NotFound
    return found
