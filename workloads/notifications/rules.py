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
    "Pending": "It waits for its place.",
    "Running": "It runs.",
    "Degraded": "Some of its pods do not run.",
    "Completed": "It has finished.",
    "Failed": "It has failed.",
    "Stopped": "It is stopped.",
}
_LIMITS: Final[Mapping[str, str]] = {
    "TimeLimitNear": "It will soon be stopped: its time ends.",
    "TimeLimitReached": "It is stopped: its time has ended.",
    "IdleLimitNear": "It will soon be stopped: its GPUs do nothing.",
    "IdleLimitReached": "It is stopped: its GPUs did nothing for too long.",
}
NOTIFICATION_TYPES: Final[tuple[NotificationType, ...]] = (
    *(NotificationType(STATUS, name, words) for name, words in _PHASES.items()),
    NotificationType(EVICTION, PREEMPTED, "It was evicted for other work."),
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
