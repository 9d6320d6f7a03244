"""Who can evict whom, the same in a plan, and loans on a project's page: accessible; one sheet on paper."""

import re

import pytest

from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.browser.conftest import Visitor
from tests.browser.test_every_page import LOOKS, PATIENCE, findings, picture
from tests.tenants.usage.test_borrowing import sampled
from tests.workloads.dictionary.test_eviction_matrix import runs
from workloads.dictionary.services.plans import plan_priority_change


@pytest.fixture
def pages(llm_team: Project, vision_team: Project, h100: NodePool) -> dict[str, str]:
    """llm-team is over quota at the cost of vision-team's department."""
    Cluster.objects.update(flavour="kai")
    runs(llm_team, h100, 10)
    sampled(llm_team, 4, 6, 8, 10)
    sampled(vision_team, 0, 0, 0, 0)
    plan = plan_priority_change(change={"op": "change", "name": "medium", "value": 130}, actor=SYSTEM)
    return {
        "eviction-matrix": "/eviction-matrix/",
        "eviction-plan": f"/plans/{plan.pk}/",
        "borrowing": "/projects/llm-team/",
    }


@pytest.mark.timeout(PATIENCE)
def test_they_are_accessible_in_every_look(visit: Visitor, pages: dict[str, str], admin: User) -> None:
    window = visit(admin)
    wrong: dict[str, object] = {}
    for name, address in pages.items():
        page = window.open(address)
        for theme, size in LOOKS:
            window.look(theme, size)
            picture(page, f"{name}-{theme}-{size}")
            width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if found := [*findings(page), *(["scrolls sideways"] if width > 0 else [])]:
                wrong[f"{name}, {theme} {size}"] = found
    assert (wrong, window.complaints, window.foreign) == ({}, [], [])


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("flavour", ["kai", "kube", "kueue"])
def test_the_matrix_prints_on_one_sheet(visit: Visitor, pages: dict[str, str], admin: User, flavour: str) -> None:
    Cluster.objects.update(flavour=flavour)
    paper = visit(admin).open(pages["eviction-matrix"]).pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", paper)) == 1
