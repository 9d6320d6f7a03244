"""What Volcano says of a pod and of its group in Rung's words. Pure.

Volcano writes why a group waits into its PodGroup and, in the same words, into the conditions of the group's pods:
nodes counted for the pod that it tried, a promise for one that has its room as soon as others have ended or the rest of
the gang has room, and for the others how many of the group wait. Of a gang of one domain only that. Whether the action
enqueue has let it in, only the PodGroup says: it is told as events about the object whose pods it groups; one of Rung's
own speaks of itself.
Source: Volcano 1.15.1, messages as they were seen; phases and their conditions from its source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from clusters.flavours import pod_status
from clusters.flavours.objects import TOPOLOGY_KEY
from clusters.ports.flavour import GANG_INCOMPLETE, WAITS_FOR_VICTIMS, PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.ports.kinds import VOLCANO_POD_GROUP
from clusters.ports.ownership import OWNER

EVICTED: Final = re.compile(r"^(?:Pod is evicted, because of )?(?P<action>preempt|reclaim)\b")
CAUSES: Final = {"preempt": "Preempted", "reclaim": "Reclaimed"}
UNSCHEDULABLE: Final = "Unschedulable"
INSUFFICIENT: Final = "queue resource quota insufficient"
OVER_LIMIT: Final = "OverLimit"
PROMISED: Final = re.compile(r"^Pod \S+ can possibly be assigned to \S+, once (?P<what>resource is released)?")
NOT_READY: Final = re.compile(
    r"^pod group is not ready, [^;]*; Pending: \d+ Unschedulable(?P<tried>\. Origin reason is )?"
)
TASKS: Final = re.compile(r"^\d{1,9}/(?P<tasks>\d{1,9}) tasks in gang unschedulable: ")
TOO_FEW: Final = "NotEnoughTasks"
PENDING: Final = "Pending"
WAITING: Final = frozenset({PENDING, "Inqueue", "Unknown"})
SCHEDULED: Final = "Scheduled"
LAST: Final = "lastTransitionTime"
SOURCE: Final = "volcano"
STANDS: Final = {
    PENDING: "Volcano holds it in the queue: its action enqueue found no free resources and does not evict.",
    "Inqueue": "Volcano admitted it. It starts when its minimum of pods fits.",
    "Running": "Its minimum of pods fits.",
    "Unknown": "Fewer pods run than its minimum.",
    "Completed": "All pods completed.",
}
"""What a phase of a group means."""
NOT_THERE: Final = "Some of its pods do not exist yet."
NOT_TRIED: Final = "Volcano did not try to place it: its queue, or a parent queue, is at its limit."
NO_DOMAIN: Final = "NoDomain"
NOT_NEAR: Final = "No single {level} fits its minimum of pods, or its queue is at its limit."


def interpret(pod: Manifest, events: Sequence[Manifest]) -> PodStatusReason:
    """Evicted and how, held outside, or why it waits."""
    for text in _disruptions(pod, events):
        if match := EVICTED.search(text):
            return PodStatusReason(CAUSES[match["action"]], text, cause=match["action"])
    for text in pod_status.messages(events, pod_status.QUEUED):
        return PodStatusReason(OVER_LIMIT if INSUFFICIENT in text else pod_status.QUEUED, text)
    waiting = pod_status.waiting_reason(pod)
    if waiting.reason not in {"", UNSCHEDULABLE}:
        return waiting
    at_limit = next(_at_limit(events), None)
    return at_limit or (_in_our_words(waiting.message, _level_of(pod)) if waiting.reason else waiting)


def pod_group_events(group: Manifest) -> Iterator[Manifest]:
    """What a PodGroup says, as events: whether it is let in, and while it waits for room, what it lacks.

    A condition that is over stays as it was beside its successor: only the phase tells which one holds.
    """
    about, phase = _about(group), str((group.get("status") or {}).get("phase", ""))
    if about is None or phase not in STANDS:
        return
    waits = pod_status.condition(group, UNSCHEDULABLE, status="True") or {}
    said, since = str(waits.get("message", "")), waits.get(LAST)
    reason = pod_status.QUEUED if phase == PENDING else pod_status.ADMITTED
    words = f"{STANDS[phase]} Message: {said}" if said and phase == PENDING else STANDS[phase]
    at = since if phase in WAITING else (pod_status.condition(group, SCHEDULED, status="True") or {}).get(LAST)
    yield pod_status.event_of(group, about, "queue", source=SOURCE, reason=reason, message=words, at=at)
    if said and phase in WAITING - {PENDING}:
        found = _of_group(waits, _level_of(group))
        yield pod_status.event_of(
            group, about, "waits", source=SOURCE, reason=found.reason, message=found.message, at=since
        )


def _about(group: Manifest) -> Mapping[str, Any] | None:
    """Whose pods it groups; itself where it stands beside a workload of Rung's; None: it is nobody's that is known."""
    metadata = group["metadata"]
    if (owner := pod_status.controller_of(group)) or OWNER not in (metadata.get("labels") or {}):
        return owner
    return {"kind": VOLCANO_POD_GROUP.kind, "name": metadata["name"], "uid": metadata["uid"]}


def _level_of(found: Manifest) -> str:
    """The node label of which a gang wants one value, as Rung wrote it there; empty: any nodes will do."""
    return str(((found.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY, ""))


def _of_group(condition: Mapping[str, Any], level: str) -> PodStatusReason:
    """Why a group waits that is let in."""
    text = str(condition["message"])
    found = TASKS.match(text)
    if condition.get("reason") == TOO_FEW or (found and not int(found["tasks"])):
        return PodStatusReason(GANG_INCOMPLETE, f"{NOT_THERE} Message: {text}")
    said = _in_our_words(text[found.end() :] if found else text, level)
    return said if said.reason in {OVER_LIMIT, NO_DOMAIN} else replace(said, message=text)


def _in_our_words(text: str, level: str) -> PodStatusReason:
    """What its own condition means for the group; `level`: it has to be in one domain of that."""
    if promised := PROMISED.match(text):
        return PodStatusReason(WAITS_FOR_VICTIMS if promised["what"] else GANG_INCOMPLETE, text)
    if f"Origin reason is {INSUFFICIENT}" in text:
        return PodStatusReason(OVER_LIMIT, text)
    not_ready = NOT_READY.match(text)
    if not_ready and not not_ready["tried"] and level:
        return PodStatusReason(NO_DOMAIN, f"{NOT_NEAR.format(level=level)} Message: {text}")
    if not_ready and not not_ready["tried"]:
        return PodStatusReason(OVER_LIMIT, f"{NOT_TRIED} Message: {text}")
    return PodStatusReason(UNSCHEDULABLE, text, pod_status.node_numbers(text))


def _disruptions(pod: Manifest, events: Sequence[Manifest]) -> Iterator[str]:
    """Volcano marks a pod it evicts as not ready before it deletes it; then come the events."""
    found = pod_status.condition(pod, "Ready", status="False")
    if found and found.get("reason") == "Evict":
        yield str(found.get("message", ""))
    yield from pod_status.messages(events, "Evict")


def _at_limit(events: Sequence[Manifest]) -> Iterator[PodStatusReason]:
    for text in pod_status.messages(events, UNSCHEDULABLE):
        if text.startswith(INSUFFICIENT):
            yield PodStatusReason(OVER_LIMIT, text)
