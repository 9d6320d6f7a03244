"""Every page, in both themes, narrow and wide: no axe finding, no foreign request, no complaint, no sideways scroll."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tenants.models import User
from tests.e2e.conftest import Visit, Visitor, name_of

LOOKS = [(theme, size) for theme in ("light", "dark") for size in ("wide", "narrow")]


def findings(page: Page) -> list[str]:
    """Rule and first element of everything axe finds."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:300]}" for each in found
    ]


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=[f"{theme} {size}" for theme, size in LOOKS])
def test_is_accessible_quiet_and_asks_nobody_else(
    visit: Visitor, organisation: dict[str, str], admin: User, theme: str, size: str
) -> None:
    _look_at(visit(admin, theme=theme, size=size), organisation, theme, size)


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=[f"{theme} {size}" for theme, size in LOOKS])
def test_so_are_differences_runs_and_plain_clusters(
    visit: Visitor, estate: dict[str, str], admin: User, theme: str, size: str
) -> None:
    _look_at(visit(admin, theme=theme, size=size), estate, theme, size)


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=[f"{theme} {size}" for theme, size in LOOKS])
def test_signing_in_is_accessible(visit: Visitor, db: None, theme: str, size: str) -> None:
    window = visit(None, theme=theme, size=size)
    page = window.open("/login/")
    _picture(page, f"sign-in-{theme}-{size}")
    assert findings(page) == []
    assert window.foreign == []


def _look_at(window: Visit, pages: dict[str, str], theme: str, size: str) -> None:
    """Open page after page; what is wrong is told by name."""
    wrong: dict[str, object] = {}
    for name, address in pages.items():
        page = window.open(address)
        _picture(page, f"{name_of(name)}-{theme}-{size}")
        width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        complaints = [said for said in window.complaints if "404" not in said or name != "absent"]
        window.complaints.clear()
        if found := [*findings(page), *complaints, *(["scrolls sideways"] if width > 0 else [])]:
            wrong[name] = found
    assert wrong == {}
    assert window.foreign == []


def _picture(page: Page, name: str) -> None:
    """Pictures are kept where `RUNG_PICTURES` says, for people to look at."""
    if folder := os.environ.get("RUNG_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
