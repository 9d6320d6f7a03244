"""The second factor: set up with an app, asked for at every sign-in, limited, recovered, reset, required."""

import re
import time
from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.test import Client
from django.urls import reverse
from django.utils.crypto import get_random_string
from pytest_django.fixtures import Settings

from portal.audit.models import AuditRecord
from tenants.access.models import User
from tests.factories.tenants import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PERIOD = 30


@pytest.fixture
def alice() -> User:
    made: User = UserFactory.create(username="alice")
    return made


class App:
    """An authenticator app: a secret and the clock. It shows a code of the period before, now, or the next."""

    def __init__(self, secret: str) -> None:
        self.secret = secret.replace(" ", "")

    def shows(self, periods_from_now: int = 0) -> str:
        return str(format_hotp_value(hotp_value(self.secret, int(time.time()) // PERIOD + periods_from_now)))


@pytest.fixture(autouse=True)
def _mid_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the tests stands in the middle of a period: codes do not run out between two lines."""
    now = time.time() // PERIOD * PERIOD + PERIOD / 2
    monkeypatch.setattr(time, "time", lambda: now)


def set_up(client: Client) -> tuple[App, list[str]]:
    """As a person does it: read the secret, type the code, write the recovery codes down."""
    page = client.get(reverse("tenants:second-factor")).content.decode()
    app = App(re.search(r'<code class="text-break">([A-Z2-7 ]+)</code>', page)[1])  # type: ignore[index]
    page = client.post(reverse("tenants:second-factor"), {"code": app.shows(-1), "proof": PASSWORD}).content.decode()
    return app, re.findall(r"<code>([0-9 ]{14})</code>", page)


def sign_in(client: Client, name: str = "alice") -> str:
    return str(
        client.post("/login/", {"username": name, "password": PASSWORD, "next": "/projects/"}).headers["Location"]
    )


def give(client: Client, code: str) -> int:
    return client.post(reverse("login-code"), {"code": code}).status_code


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def story() -> list[tuple[str, str, str]]:
    return list(AuditRecord.objects.order_by("id").values_list("actor_name", "action", "result"))


def test_setting_it_up_gives_ten_recovery_codes(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    _, codes = set_up(client)
    assert len(set(codes)) == 10
    assert ("alice", "second_factor.create", "Succeeded") in story()
    page = client.get(reverse("tenants:security")).content.decode()
    assert "10 recovery codes left" in page
    assert codes[0] not in page


def test_the_picture_is_drawn_in_the_page_and_nothing_is_fetched(client_of: Clients, alice: User) -> None:
    answer = client_of(alice).get(reverse("tenants:second-factor"))
    page = answer.content.decode()
    assert "<svg" in page.split('class="qr')[1]
    assert "no-store" in answer["Cache-Control"]
    assert not re.findall(r'(?:src|href)="https?://', page)


def test_secrets_lie_sealed_in_the_database(client_of: Clients, alice: User) -> None:
    app, codes = set_up(client_of(alice))
    stored = str(list(Authenticator.objects.values_list("data", flat=True)))
    assert app.secret not in stored
    assert codes[0].replace(" ", "") not in stored


def test_a_rotated_secret_key_still_opens_them(
    client: Client, client_of: Clients, alice: User, settings: Settings
) -> None:
    app, _ = set_up(client_of(alice))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = get_random_string(50), [settings.SECRET_KEY]
    sign_in(client)
    assert give(client, app.shows()) == 302
    settings.SECRET_KEY_FALLBACKS = []
    assert Authenticator.objects.count() == 2
    other = Client()
    sign_in(other)
    assert give(other, app.shows(1)) == 302, "it was sealed anew with the new key"


def test_a_wrong_first_code_turns_nothing_on(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    client.get(reverse("tenants:second-factor"))
    answer = client.post(reverse("tenants:second-factor"), {"code": "000000", "proof": PASSWORD})
    assert answer.status_code == 422
    assert not Authenticator.objects.exists()


def test_setting_it_up_asks_for_the_password(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    page = client.get(reverse("tenants:second-factor")).content.decode()
    app = App(re.search(r'<code class="text-break">([A-Z2-7 ]+)</code>', page)[1])  # type: ignore[index]
    client.post(reverse("tenants:second-factor"), {"code": app.shows(), "proof": "wrong"})
    assert not Authenticator.objects.exists()


def test_a_password_alone_opens_nothing(client: Client, client_of: Clients, alice: User) -> None:
    app, _ = set_up(client_of(alice))
    assert sign_in(client) == reverse("login-code")
    assert not is_in(client)
    assert client.get("/projects/").status_code == 302
    answer = client.post(reverse("login-code"), {"code": app.shows()})
    assert answer["Location"] == "/projects/"
    assert is_in(client)
    last = AuditRecord.objects.order_by("-id")[0]
    assert (last.action, last.detail) == ("session.start", {"with": "password, app"})


def test_the_console_is_no_way_round(client: Client, client_of: Clients, alice: User) -> None:
    User.objects.update(is_staff=True, is_superuser=True)
    set_up(client_of(alice))
    answer = client.post("/admin/login/?next=/admin/", {"username": "alice", "password": PASSWORD})
    assert answer["Location"] == reverse("login-code")
    assert client.get("/admin/").status_code == 302


def test_without_a_password_first_there_is_no_second_step(client: Client, alice: User) -> None:
    assert client.get(reverse("login-code"))["Location"] == reverse("login")
    assert client.post(reverse("login-code"), {"code": "123456"})["Location"] == reverse("login")


def test_a_code_counts_once(client: Client, client_of: Clients, alice: User) -> None:
    app, _ = set_up(client_of(alice))
    code = app.shows()
    sign_in(client)
    give(client, code)
    other = Client()
    sign_in(other)
    assert give(other, code) == 200
    assert give(other, app.shows(-1)) == 200, "nor does an older one"
    assert not is_in(other)
    assert story()[-1] == ("alice", "session.start", "Denied")


@pytest.mark.parametrize("periods", [-3, 3])
def test_a_code_of_another_time_is_wrong(client: Client, client_of: Clients, alice: User, periods: int) -> None:
    app, _ = set_up(client_of(alice))
    sign_in(client)
    assert give(client, app.shows(periods)) == 200
    assert not is_in(client)


def test_a_recovery_code_opens_once(client: Client, client_of: Clients, alice: User) -> None:
    _, codes = set_up(client_of(alice))
    sign_in(client)
    assert give(client, codes[3]) == 302
    assert "9 recovery codes left" in client.get("/security/").content.decode()
    other = Client()
    sign_in(other)
    assert give(other, codes[3]) == 200
    assert give(other, codes[4].replace(" ", "")) == 302


def test_t63_codes_are_limited_by_person_from_wherever(client_of: Clients, alice: User, settings: Settings) -> None:
    app, _ = set_up(client_of(alice))
    settings.RUNG_SIGN_IN_LIMITS = {
        "name": (9, 300),
        "account": (99, 300),
        "address": (99, 300),
        "code": (3, 300),
        "code day": (9, 900),
    }
    answers = []
    for number in range(4):
        client = Client(REMOTE_ADDR=f"192.0.2.{number}")
        sign_in(client)
        answers.append(give(client, "000000"))
    assert answers == [200, 200, 200, 429]
    late = client.post(reverse("login-code"), {"code": app.shows()})
    assert late.status_code == 429
    assert 0 < int(late["Retry-After"]) <= 300
    assert not is_in(client)


def test_t63_slow_guessing_is_limited_by_the_day(client_of: Clients, alice: User, settings: Settings) -> None:
    set_up(client_of(alice))
    settings.RUNG_SIGN_IN_LIMITS = {
        "name": (9, 300),
        "account": (99, 300),
        "address": (99, 300),
        "code": (9, 1),
        "code day": (2, 86400),
    }
    client = Client()
    sign_in(client)
    assert [give(client, "000000") for _ in range(3)] == [200, 200, 429]


def test_a_password_that_changes_meanwhile_starts_again(client: Client, client_of: Clients, alice: User) -> None:
    app, _ = set_up(client_of(alice))
    sign_in(client)
    alice.set_password("another correct horse")
    alice.save()
    assert client.post(reverse("login-code"), {"code": app.shows()})["Location"] == reverse("login")
    assert not is_in(client)


def test_t62_a_disabled_person_gets_no_further(client: Client, client_of: Clients, alice: User) -> None:
    app, _ = set_up(client_of(alice))
    sign_in(client)
    User.objects.update(is_active=False)
    assert client.post(reverse("login-code"), {"code": app.shows()})["Location"] == reverse("login")


def test_turning_it_off_needs_the_password(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    set_up(client)
    address = reverse("tenants:security-act", kwargs={"name": "remove-app"})
    assert client.post(address, {"proof": "wrong"}).status_code == 422
    assert Authenticator.objects.exists()
    assert client.post(address, {"proof": PASSWORD}).status_code == 302
    assert not Authenticator.objects.exists()
    assert sign_in(Client()) == "/projects/"
    assert ("alice", "second_factor.delete", "Succeeded") in story()


def test_t63_the_password_is_not_guessed_there_either(client_of: Clients, alice: User, settings: Settings) -> None:
    client = client_of(alice)
    set_up(client)
    settings.RUNG_SIGN_IN_LIMITS = {"name": (2, 300), "account": (99, 300), "address": (9, 300)}
    address = reverse("tenants:security-act", kwargs={"name": "remove-app"})
    tries = [client.post(address, {"proof": guess}).status_code for guess in ("a", "b", PASSWORD)]
    assert tries == [422, 422, 422]
    assert Authenticator.objects.exists()


def test_new_recovery_codes_end_the_old_ones(client: Client, client_of: Clients, alice: User) -> None:
    owner = client_of(alice)
    _, old = set_up(owner)
    address = reverse("tenants:security-act", kwargs={"name": "recovery-codes"})
    new = re.findall(r"<code>([0-9 ]{14})</code>", owner.post(address, {"proof": PASSWORD}).content.decode())
    assert len(set(new)) == 10
    sign_in(client)
    assert give(client, old[0]) == 200
    assert give(client, new[0]) == 302


def test_whom_it_is_asked_of_gets_no_further_without(client: Client, alice: User, settings: Settings) -> None:
    settings.RUNG_MFA_REQUIRED = "everyone"
    sign_in(client)
    assert client.get("/projects/")["Location"] == reverse("tenants:second-factor")
    assert client.get("/projects/", HTTP_HX_REQUEST="true")["HX-Redirect"] == reverse("tenants:second-factor")
    set_up(client)
    assert client.get("/projects/").status_code == 200


def test_it_may_be_asked_of_admins_only(client_of: Clients, alice: User, admin: User, settings: Settings) -> None:
    settings.RUNG_MFA_REQUIRED = "admins"
    assert client_of(alice).get("/projects/").status_code == 200
    assert client_of(admin).get("/projects/").status_code == 302
    assert client_of(admin).get("/admin/").status_code == 302
    assert client_of(admin).post("/logout/").status_code == 302


def test_an_older_session_has_to_show_it_once_it_is_required(
    client_of: Clients, alice: User, settings: Settings
) -> None:
    set_up(client_of(alice))
    alice.refresh_from_db()
    older = client_of(alice)
    settings.RUNG_MFA_REQUIRED = "everyone"
    assert older.get("/projects/")["Location"] == reverse("login")
    assert not is_in(older)


def test_setting_it_up_ends_every_other_session(client_of: Clients, alice: User) -> None:
    other, own = client_of(alice), client_of(alice)
    set_up(own)
    assert own.get("/security/").status_code == 200
    assert other.get("/security/").status_code == 302


def test_an_admin_resets_it_and_that_is_recorded(client_of: Clients, alice: User, admin: User) -> None:
    set_up(client_of(alice))
    chosen = {"action": "reset_second_factor", "_selected_action": [str(alice.pk)]}
    client_of(admin).post("/admin/tenants/user/", chosen)
    assert not Authenticator.objects.exists()
    assert story()[-1] == ("admin", "second_factor.reset", "Succeeded")
    assert AuditRecord.objects.order_by("-id")[0].entity_name == "alice"


def test_nobody_else_resets_it(client_of: Clients, alice: User) -> None:
    set_up(client_of(alice))
    staff = UserFactory.create(is_staff=True)
    chosen = {"action": "reset_second_factor", "_selected_action": [str(alice.pk)]}
    client_of(staff).post("/admin/tenants/user/", chosen)
    assert Authenticator.objects.exists()


def test_the_console_shows_none_of_the_tables_behind_it(client_of: Clients, admin: User) -> None:
    page = client_of(admin).get("/admin/").content.decode()
    for app in ("mfa", "account", "socialaccount"):
        assert f"/admin/{app}/" not in page
