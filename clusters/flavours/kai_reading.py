"""What KAI says of a pod in Rung's words. Pure.

KAI speaks through the pod groups that it makes of workloads: `pg-<name>-<uid>` after the object whose pods they are,
with a number behind it where an object has several. Why a group waits stands in its conditions and in those of its
pods; who was evicted for whom only in events about the group of the victim. Source: KAI 0.17, messages as they were
seen.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from clusters.flavours import reading
from clusters.kinds_core import KAI_POD_GROUP
from clusters.ports import Manifest, Reading

EVICT: Final = "Evict"
_BY: Final = r"(?P<by>[\w.-]{1,63}/[\w.-]{1,253}?)\.?(?:\s|$)"
PREEMPTED: Final = re.compile(r"preempted by higher priority workload " + _BY)
RECLAIMED: Final = re.compile(r"(?:preempted by workload|reclaimed by(?: workload)?) " + _BY)
RECLAIM_WORD: Final = re.compile(r"\breclaim(?:ed)?\b", re.IGNORECASE)
CONSOLIDATED: Final = re.compile(r"resource consolidation")
UID: Final = re.compile(r"-(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=-|$)")
VICTIM: Final = re.compile(
    r"(?:^Pod|evicting remaining pod:) (?P<namespace>[a-z0-9-]{1,63})/(?P<name>[a-z0-9.-]{1,253})"
)
# A queue is named by its displayName where it has one.
OVER_QUOTA: Final = re.compile(
    r"requested (?P<requested>[\d.]+) (?P<resource>[\w ()]+?), but (?P<queue>[^,]{1,253}?) quota is "
    r"(?P<deserved>[\d.]+) [\w ()]+?, while (?P<used>[\d.]+) "
)
OVER_LIMIT: Final = re.compile(
    r"(?:^|: )(?P<queue>[^:]{1,253}?) quota has reached the allowable limit of (?P<resource>[\w ()]+?)\. "
    r"Limit is (?P<limit>[\d.]+) [\w ()]+?, currently (?P<used>[\d.]+) [\w ()]+? allocated "
    r"and workload requested (?P<requested>[\d.]+)"
)
NO_DOMAIN: Final = re.compile(
    r"topology (?P<topology>[\w.-]{1,253}), requirement (?P<level>[\w./-]{1,317}) couldn't be satisfied"
)
PENDING: Final = (("NonPreemptibleOverQuota", OVER_QUOTA), ("OverLimit", OVER_LIMIT), ("NoDomain", NO_DOMAIN))


def interpret(pod: Manifest, events: Sequence[Manifest]) -> Reading:
    """Evicted by whom and how, or the reason a pod group waits with KAI's own numbers."""
    said = [_evicted(text) for text in reading.disruption_texts(pod, events, EVICT, "Evicted", "Preempted")]
    if said:
        return next((each for each in said if each.preemptor), said[0])
    for text in _waiting_texts(pod, events):
        if found := _pending(text):
            return found
    return reading.waiting(pod)


def retell(event: Manifest) -> Manifest | None:
    """An event about a pod group's eviction as one about the pod that it names; None: it is about something else.

    The same sentence about a pod made anew is the same event counted once more: here it is another one.
    """
    about, metadata = event.get("involvedObject") or {}, event["metadata"]
    found = VICTIM.search(str(event.get("message", "")))
    if found is None or event.get("reason") != EVICT or about.get("kind") != KAI_POD_GROUP.kind:
        return None
    if about.get("apiVersion") != KAI_POD_GROUP.api_version or found["namespace"] != metadata.get("namespace"):
        return None
    mark = f"{metadata['uid'][:36]}.{event.get('count') or 1}"
    pod: dict[str, Any] = {"kind": "Pod", "namespace": found["namespace"], "name": found["name"]}
    return {**event, "metadata": {**metadata, "uid": mark}, "involvedObject": pod}


def _waiting_texts(pod: Manifest, others: Sequence[Manifest]) -> Iterator[str]:
    """PodGroup conditions carry the most, then the pod's own, then events."""
    for each in others:
        for found in (each.get("status") or {}).get("schedulingConditions") or ():
            yield str(found.get("message", ""))
    if found := reading.condition(pod, "PodScheduled", status="False"):
        yield str(found.get("message", ""))
        yield from reading.messages(others, "Unschedulable", "NotReady")


def _pending(text: str) -> Reading | None:
    for reason, pattern in PENDING:
        if match := pattern.search(text):
            return Reading(reason, text, {key: value.strip() for key, value in match.groupdict().items()})
        if text.startswith(reason):
            return Reading(reason, text)
    return None


def _evicted(text: str) -> Reading:
    if match := PREEMPTED.search(text):
        return Reading("Preempted", text, preemptor=_taker(match["by"]), cause="preempt")
    if match := RECLAIMED.search(text):
        return Reading("Reclaimed", text, preemptor=_taker(match["by"]), cause="reclaim")
    if CONSOLIDATED.search(text):
        return Reading("Consolidated", text, cause="consolidate")
    return Reading("Evicted", text, cause="reclaim" if RECLAIM_WORD.search(text) else "preempt")


def _taker(named: str) -> str:
    """The uid in the name of a pod group is that of a workload's object, or of a pod that stands alone."""
    uids = UID.findall(named) if "/pg-" in named else []
    return f"uid:{uids[-1]}" if uids else named
