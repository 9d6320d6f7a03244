"""What Kueue says of a job in Rung's words. Pure.

Kueue speaks through an object of its own beside the job, its Workload. What stands in that object's conditions is told
here as events about the job, so that it is kept, found again and read like everything else that is said of a job.
Source: Kueue 0.19, conditions QuotaReserved, Admitted, Preempted and Finished, and its messages as they were seen.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.flavours import reading
from clusters.flavours.reading import ADMITTED, LEFT_OUT, QUEUED
from clusters.kinds_core import POD
from clusters.ports import Manifest, Reading

PREEMPTED: Final = "Preempted"
CONTROLLER: Final = "kueue"

BY: Final = re.compile(r"\(UID: (?P<uid>[\w.-]{1,64})(?:, JobUID: (?P<job>[\w.-]{1,64}))?\)")
RECLAIMED: Final = re.compile(r"reclamation within the cohort|fair sharing within the cohort|while borrowing")
NEEDED: Final = re.compile(
    r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), (?P<missing>\S+) more needed"
)
TOO_LARGE: Final = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), .*?"
    r"current podset request \((?P<requested>[^)]+)\) > maximum capacity \((?P<limit>[^)]+)\)"
)
NO_DOMAIN: Final = re.compile(
    r"topology \"[^\"]*\" (?:doesn't allow to fit|allows to fit only (?P<fitting>\d{1,7}) out of (?P<pods>\d{1,7}))"
)
NOT_AGAIN: Final = "Not queued again"
PENDING: Final = (
    (LEFT_OUT, re.compile(f"^{NOT_AGAIN}")),
    ("PreemptionPending", re.compile(r"[Pp]ending the preemption of (?P<workloads>\d{1,9}) workload")),
    ("WaitingForQuota", NEEDED),
    ("OverLimit", TOO_LARGE),
    ("NoDomain", NO_DOMAIN),
    ("Misconfigured", re.compile(r"(?P<queue>LocalQueue|ClusterQueue) \S+ (?:doesn't exist|is inactive|is stopped)")),
    ("NoMatchingFlavor", re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")),
    ("NoMatchingFlavor", re.compile(r"doesn't match (?:node affinity|topology)|untolerated taint")),
)


def interpret(pod: Manifest, events: Sequence[Manifest]) -> Reading:
    """Evicted, queued, or a pod that waits for a node."""
    if said := list(reading.disruption_texts(pod, events, PREEMPTED, "Evicted")):
        return next((each for each in map(_evicted, said) if each.preemptor), _evicted(said[0]))
    for text in reading.messages(events, QUEUED):
        return _pending(text)
    return reading.waiting(pod)


def tell(workload: Manifest) -> Iterator[Manifest]:
    """What a Workload of Kueue says, as events about the job it stands for: how it is queued, and each preemption."""
    said = {each.get("type"): each for each in (workload.get("status") or {}).get("conditions") or ()}
    about = reading.controller_of(workload)
    if about is None:
        return
    if standing := _left_out(said, about) or _standing(said):
        reason, found = standing
        yield _event(workload, about, "queue", reason, found)
    preempted = said.get(PREEMPTED, {})
    if preempted.get("status") == "True":
        yield _event(workload, about, f"evicted.{_second(preempted)}", PREEMPTED, preempted)


def _left_out(said: Mapping[Any, Mapping[str, Any]], about: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """A pod whose admission was taken back before its gate was opened is neither deleted nor queued again."""
    again, reserved = said.get("Requeued", {}), said.get("QuotaReserved", {})
    if about.get("kind") != POD.kind or again.get("reason") != PREEMPTED:
        return None
    if (again.get("status"), reserved.get("status")) != ("False", "False"):
        return None
    return LEFT_OUT, {**again, "message": f"{NOT_AGAIN}: {again.get('message', '')}"}


def _standing(said: Mapping[Any, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    """None: nothing has been decided yet."""
    if said.get("Finished", {}).get("status") == "True":
        return ADMITTED, said["Finished"]
    admitted, reserved = said.get(ADMITTED, {}), said.get("QuotaReserved")
    if admitted.get("status") == "True":
        return ADMITTED, admitted
    return (QUEUED, reserved) if reserved else None


def _event(workload: Manifest, about: Mapping[str, Any], mark: str, reason: str, said: Mapping[str, Any]) -> Manifest:
    message, at = str(said.get("message", "")), said.get("lastTransitionTime")
    return reading.event_of(workload, about, mark, source=CONTROLLER, reason=reason, message=message, at=at)


def _second(said: Mapping[str, Any]) -> int:
    """When, as a number that tells one preemption of a job from another."""
    try:
        return int(datetime.fromisoformat(str(said.get("lastTransitionTime"))).timestamp())
    except ValueError:
        return 0


def _pending(text: str) -> Reading:
    for reason, pattern in PENDING:
        if match := pattern.search(text):
            return Reading(reason, text, match.groupdict())
    return Reading(QUEUED, text)


def _evicted(text: str) -> Reading:
    """By a job's uid where Kueue says it, or a pod's where kube-scheduler did it."""
    if match := BY.search(text):
        by = match["job"] or match["uid"]
        if RECLAIMED.search(text):
            return Reading("Reclaimed", text, preemptor=f"uid:{by}", cause="reclaim")
        return Reading("Preempted", text, preemptor=f"uid:{by}", cause="preempt")
    pod = reading.BY_POD.search(text)
    return Reading("Preempted", text, preemptor=f"uid:{pod[1]}" if pod else "", cause="preempt")
