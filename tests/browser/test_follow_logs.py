"""A log that is read while it grows: it starts at its end, follows, and never moves what somebody reads or selects."""

import pytest
from playwright.sync_api import Page, expect

from clusters.backends.memory import MemoryGateway, store_of
from clusters.ports.gateway import ClusterUnreachable
from tenants.access.models import User
from tests.browser.conftest import Visitor
from workloads.state.models import Workload

Addresses = dict[str, str]
POD = "two-containers-0"
POLLED = 5_000  # milliseconds between two requests of the page
ANSWERED = 12_000  # milliseconds that one may take on a busy machine
SELECT = """({ start, end }) => {
  const text = document.getElementById("log").firstChild, range = document.createRange();
  range.setStart(text, start);
  range.setEnd(text, end);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}"""
AT_END = "log => log.scrollHeight - log.scrollTop - log.clientHeight < 8"


@pytest.fixture
def log(estate: Addresses) -> list[str]:
    """What the running pod has written: 300 lines; append to it and the pod has written more."""
    workload = Workload.objects.get(name="two-containers")
    return store_of(str(workload.project.cluster_id)).logs[workload.project.namespace, POD]


def test_a_log_opens_at_its_end_and_follows_what_is_written(
    visit: Visitor, estate: Addresses, log: list[str], admin: User
) -> None:
    window = visit(admin)
    page = window.open_with_clock(estate["its logs"])
    shown = page.locator("#log")
    expect(shown).to_contain_text("step 299 loss")
    assert shown.evaluate(AT_END)
    log.extend(["step 300 loss 0.300", "step 301 loss 0.301"])
    page.clock.fast_forward(POLLED)
    expect(shown).to_contain_text("step 301 loss", timeout=ANSWERED)
    assert shown.evaluate(AT_END)
    assert _numbers(page) == list(range(100, 302))
    assert window.complaints == []


def test_new_lines_move_neither_what_is_read_nor_what_is_selected(
    visit: Visitor, estate: Addresses, log: list[str], admin: User
) -> None:
    page = visit(admin).open_with_clock(estate["its logs"])
    shown = page.locator("#log")
    shown.evaluate("log => { log.scrollTop = 40; }")
    page.evaluate(SELECT, {"start": 0, "end": 19})
    shown.focus()
    log.append("step 300 loss 0.300")
    page.clock.fast_forward(POLLED)
    expect(shown).to_contain_text("step 300 loss", timeout=ANSWERED)
    assert shown.evaluate("log => log.scrollTop") == 40
    assert page.evaluate("() => getSelection().toString()") == "step 100 loss 0.100"


def test_a_line_that_is_rewritten_stays_one_line_and_a_gap_is_said(
    visit: Visitor, estate: Addresses, log: list[str], admin: User
) -> None:
    page = visit(admin).open_with_clock(estate["its logs"])
    log[-1] = "step 299 loss 0.299 done"
    log.append("epoch 1: 10 %")
    page.clock.fast_forward(POLLED)
    expect(page.locator("#log")).to_contain_text("epoch 1: 10 %", timeout=ANSWERED)
    log[-1] = "epoch 1: 20 %"
    page.clock.fast_forward(POLLED)
    expect(page.locator("#log")).to_contain_text("epoch 1: 20 %", timeout=ANSWERED)
    assert page.locator("#log").inner_text().splitlines()[-2:] == ["step 299 loss 0.299 done", "epoch 1: 20 %"]
    log.extend(f"step {number} loss" for number in range(600, 900))
    page.clock.fast_forward(POLLED)
    expect(page.locator("#log")).to_contain_text("… lines skipped …\nstep 700 loss", timeout=ANSWERED)


def test_a_cluster_that_does_not_answer_takes_no_line_away(
    visit: Visitor, estate: Addresses, log: list[str], admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit(admin).open_with_clock(estate["its logs"])
    expect(page.locator("#log")).to_contain_text("step 299 loss")

    def unreachable(*_args: object, **_options: object) -> list[str]:
        raise ClusterUnreachable("It does not answer.")

    monkeypatch.setattr(MemoryGateway, "logs", unreachable)
    page.clock.fast_forward(POLLED)
    expect(page.locator("#log-note")).to_contain_text("It does not answer.", timeout=ANSWERED)
    expect(page.locator("#log")).to_contain_text("step 299 loss")


def _numbers(page: Page) -> list[int]:
    return [int(line.split()[1]) for line in page.locator("#log").inner_text().splitlines()]
