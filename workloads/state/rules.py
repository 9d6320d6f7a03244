"""The table of phases, the phase that follows from a workload's pods, and its checkpoints. Pure.

Phases are Run:ai's; there is no "Preempted", an eviction is a record beside the phase. A move that is not in the
table does not happen: the caller has lost a race against another move.

`rung.dev/last-checkpoint-at` is a moment; `rung.dev/checkpoint-interval` a rhythm that begins with the pod.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
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
NEXT_POOL: Final = "NextPool"  # it was moved to another of its node pools, whose scheduler has not said anything yet

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


FEWEST_REPORTS: Final = 3
"""Of fewer reports there is no median. It also keeps the checkpoints of one project from being read off."""


@dataclass(frozen=True, slots=True)
class CheckpointMedians:
    """Median work, as time since the last checkpoint or the start, that running workloads with reports would lose.

    by_category: of the categories of workload types with at least `FEWEST_REPORTS` reports. overall: of all reports.
    """

    by_category: Mapping[str, timedelta]
    overall: timedelta | None = None

    def of(self, category: str) -> timedelta | None:
        """The median of the category, else of all; None where too few workloads report."""
        return self.by_category.get(category, self.overall)


@dataclass(frozen=True, slots=True)
class CostAtRisk:
    """GPU-seconds that an eviction now would lose. basis: `checkpoint`, `median` or `start`, as in `cost_at_risk`."""

    gpu_seconds: int
    basis: str

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / 3600


def reports_checkpoints(annotations: Mapping[str, str] | None, *, now: datetime) -> bool:
    """Whether the annotations state a past checkpoint, also one before this run, or an interval."""
    notes = annotations or {}
    stated = _stated(notes.get(LAST, ""))
    return (stated is not None and stated <= now) or _states_interval(notes)


def _states_interval(notes: Mapping[str, str]) -> bool:
    return any(int(number) for number, _unit in _PART.findall(notes.get(INTERVAL, "")))


def checkpoint_medians(reports: Iterable[tuple[str, timedelta]]) -> CheckpointMedians:
    """Medians of pairs of category and time that would be lost."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for category, span in reports:
        seconds[category].append(span.total_seconds())
    found = {category: middle for category, own in seconds.items() if (middle := _median(own)) is not None}
    return CheckpointMedians(found, _median([each for own in seconds.values() for each in own]))


def _median(seconds: list[float]) -> timedelta | None:
    return timedelta(seconds=median(seconds)) if len(seconds) >= FEWEST_REPORTS else None


def cost_at_risk(
    gpu_milli: int,
    annotations: Mapping[str, str] | None,
    category: str,
    *,
    started: datetime,
    now: datetime,
    medians: CheckpointMedians,
) -> CostAtRisk:
    """What an eviction now would lose. The rule is Rung's own:

    1. A workload that reports checkpoints loses the time since the last one, or since its start.
    2. One that reports nothing counts as the median of the running workloads of its category that report, else of all
       that report, and never as more than it has run. Counted from its start it would seem the more costly victim,
       and reporting would be punished.
    3. Where fewer than `FEWEST_REPORTS` workloads report, it counts from its start: the most that it can lose.
    """
    if reports_checkpoints(annotations, now=now):
        saved = last_checkpoint({"annotations": annotations}, started=started, now=now)
        return CostAtRisk(lost_gpu_seconds(gpu_milli, started=started, checkpoint=saved, at=now), "checkpoint")
    typical = medians.of(category)
    since = None if typical is None else max(started, now - typical)
    lost = lost_gpu_seconds(gpu_milli, started=started, checkpoint=since, at=now)
    return CostAtRisk(lost, "start" if typical is None else "median")
