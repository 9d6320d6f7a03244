"""Single sign-on with a real provider on loopback: who comes in, as which account, with which groups."""

from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, Channel
from tenants.access.models import Role, User
from tenants.access.selectors import access_for
from tenants.access.services.access_rules import grant
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tests.factories.tenants import MembershipFactory, UserFactory
from tests.support.identity_provider import ABSENT, IdentityProvider
from tests.support.signing_in import at_provider, back, come_in, refused, signed_in

pytestmark = pytest.mark.django_db


def test_without_a_provider_there_is_no_button_and_no_way(client: Client) -> None:
    assert "single-sign-on" not in client.get("/login/").content.decode()
    assert client.get(reverse("single-sign-on")).status_code == 404
    assert client.get(reverse("single-sign-on-return"), {"code": "x", "state": "y"}).status_code == 404


def test_the_page_offers_it_by_name_and_keeps_where_one_wanted_to_go(
    client: Client, provider: IdentityProvider
) -> None:
    page = client.get("/login/", {"next": "/workloads/?q=a&b=c"}).content.decode()
    assert "Example login" in page
    assert "/login/single-sign-on/?next=%2Fworkloads%2F%3Fq%3Da%26b%3Dc" in page


def test_somebody_new_comes_in_with_no_rights(client: Client, provider: IdentityProvider) -> None:
    assert come_in(client, "/projects/") == 302
    dora = signed_in(client)
    assert dora is not None
    assert (dora.username, dora.is_staff, dora.is_superuser, dora.has_usable_password()) == (
        "dora",
        False,
        False,
        False,
    )
    assert access_for(Actor(ActorKind.USER, str(dora.pk), "dora", Channel.UI)).grants == ()
    story = AuditRecord.objects.order_by("id").values_list("actor_name", "action", "detail__with")
    assert list(story) == [("dora", "user.create", None), ("dora", "session.start", "single sign-on")]


def test_a_browser_over_sockets_comes_in_and_goes(
    transactional_db: None, live_server: object, provider: IdentityProvider
) -> None:
    browser = requests.Session()
    page = browser.get(f"{live_server}/login/single-sign-on/?next=/security/", timeout=10)
    assert page.url == f"{live_server}/security/"
    assert "dora" in page.text
    token = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    page = browser.post(f"{live_server}/logout/", {"csrfmiddlewaretoken": token}, timeout=10)
    assert page.url == f"{live_server}/login/"
    assert browser.get(f"{live_server}/security/", timeout=10).url.startswith(f"{live_server}/login/")


def test_the_same_person_is_the_same_account_whatever_they_are_called(
    client: Client, provider: IdentityProvider
) -> None:
    come_in(client)
    first = signed_in(client)
    provider.person |= {"preferred_username": "dora.married", "email": "d@example.org", "email_verified": True}
    other = Client()
    come_in(other)
    assert signed_in(other) == first
    assert first is not None
    first.refresh_from_db()
    assert (first.username, first.email) == ("dora", "d@example.org")


def test_a_session_has_a_new_key_after_signing_in(client: Client, provider: IdentityProvider) -> None:
    address = at_provider(client)
    before = client.cookies["rung_session"].value
    back(client, address)
    assert client.cookies["rung_session"].value != before


def groups(client: Client) -> set[str]:
    user = signed_in(client)
    assert user is not None
    return set(user.groups.values_list("name", flat=True))


def test_groups_follow_the_provider_at_each_sign_in(client: Client, provider: IdentityProvider) -> None:
    provider.person["groups"] = ["ml", "ops"]
    come_in(client)
    assert groups(client) == {"ml", "ops"}
    provider.person["groups"] = ["ml", "research"]
    assert groups(client) == {"ml", "ops"}, "not before the next sign-in"
    come_in(client)
    assert groups(client) == {"ml", "research"}
    told = AuditRecord.objects.filter(action="user.groups").order_by("-id")[0]
    assert told.detail == {"joined": ["research"], "left": ["ops"]}


def test_a_role_of_a_group_is_gone_with_the_next_sign_in_after_its_removal(
    client: Client, provider: IdentityProvider, llm_team: Project
) -> None:
    ml = Group.objects.create(name="ml")
    MembershipFactory.create(user=None, group=ml, project=llm_team)
    provider.person["groups"] = ["ml"]
    come_in(client)
    assert client.get("/projects/llm-team/").status_code == 200
    provider.person["groups"] = []
    assert client.get("/projects/llm-team/").status_code == 200
    come_in(client)
    assert client.get("/projects/llm-team/").status_code == 404


def test_a_claim_that_is_gone_is_no_group_at_all(client: Client, provider: IdentityProvider) -> None:
    provider.person["groups"] = ["ml"]
    come_in(client)
    del provider.person["groups"]
    come_in(client)
    assert groups(client) == set()


