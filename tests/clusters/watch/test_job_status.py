"""How a job stands, from the status its controller wrote."""

from typing import Any

import pytest

from clusters.watch.rules import job_status


def true(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", **more}


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        pytest.param({}, "active", id="no status yet"),
        pytest.param({"conditions": [true("Complete")]}, "succeeded", id="batch Job"),
        pytest.param({"conditions": [true("Completed")]}, "succeeded", id="JobSet"),
        pytest.param({"conditions": [true("Created"), true("Succeeded")]}, "succeeded", id="Kubeflow"),
        pytest.param({"conditions": [true("Failed")]}, "failed", id="failed"),
        pytest.param({"conditions": [true("Suspended")]}, "suspended", id="suspended"),
        pytest.param({"conditions": [{"type": "Suspended", "status": "False"}]}, "active", id="resumed"),
        pytest.param({"jobStatus": "SUCCEEDED"}, "succeeded", id="RayJob"),
        pytest.param({"jobStatus": "", "jobDeploymentStatus": "Suspended"}, "suspended", id="suspended RayJob"),
        pytest.param({"phase": "Error"}, "failed", id="Argo"),
        pytest.param({"phase": "Running"}, "active", id="running Argo"),
        pytest.param({"conditions": [{"type": "Succeeded", "status": "False", "reason": "X"}]}, "failed", id="Tekton"),
        pytest.param({"conditions": [{"type": "Succeeded", "status": "Unknown"}]}, "active", id="running Tekton"),
        pytest.param({"conditions": [true("Pending", reason="FailedCreate")]}, "blocked", id="refused pods"),
    ],
)
def test_every_shape_of_status_is_understood(status: dict[str, Any], phase: str) -> None:
    assert job_status({"status": status}).phase == phase


def test_reason_and_message_come_along() -> None:
    found = job_status({"status": {"conditions": [true("Failed", reason="BackoffLimitExceeded", message="six times")]}})
    assert (found.reason, found.message) == ("BackoffLimitExceeded", "six times")


@pytest.mark.parametrize(("active", "reason"), [([], "BetweenRuns"), ([{"name": "nightly-1"}], "")])
def test_a_cron_job_says_that_no_run_is_under_way(active: list[dict[str, str]], reason: str) -> None:
    manifest = {"kind": "CronJob", "spec": {"schedule": "0 3 * * *"}, "status": {"active": active}}
    found = job_status(manifest)
    assert (found.phase, found.reason) == ("active", reason)


@pytest.mark.parametrize("decided", ["SuccessCriteriaMet", "FailureTarget"])
def test_a_job_whose_end_is_decided_is_over_once_its_pods_are(decided: str) -> None:
    manifest = {"kind": "Job", "status": {"conditions": [{"type": decided, "status": "True"}]}}
    assert job_status(manifest).phase == "active"
