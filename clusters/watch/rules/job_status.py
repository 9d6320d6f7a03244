"""How a job object stands, read from the status its own controller writes. Pure; one table for all kinds.

Sources: status shapes of batch/v1, Kubeflow training, JobSet, Ray, Argo, Tekton and the common conditions. A Job whose
end is decided (SuccessCriteriaMet, FailureTarget) still has pods that are ending: it is over with Complete or Failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.ports.gateway import Manifest

ACTIVE: Final = "active"
BLOCKED: Final = "blocked"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
SUSPENDED: Final = "suspended"
MISSING: Final = "missing"

BY_CONDITION: Final = {
    "Complete": SUCCEEDED,
    "Completed": SUCCEEDED,
    "Succeeded": SUCCEEDED,
    "Failed": FAILED,
    "Suspended": SUSPENDED,
}
BY_WORD: Final = {
    "succeeded": SUCCEEDED,
    "complete": SUCCEEDED,
    "completed": SUCCEEDED,
    "failed": FAILED,
    "error": FAILED,
    "stopped": FAILED,
    "suspended": SUSPENDED,
}
WORDS: Final = ("jobStatus", "jobDeploymentStatus", "phase")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A workload's object: active, blocked (its pods are refused), succeeded, failed, suspended or missing."""

    phase: str
    reason: str = ""
    message: str = ""


def job_status(manifest: Manifest) -> JobStatus:
    """How the object stands; active when its status says nothing else."""
    status: Mapping[str, Any] = manifest.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or []
    held = [each for each in conditions if each.get("status") == "True"]
    for each in held:
        if phase := BY_CONDITION.get(str(each.get("type"))):
            return JobStatus(phase, str(each.get("reason", "")), str(each.get("message", "")))
    for word in WORDS:
        if phase := BY_WORD.get(str(status.get(word, "")).lower()):
            return JobStatus(phase, str(status.get("reason", "")), str(status.get("message", "")))
    return _tekton(conditions) or _refused(held) or _between_runs(manifest, status) or JobStatus(ACTIVE)


def _tekton(conditions: Sequence[Mapping[str, Any]]) -> JobStatus | None:
    """Tekton says a failure as Succeeded=False."""
    for each in conditions:
        if each.get("type") == "Succeeded" and each.get("status") == "False" and each.get("reason"):
            return JobStatus(FAILED, str(each["reason"]), str(each.get("message", "")))
    return None


def _refused(held: Sequence[Mapping[str, Any]]) -> JobStatus | None:
    """Its controller could not create a pod: a quota, an unknown class."""
    for each in held:
        if each.get("reason") == "FailedCreate":
            return JobStatus(BLOCKED, "FailedCreate", str(each.get("message", "")))
    return None


def _between_runs(manifest: Manifest, status: Mapping[str, Any]) -> JobStatus | None:
    """A CronJob has no pods for most of the time, and nobody else says why."""
    if manifest.get("kind") != "CronJob" or status.get("active"):
        return None
    when = (manifest.get("spec") or {}).get("schedule", "")
    return JobStatus(ACTIVE, "BetweenRuns", f"It runs by its schedule {when}; no run is under way.")