def test_groups_may_come_from_userinfo(client: Client, provider: IdentityProvider) -> None:
    provider.userinfo = {"groups": "ml"}
    come_in(client)
    assert groups(client) == {"ml"}


def test_with_a_mapping_only_what_it_names_counts(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    settings.RUNG_OIDC_GROUPS = {"/cn=ml": "llm people"}
    provider.person["groups"] = ["/cn=ml", "everybody"]
    come_in(client)
    assert groups(client) == {"llm people"}
    assert not Group.objects.filter(name="everybody").exists()


def test_without_a_claim_groups_are_left_alone(client: Client, provider: IdentityProvider, settings: Settings) -> None:
    settings.RUNG_OIDC_GROUPS_CLAIM = ""
    provider.person["groups"] = ["ml"]
    come_in(client)
    assert groups(client) == set()


def test_thousands_of_groups_are_refused_and_told(client: Client, provider: IdentityProvider) -> None:
    provider.person["groups"] = [f"g{number}" for number in range(501)]
    assert come_in(client) == 403
    assert refused(client, "too_many_groups")


def test_t65_nobody_takes_an_account_over_by_an_address_or_a_name(client: Client, provider: IdentityProvider) -> None:
    alice = UserFactory.create(username="alice", email="alice@example.org", is_superuser=True)
    for claims, code in (
        ({"email": "Alice@example.org", "email_verified": True}, "email_taken"),
        ({"preferred_username": "alice"}, "name_taken"),
        ({"preferred_username": "ALICE", "email": "alice@example.org", "email_verified": True}, "name_taken"),
    ):
        provider.person = {"sub": "evil", "preferred_username": "evil", **claims}
        assert come_in(client) == 409
        assert refused(client, code)
    alice.refresh_from_db()
    assert alice.last_login is None


@pytest.mark.parametrize("verified", [False, "true", 1, ABSENT], ids=["false", "text", "number", "absent"])
def test_t65_an_unverified_address_is_no_address(client: Client, provider: IdentityProvider, verified: object) -> None:
    prepared = User.objects.create_user("prepared", email="p@example.org")
    provider.person |= {"email": "p@example.org"}
    provider.claims = {"email_verified": verified}
    come_in(client)
    dora = signed_in(client)
    assert dora is not None
    assert dora != prepared
    assert dora.email == ""


def test_an_account_prepared_without_a_password_is_joined_by_a_verified_address(
    client: Client, provider: IdentityProvider
) -> None:
    prepared = User.objects.create_user("prepared", email="p@example.org")
    provider.person |= {"email": "P@example.org", "email_verified": True}
    come_in(client)
    assert signed_in(client) == prepared


@pytest.mark.parametrize("power", ["superuser", "custom role", "owner"])
def test_t65_an_account_with_power_is_not_joined_by_an_address(
    client: Client, provider: IdentityProvider, llm_team: Project, power: str
) -> None:
    boss = User.objects.create_user("boss", email="p@example.org", is_superuser=power == "superuser")
    if power == "custom role":
        role = create_role(name="Doorkeeper", permission_sets=["manage-access"], actor=SYSTEM)
        grant(subject=boss, role=role, actor=SYSTEM)
    elif power == "owner":
        grant(subject=boss, role=Role.OWNER, project=llm_team, actor=SYSTEM)
    provider.person |= {"email": "p@example.org", "email_verified": True}
    assert come_in(client) == 409
    assert refused(client, "email_taken")


def test_t62_a_disabled_account_stays_out(client: Client, provider: IdentityProvider) -> None:
    come_in(client)
    client.post("/logout/")
    User.objects.update(is_active=False)
    assert come_in(client) == 403
    assert refused(client, "disabled")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/x", "javascript:alert(1)"])
def test_t61_it_leads_to_this_site_only(client: Client, provider: IdentityProvider, target: str) -> None:
    parts = urlsplit(at_provider(client, target))
    assert client.get(f"{parts.path}?{parts.query}")["Location"] == "/"


def test_t55_the_return_address_is_not_a_clients_choice(client: Client, provider: IdentityProvider) -> None:
    sent = client.get(reverse("single-sign-on"), HTTP_X_FORWARDED_HOST="evil.example")
    requested = parse_qs(urlsplit(sent["Location"]).query)
    assert requested["redirect_uri"] == ["http://testserver/login/single-sign-on/return/"]
    assert client.get(reverse("single-sign-on"), HTTP_HOST="evil.example").status_code == 400


def test_t63_guessing_answers_is_limited(client: Client, provider: IdentityProvider, settings: Settings) -> None:
    settings.RUNG_SIGN_IN_LIMITS = {"name": (3, 300), "account": (99, 300), "address": (3, 300)}
    tries = [client.get(reverse("single-sign-on-return"), {"state": "x", "code": "y"}) for _ in range(4)]
    assert [answer.status_code for answer in tries] == [403, 403, 403, 429]
    assert int(tries[-1]["Retry-After"]) > 0
