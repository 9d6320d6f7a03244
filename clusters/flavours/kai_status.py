"""What KAI says of a pod in Rung's words. Pure.

KAI speaks through the pod groups that it makes of workloads: `pg-<name>-<uid>` after the object whose pods they are,
with a number behind it where an object has several. Why a group waits is in its conditions, read here as events
about that object, and in those of its pods; which pod was evicted for which, and that too few pods exist to try the
group at all, only in events about the group.
Source: KAI 0.17, messages as they were seen; that of a group that is not ready from its source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clusters.flavours import pod_status
from clusters.ports.flavour import GANG_INCOMPLETE, WAITS_FOR_VICTIMS, PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.ports.objects import KAI_POD_GROUP
from clusters.ports.pods import moment_of

EVICT: Final = "Evict"
BOUND: Final = "PodBound"
"""The condition in which KAI's binder says how it fared; the scheduler's own is PodScheduled."""
UNSCHEDULABLE: Final = "Unschedulable"
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
# Of a group in several parts each that is not ready has its own sentence: the numbers are those of the first.
TOO_FEW: Final = re.compile(
    r"Waiting for (?P<minimum>\d{1,9}) pods(?: for SubGroup (?P<part>[\w.-]{1,253}))?, "
    r"currently (?P<existing>\d{1,9}) exist, (?P<gated>\d{1,9}) are gated"
)
PIPELINED: Final = re.compile(r"^Pod \S+ was pipelined to node (?P<node>[\w.-]{1,253})")
PENDING: Final = (
    (pod_status.PIPELINED, WAITS_FOR_VICTIMS, PIPELINED),
    ("NonPreemptibleOverQuota", "NonPreemptibleOverQuota", OVER_QUOTA),
    ("OverLimit", "OverLimit", OVER_LIMIT),
    ("QueueDoesNotExist", "QueueMissing", None),
    ("PreemptionDelayNotElapsed", "PreemptionDelayNotElapsed", None),
    ("NoDomain", "NoDomain", NO_DOMAIN),
    ("Job is not ready for scheduling", GANG_INCOMPLETE, TOO_FEW),
)
"""KAI's word, ours, and how its numbers are written; the first counts where several hold."""
SOURCE: Final = "kai-scheduler"
STARTED: Final = "kai.scheduler/last-start-timestamp"
EVICTED: Final = "kai.scheduler/last-eviction-timestamp"
"""Written with every eviction, also where the event about it is dropped: clients send 25 events about one object."""
UNEXPLAINED: Final = "KAI evicted it; its event, which says for which workload, has not arrived."
RUNS: Final = "KAI has started it."
FREE: Final = "KAI names nothing any more that holds it back."


def interpret(pod: Manifest, events: Sequence[Manifest]) -> PodStatusReason:
    """Evicted by which pod and how, or the reason a pod group waits with KAI's own numbers."""
    texts = pod_status.disruption_texts(pod, events, EVICT, "Evicted", "Preempted", pod_status.PODS_EVICTED)
    if evictions := [_evicted(text) for text in texts]:
        return next((each for each in evictions if each.preemptor), evictions[0])
    if unbound := _not_bound(pod):
        return unbound
    queued = list(pod_status.messages(events, pod_status.QUEUED, pod_status.NOT_READY))
    for text in (*queued, *_waiting_texts(pod, events)):
        if found := _pending(text):
            return found
    return PodStatusReason(UNSCHEDULABLE, queued[0]) if queued else pod_status.waiting_reason(pod)


def pod_group_events(group: Manifest) -> Iterator[Manifest]:
    """What a pod group says, as events about the object whose pods it groups: why it waits, or that this is over, and
    when pods of it were evicted last.

    KAI leaves a condition as it is while some pods of the group run and others wait: it is then older than the start.
    """
    about, status = pod_status.controller_of(group), group.get("status")
    marks = group["metadata"].get("annotations") or {}
    started, evicted = marks.get(STARTED), marks.get(EVICTED)
    if about is not None and moment_of(evicted):
        why = {"reason": pod_status.PODS_EVICTED, "message": UNEXPLAINED}
        yield pod_status.event_of(group, about, "evicted", source=SOURCE, at=evicted, **why)
    if about is None or (status is None and not started):
        return
    waits = _last_condition(status or {})
    if waits is None or _is_later(started, waits.get("lastTransitionTime")):
        reason, message, at = pod_status.ADMITTED, RUNS if started else FREE, started
    else:
        reason, message, at = pod_status.QUEUED, _explained(waits), waits.get("lastTransitionTime")
    yield pod_status.event_of(group, about, "queue", source=SOURCE, reason=reason, message=message, at=at)


