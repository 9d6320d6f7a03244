"""What people do on the pages, done by a browser."""

import re

import pytest
from playwright.sync_api import Dialog, Page, expect

from clusters.watch.models import ClusterEvent
from tenants.access.models import User
from tests.browser.conftest import Visitor
from tests.factories.tenants import PASSWORD
from workloads.dictionary.models import Priority
from workloads.state.models import Phase, Workload

IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"
Addresses = dict[str, str]


def test_signing_in_and_choosing_a_theme_that_stays(visit: Visitor, organisation: Addresses, alice: User) -> None:
    window = visit(None)
    page = window.open("/workloads/")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
    page.get_by_role("button", name="Dark theme").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    expect(page.get_by_role("button", name="Dark theme")).to_have_attribute("aria-pressed", "true")
    assert window.complaints == []


def test_the_keyboard_reaches_content_and_search(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open("/workloads/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.locator("body").press("/")
    expect(page.get_by_label("Name contains")).to_be_focused()
    page.keyboard.type("a/b")
    expect(page.get_by_label("Name contains")).to_have_value("a/b")


def test_filters_swap_the_table_and_stand_in_the_address(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open("/workloads/")
    page.get_by_label("Phase").select_option("Running")
    expect(page).to_have_url(re.compile(r"/workloads/\?phase=Running$"))
    expect(page.locator("#table tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Remove filter phase: Running").click()
    expect(page.locator("#table tbody tr")).to_have_count(4)


def test_the_panel_answers_while_one_types(visit: Visitor, organisation: Addresses, alice: User) -> None:
    window = visit(alice)
    page = window.open("/workloads/submit/")
    panel = page.locator("#forecast")
    expect(panel).to_contain_text("Enter the required fields first")
    page.get_by_label("Name", exact=False).first.fill("probe")
    page.get_by_role("textbox", name="Image").press_sequentially(IMAGE)
    expect(panel).to_contain_text("Starts now in h100")
    expect(panel).to_contain_text("default for Standard training")
    page.get_by_label("Priority", exact=True).select_option("high")
    expect(panel).to_contain_text("it can no longer use over-quota resources")
    assert not Workload.objects.filter(name="probe").exists()
    assert window.complaints == []


def test_an_alternative_fills_the_form(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open("/workloads/submit/")
    page.get_by_label("Name", exact=False).first.fill("probe")
    page.get_by_label("GPUs per pod").fill("8")
    page.get_by_label("Preemptibility").select_option("non-preemptible")
    page.get_by_role("textbox", name="Image").press_sequentially(IMAGE)
    way_out = page.get_by_role("button", name="Make it preemptible")
    way_out.click()
    expect(page.get_by_label("Preemptibility")).to_have_value("preemptible")
    expect(page.locator("#forecast")).to_contain_text("Starts now in h100")


def test_a_type_shows_the_fields_it_needs(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open("/workloads/submit/")
    expect(page.get_by_label("Framework")).to_be_hidden()
    page.get_by_label("Distributed training").check()
    expect(page.get_by_label("Framework")).to_be_visible()
    expect(page.get_by_label("Port")).to_be_hidden()


def test_from_an_example_to_its_page(visit: Visitor, organisation: Addresses, admin: User) -> None:
    page = visit(admin).open("/workloads/submit/yaml/")
    page.get_by_role("link", name="llm-finetune").click()
    page.get_by_label("Project").select_option("llm-team")
    panel = page.locator("#forecast")
    expect(panel).to_contain_text("llm-team already has a workload named llm-finetune.")
    editor = page.get_by_label("Manifest")
    text = editor.input_value()
    editor.fill(text.replace("spec:", "spec:\n  hostNetwork: true", 1))
    expect(panel).to_contain_text("Line 9")
    expect(panel).to_contain_text("/spec/hostNetwork")
    editor.fill(text.replace("name: llm-finetune", "name: from-the-page"))
    expect(panel).to_contain_text("from-the-page")
    expect(panel).to_contain_text("Estimated with the KAI Scheduler model")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="from-the-page")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("Submitted from-the-page.")


@pytest.mark.parametrize("answer", ["dismiss", "accept"])
def test_deleting_asks_first(visit: Visitor, organisation: Addresses, alice: User, answer: str) -> None:
    page = visit(alice).open(organisation["pods"])
    requested: list[str] = []

    def reply(dialog: Dialog) -> None:
        requested.append(dialog.message)
        getattr(dialog, answer)()

    page.on("dialog", reply)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_load_state("networkidle")
    assert requested[0].startswith("Delete “llm-finetune”? It has run on 2 GPUs for 40 min")
    phase = Workload.objects.get(name="llm-finetune").phase
    assert phase == (Phase.DELETING if answer == "accept" else Phase.RUNNING)


def test_a_changed_rung_goes_through_its_plan(visit: Visitor, organisation: Addresses, admin: User) -> None:
    page = visit(admin).open("/priorities/")
    page.get_by_role("link", name="Edit medium", exact=True).click()
    page.get_by_label("Value").fill("85")
    page.get_by_role("button", name="Preview…").click()
    expect(page.get_by_role("heading", name="Edit priority medium")).to_be_visible()
    expect(page.get_by_text("replaced").first).to_be_visible()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status")).to_contain_text("Applied: Edit priority medium.")
    assert Priority.objects.get(name="medium").value == 85


def test_polling_rests_while_hidden_and_goes_on_when_seen(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open_with_clock("/workloads/")
    hidden = "Object.defineProperty(document, 'hidden', { get: () => window.away });"
    page.evaluate(f"() => {{ window.away = true; {hidden} }}")
    polls: list[str] = []
    page.on("request", lambda request: polls.append(request.url))
    page.clock.fast_forward(6_000)
    page.wait_for_timeout(500)
    assert polls == []
    page.evaluate("() => { window.away = false; }")
    with page.expect_response(lambda response: response.url.endswith("/workloads/"), timeout=7_000) as refreshed:
        page.clock.fast_forward(5_000)
    assert refreshed.value.status == 200


def test_what_happens_appears_without_a_reload(visit: Visitor, organisation: Addresses, alice: User) -> None:
    page = visit(alice).open_with_clock("/workloads/?phase=Running")
    expect(page.locator("#table")).to_contain_text("llm-finetune")
    Workload.objects.filter(name="llm-finetune").update(phase=Phase.COMPLETED)
    page.clock.fast_forward(5_000)
    expect(page.locator("#table")).to_contain_text("No workloads match these filters.", timeout=8_000)


def test_t57_nothing_that_a_cluster_or_tenant_wrote_runs(visit: Visitor, organisation: Addresses, admin: User) -> None:
    evil = "<script>window.hit=1</script><img src=x onerror='window.hit=1'><b hx-get='/audit/' hx-trigger='load'>x</b>"
    for number, row in enumerate(Workload.objects.all()):
        Workload.objects.filter(pk=row.pk).update(name=f"{number}{evil}"[:250])
    Workload.objects.update(phase_message=evil, phase_reason=evil[:60], submitted_by=evil)
    Workload.objects.update(warnings=[{"message": evil}], discarded=[{"field": evil, "source": evil, "value": evil}])
    workload = Workload.objects.select_related("project").filter(phase=Phase.RUNNING).first()
    assert workload is not None
    ClusterEvent.objects.create(
        cluster=workload.project.cluster,
        uid="evil",
        namespace="x",
        owner_id=str(workload.pk),
        kind=evil[:60],
        name=evil,
        reason=evil[:100],
        message=evil,
        at=workload.created_at,
    )
    window = visit(admin)
    sent: list[str] = []
    window.page.on("request", lambda request: sent.append(request.url))
    for address in ("/", "/workloads/", organisation["waiting"], organisation["evicted"], organisation["events"]):
        page: Page = window.open(address)
        assert page.evaluate("window.hit") is None
    assert not [url for url in sent if url.endswith(("/audit/", "/x"))]
    assert window.complaints == []
