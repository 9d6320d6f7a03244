"""What one look at a cluster found, and who wants to know. The apps above register handlers at start-up.

A handler runs in the transaction that stores the observation and must be idempotent: when one fails, everything is
rolled back and the same observation comes again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from clusters.job_status import JobStatus
from clusters.models import Cluster, ClusterEvent, ObservedPod
from clusters.ports import Reading

__all__ = ["Handler", "JobStatus", "Observation", "handlers", "register"]


@dataclass(frozen=True, slots=True)
class Observation:
    """Changes since the last look. `pods` holds new, changed and gone ones; `readings` their standing by pod uid.

    `jobs` is by owner id (the workload's id), for every job object that changed; `events` are new ones, oldest first.
    """

    at: datetime
    pods: tuple[ObservedPod, ...] = ()
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    events: tuple[ClusterEvent, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Cluster, Observation], None]

_handlers: Final[list[Handler]] = []


def register(handler: Handler) -> None:
    """Add a handler; once is enough, again changes nothing."""
    if handler not in _handlers:
        _handlers.append(handler)


def handlers() -> tuple[Handler, ...]:
    """In order of registration."""
    return tuple(_handlers)