def _last_condition(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """One per node pool, the newest last."""
    found = [each for each in status.get("schedulingConditions") or () if each.get("status") == "True"]
    return found[-1] if found else None


def _is_later(one: Any, other: Any) -> bool:
    first, second = moment_of(one), moment_of(other)
    return bool(first and second and first >= second)


def _explained(condition: Mapping[str, Any]) -> str:
    """Each reason with its words, once: of several the message keeps the words alone."""
    reasons = condition.get("reasons") or ()
    messages = dict.fromkeys(f"{each.get('reason', '')}: {each.get('message', '')}" for each in reasons)
    return "\n".join(messages) or str(condition.get("message", ""))


def redirected_event(event: Manifest) -> Manifest | None:
    """An event about a pod group as one about the pod that it names, or the object behind the group; None: neither."""
    about = event.get("involvedObject") or {}
    if (about.get("apiVersion"), about.get("kind")) != (KAI_POD_GROUP.api_version, KAI_POD_GROUP.kind):
        return None
    redirect = REDIRECTED.get(str(event.get("reason")))
    return redirect(event) if redirect else None


def _victim(event: Manifest) -> Manifest | None:
    """The same message about a recreated pod increments the count of the event: here it is another one."""
    metadata = event["metadata"]
    found = VICTIM.search(str(event.get("message", "")))
    if found is None or found["namespace"] != metadata.get("namespace"):
        return None
    mark = f"{metadata['uid'][:36]}.{event.get('count') or 1}"
    pod: dict[str, Any] = {"kind": "Pod", "namespace": found["namespace"], "name": found["name"]}
    return {**event, "metadata": {**metadata, "uid": mark}, "involvedObject": pod}


def _grouped(event: Manifest) -> Manifest | None:
    """The group is named after its object's uid."""
    uids = UID.findall(str(event["involvedObject"].get("name", "")))
    about = {"namespace": event["metadata"].get("namespace", ""), "uid": uids[-1]} if uids else None
    return {**event, "involvedObject": about} if about else None


REDIRECTED: Final = {EVICT: _victim, pod_status.NOT_READY: _grouped}


def _not_bound(pod: Manifest) -> PodStatusReason | None:
    """It has its node, and the binder failed to bind it: said later than that there was none. KAI tries it again."""
    failed = pod_status.condition(pod, BOUND, status="False")
    if failed is None or (pod.get("spec") or {}).get("nodeName"):
        return None
    waited = pod_status.condition(pod, "PodScheduled", status="False")
    if waited and not _is_later(failed.get("lastTransitionTime"), waited.get("lastTransitionTime")):
        return None
    return PodStatusReason(pod_status.NOT_BOUND, str(failed.get("message", "")))


def _waiting_texts(pod: Manifest, events: Sequence[Manifest]) -> Iterator[str]:
    """The pod's own condition, then events."""
    if found := pod_status.condition(pod, "PodScheduled", status="False"):
        yield str(found.get("message", ""))
        yield from pod_status.messages(events, UNSCHEDULABLE)


def _pending(text: str) -> PodStatusReason | None:
    for word, reason, pattern in PENDING:
        if match := pattern and pattern.search(text):
            return PodStatusReason(
                reason, text, {key: value.strip() for key, value in match.groupdict().items() if value}
            )
        if any(line.startswith(word) for line in text.splitlines()):
            return PodStatusReason(reason, text)
    return None


def _evicted(text: str) -> PodStatusReason:
    if match := PREEMPTED.search(text):
        return PodStatusReason("Preempted", text, preemptor=_taker(match["by"]), cause="preempt")
    if match := RECLAIMED.search(text):
        return PodStatusReason("Reclaimed", text, preemptor=_taker(match["by"]), cause="reclaim")
    if CONSOLIDATED.search(text):
        return PodStatusReason("Consolidated", text, cause="consolidate")
    return PodStatusReason("Evicted", text, cause="reclaim" if RECLAIM_WORD.search(text) else "unknown")


def _taker(named: str) -> str:
    """The uid in the name of a pod group is that of a workload's object, or of a bare pod."""
    uids = UID.findall(named) if "/pg-" in named else []
    return f"uid:{uids[-1]}" if uids else named
