"""What Volcano says of a pod in Rung's words. Pure.

Volcano writes why a group waits into its PodGroup and, in the same words, into the conditions of the group's pods:
nodes counted for the pod that it tried, a promise for one that has its room as soon as others have ended or the rest of
the gang has room, and for the others how many of the group wait. Source: Volcano 1.15.1, messages as they were seen.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from clusters.flavours import reading
from clusters.kinds_core import VOLCANO_POD_GROUP
from clusters.ports import FOR_OTHERS, FOR_VICTIMS, Manifest, Reading

EVICTED: Final = re.compile(r"^(?:Pod is evicted, because of )?(?P<action>preempt|reclaim)\b")
CAUSES: Final = {"preempt": "Preempted", "reclaim": "Reclaimed"}
UNSCHEDULABLE: Final = "Unschedulable"
INSUFFICIENT: Final = "queue resource quota insufficient"
OVER_LIMIT: Final = "OverLimit"
PROMISED: Final = re.compile(r"^Pod \S+ can possibly be assigned to \S+, once (?P<what>resource is released)?")
NOT_READY: Final = re.compile(
    r"^pod group is not ready, [^;]*; Pending: \d+ Unschedulable(?P<tried>\. Origin reason is )?"
)
NOT_TRIED: Final = "Volcano tried no node for it: its queue, or one above it, takes no more now."


def interpret(pod: Manifest, events: Sequence[Manifest]) -> Reading:
    """Evicted and how, or why it waits; where nothing but its group's waiting is said, what the group says."""
    for text in _disruptions(pod, events):
        if match := EVICTED.search(text):
            return Reading(CAUSES[match["action"]], text, cause=match["action"])
    waiting = reading.waiting(pod)
    if waiting.reason not in {"", UNSCHEDULABLE}:
        return waiting
    return next(_group_waits(events), None) or _standing(waiting)


def _standing(waiting: Reading) -> Reading:
    """What its own condition means for the group."""
    if promised := PROMISED.match(waiting.message):
        return Reading(FOR_VICTIMS if promised["what"] else FOR_OTHERS, waiting.message)
    not_ready = NOT_READY.match(waiting.message)
    if not_ready and not not_ready["tried"]:
        return Reading(OVER_LIMIT, f"{NOT_TRIED} It says: {waiting.message}")
    return waiting


def _disruptions(pod: Manifest, events: Sequence[Manifest]) -> Iterator[str]:
    """Volcano marks a pod it evicts as not ready before it deletes it; then come the events."""
    found = reading.condition(pod, "Ready", status="False")
    if found and found.get("reason") == "Evict":
        yield str(found.get("message", ""))
    yield from reading.messages(events, "Evict")


def _group_waits(others: Sequence[Manifest]) -> Iterator[Reading]:
    """What PodGroups among them say while they are not scheduled, then their events about the queue's limit."""
    for each in others:
        if each.get("kind") == VOLCANO_POD_GROUP.kind and (
            found := reading.condition(each, UNSCHEDULABLE, status="True")
        ):
            message = str(found.get("message", ""))
            yield Reading(str(found.get("reason") or UNSCHEDULABLE)[:64], message, reading.node_numbers(message))
    for text in reading.messages(others, UNSCHEDULABLE):
        if text.startswith(INSUFFICIENT):
            yield Reading(OVER_LIMIT, text)
