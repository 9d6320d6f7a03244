"""Setting a second factor up and signing in with it, as a person does it in a browser."""

import re
import time

from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from playwright.sync_api import Page
from pytest_django.fixtures import Settings

from tenants.access.models import User
from tests.browser.conftest import Visitor
from tests.browser.test_every_page import findings
from tests.factories.tenants import PASSWORD


def sign_in(page: Page, user: User) -> None:
    page.fill("input[name=username]", user.username)
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")


def shown(secret: str, periods_from_now: int) -> str:
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + periods_from_now)))


def test_whom_it_is_asked_of_sets_it_up_and_comes_in_with_it(visit: Visitor, alice: User, settings: Settings) -> None:
    settings.RUNG_MFA_REQUIRED = "everyone"
    settings.RUNG_OIDC_ISSUER = "https://login.example.org"
    window = visit(None)
    page = window.open("/login/")
    assert findings(page) == []
    sign_in(page, alice)
    page.wait_for_url("**/security/second-factor/")
    secret = page.inner_text("code.text-break").replace(" ", "")
    page.fill("input[name=code]", shown(secret, -1))
    page.fill("input[name=proof]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_selector(".recovery-codes")
    assert findings(page) == []
    page.get_by_role("button", name="Account alice").click()
    page.click("text=Sign out")
    page.wait_for_url("**/login/")
    sign_in(page, alice)
    page.wait_for_url("**/login/code/")
    assert findings(page) == []
    page.fill("input[name=code]", shown(secret, 0))
    page.click("button[type=submit]")
    page.wait_for_url(re.compile(r":\d+/$"))
    assert (window.foreign, window.complaints) == ([], [])
