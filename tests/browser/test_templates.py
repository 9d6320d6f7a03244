"""From a filled form to a template and back, by a browser."""

from playwright.sync_api import expect

from tenants.access.models import User
from tests.browser.conftest import Visitor
from workloads.state.models import Workload
from workloads.workload_templates.models import WorkloadTemplate

IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"


def test_a_filled_form_is_kept_and_the_next_one_starts_from_it(
    visit: Visitor, organisation: dict[str, str], alice: User
) -> None:
    window = visit(alice)
    page = window.open("/workloads/submit/")
    before = Workload.objects.count()
    page.get_by_label("Name", exact=False).first.fill("probe")
    page.get_by_role("textbox", name="Image").fill(IMAGE)
    page.get_by_role("button", name="Save as template").click()
    expect(page.get_by_role("heading", name="New template")).to_be_visible()
    page.get_by_label("Name", exact=False).first.fill("Every night")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#messages")).to_contain_text("Template saved.")
    page.get_by_role("link", name="Use template").click()
    expect(page.get_by_role("textbox", name="Image")).to_have_value(IMAGE)
    expect(page.get_by_label("Start from a template").locator("option:checked")).to_contain_text("Every night")
    assert WorkloadTemplate.objects.filter(name="Every night", created_by="alice").count() == 1
    assert Workload.objects.count() == before
    assert window.complaints == []


def test_a_template_is_deleted_only_when_that_is_meant(
    visit: Visitor, organisation: dict[str, str], alice: User
) -> None:
    page = visit(alice).open(organisation["a template"])
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete", exact=True).click()
    assert WorkloadTemplate.objects.filter(name="Nightly training").exists()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#messages")).to_contain_text("Deleted Nightly training.")
    assert not WorkloadTemplate.objects.filter(name="Nightly training").exists()
