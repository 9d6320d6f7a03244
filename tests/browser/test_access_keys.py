"""An access key made, copied, turned and revoked in a browser."""

import pytest
from playwright.sync_api import Dialog, Page, expect

from tenants.access.models import AccessKey, User
from tenants.organisation.models import Project
from tests.browser.conftest import Visit, Visitor
from tests.browser.test_every_page import LOOKS, findings, picture

URL = "/access-keys/"


@pytest.fixture
def window(visit: Visitor, alice: User, llm_team: Project) -> Visit:
    """Alice's browser, which may use the clipboard."""
    opened = visit(alice)
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return opened


def make(page: Page) -> None:
    page.get_by_label("Name").fill("nightly-training")
    page.get_by_label("Scope").select_option("project llm-team")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("heading", name="Secret of nightly-training")).to_be_visible()


def wrong_in_any_look(window: Visit, name: str) -> list[str]:
    found = []
    for theme, size in LOOKS:
        window.look(theme, size)
        picture(window.page, f"{name}-{theme}-{size}")
        width = window.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found += [*findings(window.page), *(["scrolls sideways"] if width > 0 else [])]
    return found


def test_the_menu_leads_to_an_invitation(window: Visit) -> None:
    page = window.open("/projects/")
    page.get_by_role("button", name="alice").click()
    page.get_by_role("link", name="Access keys").click()
    expect(page.get_by_text("No access keys yet")).to_be_visible()
    assert wrong_in_any_look(window, "no-access-key") == []


def test_the_form_says_how_a_program_makes_the_same_key_while_it_is_filled(window: Visit) -> None:
    page = window.open(URL)
    page.get_by_text("Copy as YAML, curl, rung, Python").click()
    expect(page.locator("#copies")).to_contain_text("Enter the required fields first: Name.")
    page.get_by_label("Name").press_sequentially("nightly")
    expect(page.locator("#copy-text-yaml")).to_contain_text("name: nightly")
    page.get_by_role("tab", name="curl").click()
    expect(page.locator("#copy-text-curl")).to_contain_text('"name": "nightly"')
    assert wrong_in_any_look(window, "access-key-copies") == []
    page.get_by_role("button", name="Copy curl").click()
    assert "/api/v1/access-keys" in page.evaluate("navigator.clipboard.readText()")
    assert window.complaints == []
    assert not AccessKey.objects.exists()


def test_a_secret_is_shown_with_lines_to_copy(window: Visit) -> None:
    page = window.open(URL)
    make(page)
    secret = page.locator("#client-secret").inner_text()
    page.get_by_role("button", name="Copy the secret").click()
    expect(page.locator("[data-copy='client-secret']")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    assert wrong_in_any_look(window, "access-key-secret") == []
    assert window.complaints == []
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("Never used.")).to_be_visible()
    assert wrong_in_any_look(window, "access-keys") == []
    expect(page.get_by_text(secret)).to_have_count(0)


def test_a_key_ends_only_after_a_second_thought(window: Visit) -> None:
    page = window.open(URL)
    make(page)
    window.open(URL)
    answers = iter(["dismiss", "accept"])
    page.on("dialog", lambda requested: _answer(requested, next(answers)))
    revoke = page.get_by_role("button", name="Revoke nightly-training", exact=True)
    revoke.click()
    expect(revoke).to_be_visible()
    assert AccessKey.objects.exists()
    revoke.click()
    expect(page.get_by_text("Revoked nightly-training")).to_be_visible()
    assert not AccessKey.objects.exists()


def _answer(requested: Dialog, what: str) -> None:
    assert "This cannot be undone" in requested.message
    if what == "accept":
        requested.accept()
    else:
        requested.dismiss()
