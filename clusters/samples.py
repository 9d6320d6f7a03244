"""What is measured every minute, of whom. The apps above register samplers; a sample is what all of them say.

An owner has figures for all node pools together (`ALL`) and, where it is split, for each by name. A pool that is not
named has nothing. Units: GPU thousandths, CPU millicores, memory bytes, seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from clusters.models import Cluster

ALL: Final = "*"
"""All node pools together; no pool can be called so."""
CLUSTER: Final = "cluster"
NODE_POOL: Final = "node-pool"


class Name(StrEnum):
    """What a figure is called. `waited` is what those that wait now have waited so far, all together."""

    GPU_NODES = "gpu_nodes"
    GPU_TOTAL = "gpu_total"
    GPU_HELD = "gpu_held"
    CPU_TOTAL = "cpu_total"
    CPU_HELD = "cpu_held"
    MEMORY_TOTAL = "memory_total"
    MEMORY_HELD = "memory_held"
    GPU_DESERVED = "gpu_deserved"
    CPU_DESERVED = "cpu_deserved"
    MEMORY_DESERVED = "memory_deserved"
    WORKLOADS = "workloads"
    WAITING = "waiting"
    WAITED = "waited"


Figures = Mapping[str, Mapping[str, float]]
"""By node pool or `ALL`, then by name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose figures: a kind, and a primary key as text."""

    kind: str
    id: str


class Sampler(Protocol):
    """What one app measures of a cluster, in a number of queries that does not grow with what is there."""

    def __call__(self, cluster: Cluster, /, *, at: datetime) -> Mapping[Owner, Figures]: ...


@dataclass(frozen=True, slots=True)
class Grain:
    """Samples so far apart are kept for so long."""

    every: timedelta
    kept: timedelta


GRAINS: Final = (
    Grain(timedelta(minutes=1), timedelta(hours=6)),
    Grain(timedelta(minutes=10), timedelta(days=8)),
    Grain(timedelta(hours=1), timedelta(days=35)),
    Grain(timedelta(days=1), timedelta(days=400)),
)
"""The older, the sparser; 2,600 rows of an owner at most."""

_samplers: Final[list[Sampler]] = []


def register(sampler: Sampler) -> None:
    """Add a sampler; once is enough, again changes nothing."""
    if sampler not in _samplers:
        _samplers.append(sampler)


def samplers() -> tuple[Sampler, ...]:
    """In order of registration."""
    return tuple(_samplers)
