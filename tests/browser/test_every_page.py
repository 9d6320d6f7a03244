"""Every page, in both themes, narrow and wide: no axe finding, no foreign request, no complaint, no sideways scroll,
nothing covered.

A page is seen in each theme and each size once, and the next page in the other two pairs: pages share their parts.
"""

import os
from itertools import cycle
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tenants.access.models import User
from tests.browser.conftest import Visit, Visitor, name_of

LOOKS = [(theme, size) for theme in ("light", "dark") for size in ("wide", "narrow")]
PAIRS = [("light", "wide"), ("dark", "narrow")], [("light", "narrow"), ("dark", "wide")]

REMEMBER_COLOURS = """(() => {
const {prototype} = axe.commons.color.Color, parse = prototype.parseString, known = {};
const copied = ({r, g, b, alpha}) => ({r, g, b, alpha});
prototype.parseString = function (text) {
  return Object.assign(this, known[text] ??= copied(parse.call(this, text)));
};
})()"""
"""axe parses the few colours of a page thousands of times, which is a quarter of its time."""

COVERED = """() => {
const reached = document.querySelectorAll('main :is(a, button, summary, input, select, textarea)');
return [...reached].filter((each) => {
if (!each.checkVisibility({visibilityProperty: true, opacityProperty: true})) return false;
each.scrollIntoView({block: 'center', behavior: 'instant'});
const {left, top, width, height} = each.getClientRects()[0] ?? new DOMRect();
const hit = width * height && document.elementFromPoint(left + width / 2, top + height / 2);
return hit && !each.contains(hit) && !hit.contains(each);
}).map((each) => `covered: ${each.outerHTML.slice(0, 200)}`);
}"""
"""What a mouse cannot reach because another element lies above its middle."""

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

WIDTHS = (320, 1024, 1200, 1440)
"""Widths of windows besides those in which pages are looked at."""

OVERLAPS = """() => {
const reached = document.querySelectorAll('header :is(.navbar-brand, .nav-link, button)');
const boxes = [...reached].filter((each) => each.checkVisibility())
.map((each) => [each.innerText.trim() || each.ariaLabel, each.getBoundingClientRect()]);
const apart = (one, other) => one.right <= other.left + 1 || one.bottom <= other.top + 1;
return boxes.flatMap(([name, one], place) => boxes.slice(place + 1)
.filter(([, other]) => !apart(one, other) && !apart(other, one)).map(([other]) => `${name} overlaps ${other}`));
}"""

PATIENCE = 600  # all pages: half a minute on two idle cores


def findings(page: Page) -> list[str]:
    """Rule and first element of everything axe finds."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(Axe().axe_script)
        page.evaluate(REMEMBER_COLOURS)
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then((said) => said.violations)")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:300]}" for each in found
    ]


@pytest.mark.timeout(PATIENCE)
def test_every_page_is_accessible_and_loads_nothing_from_other_hosts(
    visit: Visitor, organisation: dict[str, str], admin: User
) -> None:
    _look_at(visit(admin), organisation)


@pytest.mark.timeout(PATIENCE)
def test_differences_and_sync_runs_are_accessible_too(visit: Visitor, estate: dict[str, str], admin: User) -> None:
    _look_at(visit(admin), estate)


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=[f"{theme} {size}" for theme, size in LOOKS])
def test_signing_in_is_accessible(visit: Visitor, db: None, theme: str, size: str) -> None:
    window = visit(None, theme=theme, size=size)
    page = window.open("/login/")
    picture(page, f"sign-in-{theme}-{size}")
    assert findings(page) == []
    assert window.foreign == []


@pytest.mark.parametrize("name", ["alice", "maximiliana.featherstonehaugh@research.example.com"])
def test_the_menu_fits_at_every_width(visit: Visitor, admin: User, name: str) -> None:
    admin.username = name
    admin.save()
    page = visit(admin).open("/")
    wrong: dict[int, object] = {}
    for width in range(320, 1921, 20):
        page.set_viewport_size({"width": width, "height": 900})
        if found := [*page.evaluate(OVERLAPS), *(["scrolls sideways"] if page.evaluate(SIDEWAYS) > 0 else [])]:
            wrong[width] = found
    assert wrong == {}
    page.get_by_role("button", name=f"Account {name}").click()
    expect(page.get_by_role("link", name="Access keys")).to_be_visible()


def _look_at(window: Visit, pages: dict[str, str]) -> None:
    """Open page after page, and see each in one pair of looks; findings are listed by the name of the page.

    A page is loaded in the look that the page before was seen in last.
    """
    wrong: dict[str, object] = {}
    for (name, address), looks in zip(pages.items(), cycle(PAIRS)):
        page = window.open(address)
        for theme, size in looks:
            window.look(theme, size)
            picture(page, f"{name_of(name)}-{theme}-{size}")
            sideways = ["scrolls sideways"] if page.evaluate(SIDEWAYS) > 0 else []
            if found := [*findings(page), *page.evaluate(COVERED), *sideways]:
                wrong[f"{name}, {theme} {size}"] = found
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate(SIDEWAYS) > 0:
                wrong[f"{name}, {width} wide"] = "scrolls sideways"
        if complaints := [said for said in window.complaints if "404" not in said or name != "absent"]:
            wrong[name] = complaints
        window.complaints.clear()
    assert wrong == {}
    assert window.foreign == []


def picture(page: Page, name: str) -> None:
    """Pictures are kept where `RUNG_PICTURES` says, for people to look at."""
    if folder := os.environ.get("RUNG_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
