"""What holds for every page: who gets in, whose forms are believed, where redirects lead, who may keep a copy."""

import uuid
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.tenants import PASSWORD
from tests.factories.workloads import WorkloadFactory
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
HTMX = {"HTTP_HX_REQUEST": "true"}

PAGES = [
    "/",
    "/workloads/",
    "/workloads/submit/",
    "/workloads/submit/yaml/",
    "/projects/",
    "/projects/llm-team/",
    "/priorities/",
    "/eviction-matrix/",
    "/types/",
    "/clusters/",
    "/clusters/lab/",
    "/audit/",
    "/security/",
    "/security/second-factor/",
    "/notifications/",
    "/templates/",
]


@pytest.fixture
def workload(llm_team: Project, alice: User) -> Workload:
    """A waiting workload of alice."""
    made: Workload = WorkloadFactory.create(project=llm_team, name="mine", submitted_by_id=str(alice.pk))
    return made


def verbs(workload: Workload) -> list[str]:
    """Every address of a page that changes something."""
    one = {"workload_id": workload.pk}
    plan = {"plan_id": uuid.uuid4()}
    return [
        reverse("workloads:bulk"),
        reverse("workloads:submit"),
        reverse("workloads:submit-yaml"),
        *(
            reverse(f"workloads:{verb}", kwargs=one)
            for verb in ("stop", "resume", "delete", "change-priority", "way-out")
        ),
        reverse("workloads:priority-add"),
        reverse("workloads:priority", kwargs={"name": "low"}),
        reverse("workloads:priority-retire", kwargs={"name": "low"}),
        reverse("workloads:preset", kwargs={"name": "runai"}),
        reverse("workloads:plan-apply", kwargs=plan),
        reverse("workloads:plan-discard", kwargs=plan),
        reverse("workloads:notifications"),
        reverse("workloads:mail-switch"),
        reverse("workloads:channel-add"),
        *(reverse(f"workloads:channel{verb}", kwargs={"name": "email"}) for verb in ("", "-test", "-delete")),
        reverse("workloads:template-add"),
        *(reverse(f"workloads:template{verb}", kwargs={"template_id": uuid.uuid4()}) for verb in ("", "-delete")),
        reverse("clusters:reconcile", kwargs={"name": "lab"}),
        reverse("tenants:second-factor"),
        *(reverse("tenants:security-act", kwargs={"name": name}) for name in ("remove-app", "recovery-codes")),
        reverse("logout"),
    ]


@pytest.mark.parametrize("page", PAGES)
def test_strangers_are_sent_to_sign_in(client: Client, llm_team: Project, page: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/?next=")


@pytest.mark.parametrize("page", PAGES)
def test_t54_strangers_get_no_part_of_a_page_either(client: Client, llm_team: Project, page: str) -> None:
    for part in ("table", "today", "cluster", "clusters", "records", "forecast", "workload"):
        answer = client.get(page, headers={"HX-Request": "true", "HX-Target": part})
        assert answer.status_code == 204
        assert answer["HX-Redirect"].startswith("/login/?next=")
        assert answer.content == b""


@pytest.mark.parametrize("page", PAGES)
def test_t56_no_cache_keeps_a_page(client_of: Clients, alice: User, page: str) -> None:
    answer = client_of(alice).get(page)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    assert {"Cookie", "HX-Request", "HX-Target"} <= {each.strip() for each in answer["Vary"].split(",")}


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["a form", "htmx"])
def test_t60_a_form_of_another_site_changes_nothing(alice: User, workload: Workload, headers: dict[str, str]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    for address in verbs(workload):
        answer = client.post(address, {"verb": "delete", "id": str(workload.pk), "priority": "high"}, **headers)
        assert answer.status_code == 403, address
    before = workload.generation
    workload.refresh_from_db()
    assert workload.generation == before


def test_t60_nothing_changes_by_following_a_link(client_of: Clients, admin: User, workload: Workload) -> None:
    client = client_of(admin)
    for verb in ("stop", "resume", "delete", "change-priority", "way-out"):
        assert client.get(reverse(f"workloads:{verb}", kwargs={"workload_id": workload.pk})).status_code == 405
    assert client.get("/clusters/lab/reconcile/").status_code == 405


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/x", "javascript:alert(1)", "https:evil.example"]
)
def test_t61_signing_in_leads_to_this_site_only(client: Client, alice: User, target: str) -> None:
    answer = client.post("/login/", {"username": "alice", "password": PASSWORD, "next": target})
    assert answer.status_code == 302
    assert answer["Location"] == "/"


def test_t61_htmx_is_never_sent_elsewhere(client: Client, alice: User) -> None:
    sent = {"username": "alice", "password": PASSWORD, "next": "https://evil.example/"}
    answer = client.post("/login/", sent, **HTMX)
    assert answer["HX-Redirect"] == "/"


def test_signing_in_goes_where_one_wanted_to_go(client: Client, alice: User) -> None:
    answer = client.post("/login/", {"username": "alice", "password": PASSWORD, "next": "/workloads/?q=a"})
    assert answer["Location"] == "/workloads/?q=a"


def test_a_wrong_password_is_said_and_the_name_kept(client: Client, alice: User) -> None:
    page = client.post("/login/", {"username": "alice", "password": "wrong"}).content.decode()
    assert 'value="alice"' in page
    assert "correct username and password" in page
    assert "wrong" not in page


def test_scripts_come_from_here_with_a_nonce_and_without_eval(client: Client) -> None:
    answer = client.get("/login/")
    policy = answer["Content-Security-Policy"]
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src "))
    assert "'self'" in scripts
    assert "'nonce-" in scripts
    assert "unsafe" not in scripts
    page = answer.content.decode()
    for setting in ('"allowEval": false', '"selfRequestsOnly": true', '"includeIndicatorStyles": false'):
        assert setting in page


def test_an_error_page_names_no_internals(client_of: Clients, alice: User) -> None:
    answer = client_of(alice).get("/no-such-page/")
    assert answer.status_code == 404
    assert b"it was deleted, or it belongs to a project that you cannot see" in answer.content
