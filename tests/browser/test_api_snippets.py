"""From the browser to a shell: what a form shows to copy does what the form would."""

import os
import subprocess

from playwright.sync_api import expect

from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tests.browser.conftest import Visitor
from tests.browser.test_workflows import IMAGE, Addresses
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.state.models import DesiredPhase, Phase, Workload


def test_the_curl_of_a_form_submits_it(visit: Visitor, organisation: Addresses, alice: User, llm_team: Project) -> None:
    window = visit(alice)
    page = window.open("/workloads/submit/?type=Training")
    page.get_by_label("Name", exact=False).first.fill("copied")
    page.get_by_role("textbox", name="Image").press_sequentially(IMAGE)
    page.locator("#copy-as summary").click()
    page.get_by_role("tab", name="curl").click()
    expect(page.locator("#copy-text-yaml")).to_be_hidden()
    expect(page.locator("#copy-text-curl")).to_contain_text(IMAGE)
    text = page.locator("#copy-text-curl").inner_text()
    page.get_by_role("button", name="Copy curl").click()
    assert window.complaints == []
    token = Robot("copier", role=Role.MEMBER, project=llm_team).client.defaults["HTTP_AUTHORIZATION"].split()[1]
    subprocess.run(["bash", "-eu"], input=text, text=True, env={**os.environ, "RUNG_TOKEN": token}, check=True)
    assert Workload.objects.get(name="copied").type.name == "Training"


def test_a_new_preview_keeps_the_open_section_and_the_chosen_tab(
    visit: Visitor, organisation: Addresses, alice: User
) -> None:
    page = visit(alice).open("/workloads/submit/?type=Training")
    name = page.get_by_label("Name", exact=False).first
    name.fill("before")
    page.get_by_role("textbox", name="Image").press_sequentially(IMAGE)
    page.locator("#copy-as summary").click()
    page.get_by_role("tab", name="curl").click()
    name.fill("after")
    curl = page.locator("#copy-text-curl")
    expect(curl).to_contain_text('"name": "after"')
    expect(curl).to_be_visible()
    expect(page.locator("#copy-text-yaml")).to_be_hidden()


def test_a_button_is_copied_and_not_pressed(
    visit: Visitor, organisation: Addresses, alice: User, llm_team: Project
) -> None:
    made: Workload = WorkloadFactory.create(project=llm_team, name="copied-act", phase=Phase.RUNNING)
    window = visit(alice)
    page = window.open(f"/workloads/{made.pk}/")
    page.get_by_role("button", name="Stop: copy as").click()
    expect(page.get_by_role("heading", name="Stop: copy as curl, rung, Python")).to_be_visible()
    page.get_by_role("tab", name="rung").click()
    expect(page.locator("#act-copy-text-rung")).to_have_text("rung suspend llm-team/copied-act")
    page.keyboard.press("Escape")
    expect(page.locator("#act-copies")).to_be_hidden()
    assert window.complaints == []
    assert Workload.objects.get(pk=made.pk).desired_phase == DesiredPhase.RUNNING


def test_ticked_rows_are_copied_together(
    visit: Visitor, organisation: Addresses, alice: User, llm_team: Project
) -> None:
    for name in ("first", "second", "third"):
        WorkloadFactory.create(project=llm_team, name=name, phase=Phase.RUNNING)
    window = visit(alice)
    page = window.open("/workloads/")
    page.get_by_role("button", name="Delete: copy as").click()
    expect(page.get_by_text("Select up to 100 workloads first")).to_be_visible()
    page.keyboard.press("Escape")
    for name in ("first", "third"):
        page.get_by_role("row", name=name).get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete: copy as").click()
    page.get_by_role("tab", name="rung").click()
    expect(page.locator("#act-copy-text-rung")).to_have_text("rung delete llm-team/first llm-team/third --yes")
    assert window.complaints == []
    assert not Workload.objects.exclude(desired_phase=DesiredPhase.RUNNING).exists()


def test_a_credential_is_copied_as_the_name_of_a_variable(visit: Visitor, organisation: Addresses, admin: User) -> None:
    window = visit(admin)
    page = window.open("/connect-cluster/")
    page.get_by_label("Name", exact=True).fill("blue")
    page.get_by_label("Kubeconfig", exact=True).fill("token: canary")
    page.get_by_text("Copy as YAML, curl, rung, Python").click()
    page.get_by_role("tab", name="curl").click()
    expect(page.locator("#copy-text-curl")).to_contain_text("jq '.kubeconfig = env.CLUSTER_KUBECONFIG'")
    assert "canary" not in page.locator("#copies").inner_text()
    assert window.complaints == []
