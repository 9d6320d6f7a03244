"""What a job object's controller writes into its status. Pure.

Job, Kubeflow and JobSet get their own condition types, RayJob its two words, Workflow its phase; every other kind gets
conditions of the common shape (Running, Succeeded, Failed, Suspended).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.pods import is_leaving, phase
from clusters.ports import Manifest

COMPLETE_WORD: Final = {"Job": "Complete", "JobSet": "Completed", "CronJob": "Complete"}
FINISHED: Final = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
RAY_WORDS: Final = {"Succeeded": "SUCCEEDED", "Failed": "FAILED", "Running": "RUNNING"}
SERVING: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})


@dataclass(frozen=True, slots=True)
class Standing:
    """How an object stands: one of Succeeded, Failed, Suspended, Running or Pending, and why."""

    word: str
    reason: str = ""
    message: str = ""


def is_finished(owner: Manifest) -> bool:
    """Has it ended for good?"""
    conditions: Sequence[Mapping[str, Any]] = (owner.get("status") or {}).get("conditions") or []
    return any(each["type"] in FINISHED and each["status"] == "True" for each in conditions)


def status_of(owner: Manifest, standing: Standing, pods: Sequence[Manifest], *, at: str) -> dict[str, Any]:
    """The whole status. Transition times of conditions that stay as they are stay too."""
    kind = owner["kind"]
    word = COMPLETE_WORD.get(kind, "Succeeded") if standing.word == "Succeeded" else standing.word
    status: dict[str, Any] = {**_counts(kind, pods), "conditions": _conditions(owner, word, standing, at)}
    if kind == "RayJob":
        status |= {"jobStatus": RAY_WORDS.get(standing.word, "PENDING"), "jobDeploymentStatus": standing.word}
    elif kind == "Workflow":
        status["phase"] = standing.word
    elif kind == "Job" and standing.word == "Succeeded":
        status["completionTime"] = (owner.get("status") or {}).get("completionTime", at)
    return status


def _counts(kind: str, pods: Sequence[Manifest]) -> dict[str, Any]:
    present = [phase(pod) for pod in pods if not is_leaving(pod)]
    running, pending = present.count("Running"), present.count("Pending")
    if kind in SERVING:
        return {"replicas": running + pending, "readyReplicas": running, "availableReplicas": running}
    return {
        "active": running + pending,
        "ready": running,
        "succeeded": present.count("Succeeded"),
        "failed": sum(1 for pod in pods if phase(pod) == "Failed"),
    }


def _conditions(owner: Manifest, word: str, standing: Standing, at: str) -> list[dict[str, Any]]:
    known = {each["type"]: each for each in (owner.get("status") or {}).get("conditions") or []}
    wanted = dict.fromkeys(known, "False") | {word: "True"}
    return [_condition(known.get(kind), kind, value, standing, at) for kind, value in wanted.items()]


def _condition(old: Mapping[str, Any] | None, kind: str, value: str, standing: Standing, at: str) -> dict[str, Any]:
    reason, message = (standing.reason or kind, standing.message) if value == "True" else ("", "")
    if old and (old["status"], old["reason"], old["message"]) == (value, reason, message):
        return dict(old)
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": at}
