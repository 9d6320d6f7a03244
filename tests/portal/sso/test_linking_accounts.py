"""Joining an account to the single sign-on, and a second factor after it."""

import re
from urllib.parse import urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import Group
from django.core.checks import run_checks
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from portal.audit.models import AuditRecord
from tenants.access.models import Role, User
from tests.factories.tenants import PASSWORD, MembershipFactory, UserFactory
from tests.support.identity_provider import IdentityProvider
from tests.support.signing_in import at, at_provider, back, come_in, refused, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    made: User = UserFactory.create(username="alice", email="alice@example.org")
    return made


def address(name: str) -> str:
    return reverse("tenants:security-act", kwargs={"name": name})


def connecting(client: Client, password: str = PASSWORD) -> str:
    """Ask for it with the password, and follow the link to the provider; answers where it sends the browser."""
    page = client.post(address("connect"), {"proof": password}).content.decode()
    link = re.search(r'href="(http://127[^"]+)"', page)
    return at(link[1].replace("&amp;", "&")) if link else ""


def test_an_owner_connects_their_account_and_comes_in_either_way(
    client: Client, provider: IdentityProvider, alice: User
) -> None:
    client.force_login(alice)
    assert back(client, connecting(client)) == 302
    assert AuditRecord.objects.order_by("-id")[0].action == "user.connect"
    other = Client()
    come_in(other)
    assert signed_in(other) == alice
    assert Client().post("/login/", {"username": "alice", "password": PASSWORD}).status_code == 302


def test_connecting_asks_for_the_password(client: Client, provider: IdentityProvider, alice: User) -> None:
    client.force_login(alice)
    assert connecting(client, "wrong") == ""
    assert provider.requested == []
    told = AuditRecord.objects.order_by("-id")[0]
    assert (told.actor_name, told.action, told.result) == ("alice", "user.prove", "Denied")
    assert told.detail["code"] == "wrong_proof"


def test_the_answer_connects_only_who_asked(client: Client, provider: IdentityProvider, alice: User) -> None:
    client.force_login(alice)
    answer = connecting(client)
    client.force_login(UserFactory.create(username="mallory"))
    assert back(client, answer) == 403
    come_in(other := Client())
    assert signed_in(other) not in {None, alice}


def test_an_identity_belongs_to_one_account(client: Client, provider: IdentityProvider, alice: User) -> None:
    come_in(Client())
    client.force_login(alice)
    assert back(client, connecting(client)) == 409


def test_disconnecting_needs_the_password_and_takes_the_groups_along(
    client: Client, provider: IdentityProvider, alice: User
) -> None:
    provider.person["groups"] = ["ml"]
    client.force_login(alice)
    back(client, connecting(client))
    assert alice.groups.count() == 1
    assert client.post(address("disconnect"), {"proof": "wrong"}).status_code == 422
    assert client.post(address("disconnect"), {"proof": PASSWORD}).status_code == 302
    assert alice.groups.count() == 0
    assert come_in(Client()) == 302
    assert User.objects.filter(username="dora").exists()


def test_the_last_platform_admin_by_a_group_stays_connected(
    client: Client, provider: IdentityProvider, alice: User
) -> None:
    MembershipFactory.create(user=None, group=Group.objects.create(name="ops"), role=Role.PLATFORM_ADMIN, project=None)
    provider.person["groups"] = ["ops"]
    client.force_login(alice)
    back(client, connecting(client))
    page = client.post(address("disconnect"), {"proof": PASSWORD})
    assert page.status_code == 422
    assert "at least one platform admin" in page.content.decode()
    assert alice.groups.count() == 1
    MembershipFactory.create(role=Role.PLATFORM_ADMIN, project=None)
    assert client.post(address("disconnect"), {"proof": PASSWORD}).status_code == 302
    assert AuditRecord.objects.get(action="user.disconnect", result="Succeeded").detail == {"left": ["ops"]}


