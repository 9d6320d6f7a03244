"""Service accounts, as Run:ai's clients ask for them: for those who look at access and those who manage it."""

from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from portal.core.wire import TENANT_ID, stamp
from tenants.api.subject_schemas import AccountChange, AccountSchema, MadeAccount, NewSecret, NewSubject
from tenants.models import ServiceAccount
from tenants.permissions import Verb, require
from tenants.services import service_accounts

WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
ADMINS: Final = Rule("manage_access", "installation")
LOOKING: Final = Rule("view_access", "installation")


class ServiceAccounts(Route):
    """Every service account; new ones."""

    access = {"GET": LOOKING, "POST": ADMINS}
    shown_once = ("clientSecret",)

    @extend_schema(
        operation_id="get_service_accounts",
        summary="List service accounts",
        responses={200: AccountSchema(many=True), **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """All of them, by name."""
        require(actor_of(request), Verb.VIEW_ACCESS)
        return Response([account_json(each) for each in ServiceAccount.objects.all()])

    @extend_schema(
        operation_id="create_service_account",
        summary="Make a service account",
        request=NewSubject,
        responses={201: MadeAccount, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """Without roles; its secret is shown this once."""
        actor = actor_of(request)
        require(actor, Verb.MANAGE_ACCESS)
        body = checked(NewSubject, request.data)
        account, secret = service_accounts.create(name=body["name"], expires_at=body.get("expiresAt"), actor=actor)
        told = {"id": str(account.pk), "name": account.name, "clientId": account.client_id}
        return Response({**told, self.shown_once[0]: secret}, status=201)


class OneServiceAccount(Route):
    """A service account by id."""

    access = {"GET": LOOKING, "PATCH": ADMINS, "DELETE": ADMINS}

    @extend_schema(
        operation_id="get_service_account", summary="Read a service account", responses={200: AccountSchema, **REFUSALS}
    )
    def get(self, request: Request, account_id: UUID) -> Response:
        """The account without its secret."""
        return Response(account_json(_account(actor_of(request), account_id, Verb.VIEW_ACCESS)))

    @extend_schema(
        operation_id="update_service_account",
        summary="Let a service account in or shut it out",
        request=AccountChange,
        responses={200: None, **WRITES},
    )
    def patch(self, request: Request, account_id: UUID) -> Response:
        """It counts from its next request on."""
        actor = actor_of(request)
        account = _account(actor, account_id)
        enabled = checked(AccountChange, request.data)["enabled"]
        service_accounts.set_enabled(account=account, enabled=enabled, actor=actor)
        return Response()

    @extend_schema(
        operation_id="delete_service_account", summary="Remove a service account", responses={204: None, **WRITES}
    )
    def delete(self, request: Request, account_id: UUID) -> Response:
        """Gone with its roles, and every token with it."""
        actor = actor_of(request)
        service_accounts.delete(account=_account(actor, account_id), actor=actor)
        return Response(status=204)


class ServiceAccountSecret(Route):
    """The secret of a service account."""

    access = {"POST": ADMINS}
    shown_once = ("clientSecret",)

    @extend_schema(
        operation_id="regenerate_service_account_secret",
        summary="Give a service account another secret",
        request=None,
        responses={200: NewSecret, **WRITES},
    )
    def post(self, request: Request, account_id: UUID) -> Response:
        """The new secret, shown this once; the old one and its tokens stop working."""
        actor = actor_of(request)
        return Response({self.shown_once[0]: service_accounts.rotate(account=_account(actor, account_id), actor=actor)})


def account_json(account: ServiceAccount) -> dict[str, Any]:
    """The account without its secret."""
    return {
        "id": str(account.pk),
        "name": account.name,
        "clientId": account.client_id,
        "createdBy": account.created_by,
        "enabled": account.enabled,
        "createdAt": stamp(account.created_at),
        "updatedAt": stamp(account.updated_at),
        "lastLogin": stamp(account.last_login),
        "expiresAt": stamp(account.expires_at),
        "tenantId": str(TENANT_ID),
    }


def _account(actor: Actor, account_id: UUID, verb: Verb = Verb.MANAGE_ACCESS) -> ServiceAccount:
    require(actor, verb)
    found = ServiceAccount.objects.filter(pk=account_id).first()
    if found is None:
        raise Absent
    return found
