"""Types of notifications: Run:ai's catalogue, and the events of each type. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class NotificationType:
    """One type of notification."""

    category: str
    type: str
    description: str


STATUS: Final = "Workload status change"
EVICTION: Final = "Workload preemption"
LIMITS: Final = "Workload limits"
FINDINGS: Final = "Scheduling finding"
CHANGES: Final = "Workload change"
QUOTA: Final = "Quota requests"
PREEMPTED: Final = "Preempted"
EMAIL: Final = "email"
WEBHOOK: Final = "webhook"
_PHASES: Final[Mapping[str, str]] = {
    "Pending": "It is waiting.",
    "Running": "It runs.",
    "Degraded": "Some of its pods are not running.",
    "Completed": "It has finished.",
    "Failed": "It has failed.",
    "Stopped": "It is stopped.",
}
_LIMITS: Final[Mapping[str, str]] = {
    "TimeLimitNear": "It will be stopped soon: its time limit is close.",
    "TimeLimitReached": "It was stopped: time limit reached.",
    "IdleLimitNear": "It will be stopped soon: its GPUs are idle.",
    "IdleLimitReached": "It was stopped: idle limit reached.",
}
_FINDINGS: Final[Mapping[str, str]] = {
    "ShortEvictsLong": "A short job evicted it after a long run.",
    "InsideMinRuntime": "It was evicted inside its minimum runtime.",
    "PriorityInversion": "It waits while lower priorities started later.",
    "Starvation": "It waits while much that was submitted later has started.",
    "Fragmentation": "It waits for GPUs that are free, but not on one node.",
    "Thrashing": "It is evicted again and again.",
    "IdleGpus": "Its GPUs do nothing.",
    "PinnedQuota": "Non-preemptible workloads exceed the deserved quota of their project.",
}
_QUOTA: Final[Mapping[str, str]] = {
    "QuotaRequested": "Someone requests quota that you may grant.",
    "QuotaDecided": "Your request for quota was approved or declined.",
    "QuotaEnded": "Quota granted until a date was taken back, or cannot be yet.",
    "PlanNeedsApproval": "A plan of another admin waits for your approval.",
}
NOTIFICATION_TYPES: Final[tuple[NotificationType, ...]] = (
    *(NotificationType(STATUS, name, words) for name, words in _PHASES.items()),
    NotificationType(EVICTION, PREEMPTED, "It was evicted for another workload."),
    *(NotificationType(LIMITS, name, words) for name, words in _LIMITS.items()),
    *(NotificationType(FINDINGS, name, words) for name, words in _FINDINGS.items()),
    *(NotificationType(QUOTA, name, words) for name, words in _QUOTA.items()),
    NotificationType(CHANGES, "Any", "Anything of its timeline. By webhooks only."),
)
KNOWN: Final[Mapping[tuple[str, str], NotificationType]] = {
    (each.category, each.type): each for each in NOTIFICATION_TYPES
}


def notification_types_of(event_type: str, phase: str, reason: str) -> tuple[NotificationType, ...]:
    """What an entry of the timeline is called, the most specific first. Every entry is a change."""
    if event_type == "preemption":
        specific: NotificationType | None = KNOWN[EVICTION, PREEMPTED]
    elif event_type == "phase":
        specific = KNOWN.get((STATUS, phase))
    else:
        specific = KNOWN.get((LIMITS, reason)) or KNOWN.get((FINDINGS, reason))
    return ((specific,) if specific else ()) + (KNOWN[CHANGES, "Any"],)


def subscribed_types(events: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """(category, type) of everything a subscription names."""
    return frozenset((each["category"], name) for each in events for name in each["types"])