def test_who_has_no_password_keeps_the_only_way_in(client: Client, provider: IdentityProvider) -> None:
    come_in(client)
    assert "Disconnect" not in client.get("/security/").content.decode()


def test_a_second_factor_is_asked_for_after_the_provider_too(client: Client, provider: IdentityProvider) -> None:
    come_in(client)
    dora = signed_in(client)
    assert dora is not None
    codes = protect(dora)
    other = Client()
    parts = urlsplit(at_provider(other, "/projects/"))
    assert other.get(f"{parts.path}?{parts.query}")["Location"] == reverse("login-code")
    assert signed_in(other) is None
    assert other.post(reverse("login-code"), {"code": codes[0]})["Location"] == "/projects/"
    assert AuditRecord.objects.order_by("-id")[0].detail == {"with": "single sign-on, recovery"}


def test_who_has_no_password_proves_themselves_with_a_code(client: Client, provider: IdentityProvider) -> None:
    come_in(client)
    dora = signed_in(client)
    assert dora is not None
    codes = protect(dora)
    assert client.post(address("remove-app"), {"proof": "000000"}).status_code == 422
    assert client.post(address("remove-app"), {"proof": codes[0]}).status_code == 302
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize(("methods", "onward"), [(["pwd", "mfa"], "/projects/"), (["pwd"], "/security/second-factor/")])
def test_a_provider_that_has_seen_a_second_factor_is_enough(
    client: Client, provider: IdentityProvider, settings: Settings, methods: list[str], onward: str
) -> None:
    settings.RUNG_MFA_REQUIRED = "everyone"
    provider.person["amr"] = methods
    come_in(client)
    assert client.get("/projects/", follow=True).request["PATH_INFO"] == onward


@pytest.mark.parametrize("claims", [{}, {"email": "d@example.org", "email_verified": True}], ids=["none", "verified"])
def test_an_admin_disconnects_somebody(
    client: Client, provider: IdentityProvider, admin: User, claims: dict[str, object]
) -> None:
    provider.person |= claims
    come_in(client)
    client.force_login(admin)
    dora = User.objects.get(username="dora")
    client.post("/admin/tenants/user/", {"action": "disconnect", "_selected_action": [str(dora.pk)]})
    assert come_in(other := Client()) == 409
    assert refused(other, "name_taken")


def test_an_account_with_both_can_be_deleted_in_the_console(
    client: Client, provider: IdentityProvider, admin: User
) -> None:
    come_in(client)
    dora = User.objects.get(username="dora")
    protect(dora)
    client.force_login(admin)
    assert client.get(f"/admin/tenants/user/{dora.pk}/delete/").status_code == 200
    assert client.post(f"/admin/tenants/user/{dora.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="dora").exists()


def protect(user: User) -> list[str]:
    TOTP.activate(user, generate_totp_secret())
    Authenticator.objects.filter(type="totp").update(data={**Authenticator.objects.get(type="totp").data, "period": 0})
    codes: list[str] = RecoveryCodes.activate(user).generate_codes()
    return codes


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("RUNG_OIDC_ISSUER", "http://login.example.org", "tenants.E001"),
        ("RUNG_OIDC_ISSUER", "https://user@login.example.org", "tenants.E001"),
        ("RUNG_OIDC_CLIENT_SECRET", "", "tenants.E002"),
        ("RUNG_OIDC_SCOPES", ["email"], "tenants.E003"),
        ("RUNG_OIDC_CA_FILE", "/absent.pem", "tenants.E004"),
        ("RUNG_MFA_REQUIRED", "admin", "tenants.E005"),
        ("RUNG_OIDC_GROUPS", {"": "ml"}, "tenants.E006"),
    ],
)
def test_a_mistake_is_found_at_start(
    provider: IdentityProvider, settings: Settings, name: str, value: object, code: str
) -> None:
    assert not run_checks(tags=["rung"])
    setattr(settings, name, value)
    assert [found.id for found in run_checks(tags=["rung"])] == [code]
