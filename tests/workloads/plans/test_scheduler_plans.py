"""Plans of another scheduler: who can evict whom before and after, what is no longer enforced, and how much changes."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.utils.html import strip_tags

from clusters.inventory.models import Cluster
from portal.kit.security.actors import Actor
from tenants.access.models import User
from tenants.organisation.models import Project
from workloads.plans.models import Plan
from workloads.plans.services.plans import plan_change

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
IN_QUEUE = "within one queue, preemptible workloads only"
ANYWHERE = "in the whole cluster, in any project, including non-preemptible workloads"


def switch(actor: Actor, flavour: str) -> Plan:
    return plan_change(kind="scheduler", change={"cluster": "lab", "flavour": flavour}, actor=actor)


def text_of(client: Client, plan: Plan) -> str:
    return " ".join(strip_tags(client.get(f"/plans/{plan.pk}/").content.decode()).split())


def test_a_warning_says_that_a_guarantee_ends_before_it_says_why(llm_team: Project, as_admin: Actor) -> None:
    warnings = switch(as_admin, "kube").effect["warnings"]
    assert (
        "No longer enforced: non-preemptible workloads are never evicted. The kube-scheduler has no preemptibility: "
        "a higher priority may evict any lower one."
    ) in warnings
    partly = "Only partly enforced: a department's limit caps its projects. Kubernetes has no departments."
    assert any(each.startswith(partly) for each in warnings)


def test_the_page_counts_objects_as_the_sentence_does(
    client_of: Clients, admin: User, llm_team: Project, as_admin: Actor
) -> None:
    plan = switch(as_admin, "kueue")
    rows = plan.effect["objects"][0]["changes"]
    number = sum(row["count"] for row in rows)
    assert number > len(rows)
    assert f"{number} objects created on 1 cluster" in plan.effect["sentence"]
    assert f"{number} objects + created: " in text_of(client_of(admin), plan)


def test_the_title_names_the_scheduler_as_pages_do(llm_team: Project, as_admin: Actor) -> None:
    assert switch(as_admin, "kube").title == "Scheduler of lab: kube-scheduler"


class TestWhoEvictsWhom:
    """A scheduler that evicts other workloads than the one before, by the same priorities."""

    def test_pairs_that_also_evict_non_preemptible_workloads_are_changes(
        self, llm_team: Project, as_admin: Actor
    ) -> None:
        (scope,) = switch(as_admin, "kube").effect["victims"]["scopes"]
        assert (scope["reach_before"], scope["reach"]) == (IN_QUEUE, ANYWHERE)
        assert (scope["new"], scope["lost"]) == ([], [])
        assert ["high", "low"] in scope["changed"]
        cells = {(row["who"], cell["whom"]): cell for row in scope["matrix"] for cell in row["cells"]}
        assert cells["high", "low"] == {"whom": "low", "before": "preemptible", "evicts": "all", "mark": "~"}
        assert cells["low", "high"]["mark"] == ""
        over, within = scope["elsewhere"]
        assert over.startswith("In another project above its deserved quota: 28 pairs lost, 21 pairs extended to")
        assert within == "In another project within its deserved quota: 21 pairs gained."

    def test_the_way_back_restricts_the_same_pairs(self, llm_team: Project, as_admin: Actor) -> None:
        there = switch(as_admin, "kube").effect["victims"]
        Cluster.objects.update(flavour="kube")
        (scope,) = switch(as_admin, "kai").effect["victims"]["scopes"]
        assert (scope["reach_before"], scope["reach"]) == (ANYWHERE, IN_QUEUE)
        assert scope["changed"] == there["changed"]
        assert {cell["evicts"] for row in scope["matrix"] for cell in row["cells"] if cell["mark"]} == {"preemptible"}

    def test_the_page_shows_both_reaches_and_marks_the_changed_cells(
        self, client_of: Clients, admin: User, llm_team: Project, as_admin: Actor
    ) -> None:
        page = text_of(client_of(admin), switch(as_admin, "kube"))
        assert f"{IN_QUEUE} → becomes {ANYWHERE}." in page
        assert "0 pairs gained (+), 0 lost (−), 21 changed (~)." in page
        assert "~ preemptible yes" in page
        assert "No change on these clusters" not in page
        assert "No pair of priorities changes" not in page
