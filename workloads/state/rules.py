"""The table of phases, the phase that follows from a workload's pods, and its checkpoints. Pure.

Phases are Run:ai's; there is no "Preempted", an eviction is a record beside the phase. A move that is not in the
table does not happen: the caller has lost a race against another move.

`rung.dev/last-checkpoint-at` is a moment; `rung.dev/checkpoint-interval` a rhythm that begins with the pod.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

ENDED: Final = frozenset({"Completed", "Failed"})
STOPPABLE: Final = frozenset(
    {"Creating", "Initializing", "Resuming", "Pending", "Running", "Updating", "Degraded", "Unknown"}
)
RESUMABLE: Final = frozenset({"Stopped", "Stopping"})
WAITING: Final = frozenset({"Creating", "Pending", "Initializing", "Resuming"})
HOLDING: Final = frozenset({"Running", "Degraded", "Updating"})
NO_CONTROLLER: Final = "NoController"  # the reason of what nothing in its cluster has answered
HELD_BACK: Final = "HeldBack"  # not handed over yet: it would evict workloads inside their minimum runtime
HELD_FOR_QUOTA: Final = "HeldForQuota"  # the same, since non-preemptible work would exceed its pool's deserved quota
HELD: Final = (HELD_BACK, HELD_FOR_QUOTA)

REFUSED_PODS: Final = frozenset(
    {"OverLimit", "NonPreemptibleOverQuota", "OverPriorityCap", "ExceededQuota", "FailedCreate"}
)
"""Reasons of pods that could not even be created."""

_ALIVE = frozenset({"Pending", "Initializing", "Running", "Degraded", "Updating", "Unknown"})
_ENDS = frozenset({"Completed", "Failed", "Stopping", "Deleting"})

TRANSITIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "Creating": _ALIVE | _ENDS,
        "Pending": (_ALIVE | _ENDS | {"Creating"}) - {"Pending"},
        "Initializing": (_ALIVE | _ENDS | {"Creating"}) - {"Initializing"},
        "Running": (_ALIVE | _ENDS | {"Creating"}) - {"Running"},
        "Degraded": (_ALIVE | _ENDS | {"Creating"}) - {"Degraded"},
        "Updating": (_ALIVE | _ENDS) - {"Updating"},
        "Unknown": (_ALIVE | _ENDS | {"Creating"}) - {"Unknown"},
        "Resuming": _ALIVE | _ENDS,
        "Stopping": frozenset({"Stopped", "Resuming", "Completed", "Failed", "Deleting"}),
        "Stopped": frozenset({"Resuming", "Deleting"}),
        "Completed": frozenset({"Deleting"}),
        "Failed": frozenset({"Deleting"}),
        "Terminating": frozenset({"Completed", "Failed", "Stopped", "Deleting"}),
        "Deleting": frozenset(),
    }
)

RETRIES: Final[Mapping[str, frozenset[str]]] = MappingProxyType({"Failed": frozenset({"Creating"})})
"""Moves that only a retry of a failed apply makes: what the cluster shows never leads out of an end."""

LIVE: Final = frozenset(TRANSITIONS) - ENDED
"""Every other phase: named one by one they are found by an index, whatever has ended."""


def may_move(current: str, following: str, *, retrying: bool = False) -> bool:
    """Is the move in the table, or, for a retry, among its own moves?"""
    return following in TRANSITIONS[current] or (retrying and following in RETRIES.get(current, ()))


@dataclass(frozen=True, slots=True)
class PodCounts:
    """What the cluster shows of a workload. Counts are of pods that are not on their way out.

    job: succeeded, failed, suspended, queued, missing, or empty when the object is simply there. leaving: pods that
    still hold their room until their grace ends.
    """

    wanted: int
    min_member: int = 1
    running: int = 0
    starting: int = 0
    waiting: int = 0
    succeeded: int = 0
    leaving: int = 0
    job: str = ""

    @property
    def live(self) -> int:
        """Pods that exist and have not finished, also those on their way out."""
        return self.running + self.starting + self.waiting + self.leaving


def next_phase(current: str, desired: str, counts: PodCounts) -> str:
    """The phase that follows, or the current one when nothing moves (or the table forbids it)."""
    following = _wanted_phase(current, desired, counts)
    return following if following == current or may_move(current, following) else current


def _wanted_phase(current: str, desired: str, counts: PodCounts) -> str:
    if current in ENDED or desired == "Deleted":
        return current
    if counts.job in {"succeeded", "failed"}:
        return "Completed" if counts.job == "succeeded" else "Failed"
    if desired == "Stopped":
        return "Stopping" if counts.live else "Stopped"
    return _running_phase(current, counts)


def _running_phase(current: str, counts: PodCounts) -> str:
    if counts.running + counts.starting == 0 and counts.job == "queued":
        return "Pending"
    if counts.running + counts.starting == 0:
        return "Pending" if counts.waiting or current in HOLDING or current == "Initializing" else current
    present = counts.running + counts.succeeded
    if present >= counts.wanted:
        return "Running"
    if current in HOLDING:
        return "Running" if present >= counts.min_member and counts.min_member < counts.wanted else "Degraded"
    if present >= counts.min_member and not counts.starting:
        return "Running"
    return "Initializing"


LAST: Final = "rung.dev/last-checkpoint-at"
INTERVAL: Final = "rung.dev/checkpoint-interval"
_PART = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def last_checkpoint(spec: Mapping[str, Any], *, started: datetime, now: datetime) -> datetime | None:
    """The latest moment between start and now at which it saved; None when it did not. `spec`: as it is stored."""
    annotations = spec.get("annotations") or {}
    moments = (_stated(annotations.get(LAST, "")), _by_interval(annotations.get(INTERVAL, ""), started, now))
    return max((moment for moment in moments if moment is not None and started < moment <= now), default=None)


def _stated(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _by_interval(text: str, started: datetime, now: datetime) -> datetime | None:
    every = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in _PART.findall(text)), timedelta())
    return started + every * ((now - started) // every) if every and now > started else None


def lost_gpu_seconds(gpu_milli: int, *, started: datetime, checkpoint: datetime | None, at: datetime) -> int:
    """GPU-seconds of work since the last checkpoint, or since the start."""
    seconds = (at - (checkpoint or started)).total_seconds()
    return max(0, round(gpu_milli * seconds / 1000))
