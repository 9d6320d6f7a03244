"""The table of phases: what the cluster shows moves a workload only where the table allows it."""

import pytest

from workloads.state.rules import TRANSITIONS, PodCounts, may_move, next_phase

RUNNING = PodCounts(wanted=1, running=1)


def test_pods_that_run_never_start_a_stopped_workload() -> None:
    assert next_phase("Stopped", "Running", RUNNING) == "Stopped"


@pytest.mark.parametrize("current", ["Creating", "Pending", "Initializing", "Resuming", "Degraded", "Unknown"])
def test_a_workload_on_its_way_runs_once_its_pods_do(current: str) -> None:
    assert next_phase(current, "Running", RUNNING) == "Running"


@pytest.mark.parametrize(
    ("current", "onwards"),
    [
        ("Stopped", {"Resuming", "Deleting"}),
        ("Completed", {"Deleting"}),
        ("Failed", {"Deleting"}),
        ("Deleting", set()),
    ],
)
def test_an_ended_or_stopped_workload_leaves_its_phase_by_an_action_only(current: str, onwards: set[str]) -> None:
    assert {following for following in TRANSITIONS if may_move(current, following)} == onwards


def test_a_retry_leads_a_failed_workload_and_no_other_back_to_creating() -> None:
    ended = ("Completed", "Failed", "Stopped")
    assert [phase for phase in ended if may_move(phase, "Creating", retrying=True)] == ["Failed"]
