"""Quota requests in the browser, and the links to them where quota is what is short."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import NodePool
from scheduling.forecast.headroom import Bound, Headroom
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.quota_rows import startable_rows
from tests.factories.tenants import GPU
from tests.workloads.quota_requests.conftest import Asks
from tests.workloads.sandbox_lab import Lab
from workloads.forecast.rules.reasons import CODES, SHORT_OF_QUOTA
from workloads.forecast.selectors.waiting import why_waiting
from workloads.quota_requests.models import QuotaRequest
from workloads.state.models import Phase, Workload

Clients = Callable[[User], Client]
PATH = "/quota-requests/"
ASK = "/quota-requests/add/?project=llm-team&amp;pool=h100"
DEPARTMENT_QUOTA = "/quotas/?cluster=lab&amp;pool=h100&amp;q=research"


@pytest.fixture
def bobs(client_of: Clients, bob: User, vision_team: Project) -> Client:
    return client_of(bob)


@pytest.fixture
def doras(client_of: Clients, dora: User) -> Client:
    return client_of(dora)


def words(client: Client, path: str = PATH) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return " ".join(answer.content.decode().split())


def test_without_requests_the_page_says_what_they_are_for(bobs: Client, doras: Client) -> None:
    assert "Ask for more GPUs when a quota keeps your workloads waiting" in words(bobs)
    assert "Waiting for your decision" not in words(bobs)
    assert "No open requests. New ones appear here" in words(doras)
    assert Client().get(PATH).status_code == 302


def test_it_is_requested_reviewed_and_approved(bobs: Client, doras: Client, llm_team: Project) -> None:
    form = words(bobs, ASK.replace("&amp;", "&"))
    assert '<option value="llm-team" selected>' in form
    assert '<option value="h100 on lab" selected>' in form
    assert "vision-team" not in form
    requested = {"project": "llm-team", "node_pool": "h100 on lab", "gpus": "6", "reason": "Paper <deadline>"}
    answer = bobs.post(f"{PATH}add/", requested)
    row = QuotaRequest.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"{PATH}{row.pk}/")
    page = words(bobs, f"{PATH}{row.pk}/")
    assert "llm-team deserves 10 GPUs in h100 instead of 4. Its limit rises from 12 to 18." in page
    assert "Projects of research deserve 10 GPUs in total instead of 4; the department deserves 8." in page
    assert "It does not change what projects can reclaim from each other, by the use observed then." in page
    assert "Free GPUs of the pool: 16." in page
    assert "Paper &lt;deadline&gt;" in page
    assert f"{PATH}{row.pk}/withdraw/" in page
    assert f"{PATH}{row.pk}/approve/" not in page
    assert "6 GPUs more for llm-team in h100" in words(doras)
    review = words(doras, f"{PATH}{row.pk}/")
    assert f'name="base" value="{row.base}"' in review
    answer = doras.post(f"{PATH}{row.pk}/approve/", {"base": row.base, "gpus": "2", "until": "", "reason": "For now"})
    assert answer.status_code == 302, answer.content
    done = words(bobs, f"{PATH}{row.pk}/")
    assert "dora granted 2 GPUs" in done
    assert "2 of 6 GPUs granted for llm-team in h100" in done
    assert "Approved in part" in done
    assert "2 of 6 GPUs granted for llm-team in h100" in words(bobs)
    assert "“For now”" in done
    assert "Not yet on lab." in done
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 6 * GPU


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param({"gpus": "1000000000"}, "h100 has 16 GPUs in total.", id="more than the pool has"),
        pytest.param({"gpus": "0"}, "Enter more than 0 GPUs", id="none"),
        pytest.param({"reason": ""}, "This field is required.", id="no reason"),
        pytest.param({"until": "2001-01-01"}, "Must be from today to", id="a past day"),
        pytest.param({"project": "vision-team"}, "Select a valid choice", id="another's project"),
    ],
)
def test_a_refusal_is_shown_at_its_field(bobs: Client, more: dict[str, str], says: str) -> None:
    requested = {"project": "llm-team", "node_pool": "h100 on lab", "gpus": "2", "reason": "why", **more}
    answer = bobs.post(f"{PATH}add/", requested)
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert not QuotaRequest.objects.exists()


def test_on_a_moved_base_the_new_impact_is_shown_before_it_can_be_approved(
    asks: Asks, doras: Client, llm_team: Project
) -> None:
    row = asks()
    shown = {"base": row.base, "gpus": "2", "until": "", "reason": ""}
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=5 * GPU)
    assert "Quotas have changed since this was computed." in words(doras, f"{PATH}{row.pk}/")
    answer = doras.post(f"{PATH}{row.pk}/approve/", shown)
    page = " ".join(answer.content.decode().split())
    assert answer.status_code == 409
    assert "Review the new impact, then approve again." in page
    assert "llm-team deserves 7 GPUs in h100 instead of 5." in page
    row.refresh_from_db()
    assert f'name="base" value="{row.base}"' in page
    assert doras.post(f"{PATH}{row.pk}/approve/", shown | {"base": row.base}).status_code == 302


def test_it_is_declined_with_a_reason_that_its_author_reads(asks: Asks, bobs: Client, doras: Client) -> None:
    row = asks()
    assert doras.post(f"{PATH}{row.pk}/decline/", {"reason": ""}).status_code == 422
    assert doras.post(f"{PATH}{row.pk}/decline/", {"reason": "Use a100"}).status_code == 302
    assert "dora declined it" in words(bobs, f"{PATH}{row.pk}/")
    assert "Declined" in words(bobs)


def test_each_button_says_how_the_same_is_done_from_elsewhere(asks: Asks, bobs: Client, doras: Client) -> None:
    row = asks()
    asking = {"HX-Request": "true", "HX-Target": "act-copies"}
    sent = {"base": row.base, "gpus": "1", "until": "", "reason": "For now"}
    found = doras.post(f"{PATH}{row.pk}/approve/", sent, headers=asking).content.decode()
    assert f"rung quota approve {row.pk} --gpus 1 --reason &#x27;For now&#x27; --yes" in found
    assert row.base in found
    found = doras.post(f"{PATH}{row.pk}/decline/", {"reason": "no"}, headers=asking).content.decode()
    assert f"rung quota decline {row.pk} --reason no" in found
    found = bobs.post(f"{PATH}{row.pk}/withdraw/", headers=asking).content.decode()
    assert f"rung quota withdraw {row.pk}" in found
    requested = {"project": "llm-team", "node_pool": "h100 on lab", "gpus": "2", "reason": "why"}
    found = bobs.post(f"{PATH}add/", requested, headers=asking).content.decode()
    assert "rung quota request -p llm-team --pool h100 --reason why -- 2" in found
    row.refresh_from_db()
    assert (row.state, QuotaRequest.objects.count()) == ("open", 1)


def test_its_author_withdraws_it_and_others_may_not_decide(asks: Asks, bobs: Client) -> None:
    row = asks()
    assert bobs.post(f"{PATH}{row.pk}/approve/", {"base": row.base, "gpus": "2"}).status_code == 403
    assert bobs.post(f"{PATH}{row.pk}/withdraw/").status_code == 302
    assert "Withdrawn" in words(bobs, f"{PATH}{row.pk}/")


def test_another_projects_request_is_absent(asks: Asks, client_of: Clients, charlie: User) -> None:
    row, other = asks(), client_of(charlie)
    assert other.get(f"{PATH}{row.pk}/").status_code == 404
    for verb in ("approve", "decline", "withdraw"):
        assert other.post(f"{PATH}{row.pk}/{verb}/", {"reason": "x"}).status_code == 404
    assert other.get(f"{PATH}?project=llm-team").status_code == 404
    assert "llm-team" not in words(other)


def test_why_gpus_could_not_be_taken_back_is_said(asks: Asks, bobs: Client) -> None:
    row = asks()
    QuotaRequest.objects.update(
        state="approved", decided_at=timezone.now(), decided_by="dora", granted_milli=2000,
        ends_at=timezone.now() - timedelta(days=1), kept_because="Non-preemptible workloads use 5 GPUs.",
    )  # fmt: skip
    page = words(bobs, f"{PATH}{row.pk}/")
    assert "cannot be taken back yet: Non-preemptible workloads use 5 GPUs. Rung retries every minute." in page


def test_the_project_page_asks_for_more_and_lists_its_requests(asks: Asks, bobs: Client) -> None:
    asks()
    page = words(bobs, "/projects/llm-team/")
    assert 'href="/quota-requests/add/?project=llm-team"' in page
    assert "2 GPUs more for llm-team in h100" in words(bobs, f"{PATH}?project=llm-team")


@pytest.mark.parametrize(
    ("found", "requested"),
    [
        pytest.param(Headroom(2000, 0, 2000, 0, Bound.FREE), False, id="no GPU is free"),
        pytest.param(Headroom(0, 2000, 2000, 0, Bound.FREE), True, id="only over quota"),
        pytest.param(Headroom(2000, 0, 2000, 0, Bound.PROJECT_LIMIT, 4000), True, id="at its limit"),
    ],
)
def test_a_quota_bar_asks_for_more_where_quota_is_short(
    llm_team: Project, h100: NodePool, found: Headroom, requested: bool
) -> None:
    row = replace(next(row for row in startable_rows(llm_team) if row.pool == h100), headroom=found)
    assert (ASK in render_to_string("tenants/quotas/quota_rows.html", {"rows": [row]})) is requested


def test_where_the_limit_of_the_department_binds_no_request_is_offered(
    llm_team: Project, research: Department, h100: NodePool, alice: User, admin: User, client_of: Clients
) -> None:
    """A request raises the quota of the project only."""
    research.quotas.update(gpu_deserved=3 * GPU, gpu_limit=3 * GPU)
    for path in ("/", "/projects/", "/projects/llm-team/"):
        own, theirs = words(client_of(alice), path), words(client_of(admin), path)
        assert ASK not in own + theirs
        limit = "Limit of department research: 3 GPUs (0 in use)."
        assert f"{limit} Only an admin who may set the department's quota can raise it." in own
        assert f'{limit} <a href="{DEPARTMENT_QUOTA}">Change the department' in theirs
    assert ' value="research"' in words(client_of(admin), DEPARTMENT_QUOTA.replace("&amp;", "&"))


def test_a_workload_that_its_department_limits_offers_no_request(db: None, admin: User, client_of: Clients) -> None:
    lab = Lab()
    project = lab.project("llm-team", deserved=2)
    DepartmentQuota.objects.update(gpu_deserved=2 * GPU, gpu_limit=2 * GPU)
    lab.settle(1)
    lab.submit(project, "first", gpus=2)
    lab.settle()
    waiting = lab.submit(project, "second", gpus=2)
    lab.settle(4)
    client = client_of(admin)
    page = words(client, f"/workloads/{waiting.pk}/")
    assert f'of its limit of 2 GPUs. <a href="{DEPARTMENT_QUOTA}">' in page
    form = {"type": "Training", "project": "llm-team", "name": "third", "image": "docker.io/a/b:1", "gpus": "2"}
    for gpus, text in (("1", "of its limit of 2 GPUs"), ("3", "the limit of department research is 2 GPUs")):
        sent = {**form, "gpus": gpus}
        answer = client.post("/workloads/submit/", sent, headers={"HX-Request": "true", "HX-Target": "forecast"})
        found = " ".join(answer.content.decode().split())
        assert f'{text}. <a href="{DEPARTMENT_QUOTA}">' in found
        assert ASK not in found + page


def test_every_code_that_asks_for_quota_is_a_known_one() -> None:
    assert set(CODES) >= SHORT_OF_QUOTA


def test_what_waits_for_quota_links_to_a_request(db: None, admin: User, client_of: Clients) -> None:
    lab = Lab()
    project = lab.project("llm-team", deserved=2)
    lab.settle(1)
    requested = {"priority": "high", "preemptibility": "non-preemptible"}
    lab.submit(project, "first", gpus=2, **requested)
    lab.submit(project, "second", gpus=2, **requested)
    lab.settle(4)
    (waiting,) = Workload.objects.select_related("project__cluster", "type", "priority").filter(phase=Phase.PENDING)
    headline = why_waiting(waiting)
    assert headline is not None
    assert headline.short_of_quota, headline
    client = client_of(admin)
    assert ASK in words(client, f"/workloads/{waiting.pk}/")
    form = {"type": "Training", "project": "llm-team", "name": "third", "image": "docker.io/a/b:1", "gpus": "2"}
    sent = {**form, "priority": "high", "preemptibility": "non-preemptible"}
    answer = client.post("/workloads/submit/", sent, headers={"HX-Request": "true", "HX-Target": "forecast"})
    assert ASK in answer.content.decode(), answer.content.decode()


def test_what_would_wait_for_gpus_with_more_quota_too_names_both_and_links_to_no_request(
    db: None, admin: User, client_of: Clients
) -> None:
    lab = Lab()
    project = lab.project("llm-team", deserved=7, limit=7)
    lab.submit(project, "first", gpus=7, priority="high")
    lab.settle(4)
    waiting = lab.submit(project, "second", gpus=2, priority="high")
    lab.settle(4)
    client = client_of(admin)
    page = words(client, f"/workloads/{waiting.pk}/")
    form = {"type": "Training", "project": "llm-team", "name": "third", "image": "docker.io/a/b:1", "gpus": "2"}
    answer = client.post(
        "/workloads/submit/",
        {**form, "priority": "high"},
        headers={"HX-Request": "true", "HX-Target": "forecast"},
    )
    preview = " ".join(answer.content.decode().split())
    for text in (page, preview):
        assert "project llm-team uses 7 GPUs of its limit of 7 GPUs" in text
        assert "Even with enough quota it waits: 1 GPU free, at most 1 on one node, and the scheduler finds no" in text
        assert ASK not in text
    lab.node("more")
    lab.settle(1)
    assert ASK in words(client, f"/workloads/{waiting.pk}/"), "raising the limit alone would let it start"
