"""What people can be told about: Run:ai's catalogue of notification types, and the events each stands for. Pure."""

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
PREEMPTED: Final = "Preempted"
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
NOTIFICATION_TYPES: Final[tuple[NotificationType, ...]] = (
    *(NotificationType(STATUS, name, words) for name, words in _PHASES.items()),
    NotificationType(EVICTION, PREEMPTED, "It was evicted for another workload."),
    *(NotificationType(LIMITS, name, words) for name, words in _LIMITS.items()),
)
PHASES: Final = tuple(_PHASES)
REASONS: Final = tuple(_LIMITS)
KNOWN: Final[Mapping[tuple[str, str], NotificationType]] = {
    (each.category, each.type): each for each in NOTIFICATION_TYPES
}


def notification_type_of(event_type: str, phase: str, reason: str) -> NotificationType | None:
    """What an entry of the timeline is called; None: nobody is told of it."""
    if event_type == "preemption":
        return KNOWN[EVICTION, PREEMPTED]
    if event_type == "phase":
        return KNOWN.get((STATUS, phase))
    return KNOWN.get((LIMITS, reason))


def subscribed_types(events: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """(category, type) of everything a subscription names."""
    return frozenset((each["category"], name) for each in events for name in each["types"])
