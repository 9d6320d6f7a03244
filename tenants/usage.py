"""What projects use now. The numbers belong to the app above, which registers itself here at start-up."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduling.resources import ZERO, Resources
from tenants.models import Project


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of one project in one node pool: held by running pods, held by non-preemptible ones, asked for in all."""

    allocated: Resources = ZERO
    non_preemptible: Resources = ZERO
    requested: Resources = ZERO

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.allocated + other.allocated,
            self.non_preemptible + other.non_preemptible,
            self.requested + other.requested,
        )


@dataclass(frozen=True, slots=True)
class HeldWork:
    """A workload that holds something and may be evicted; `label` names it with its project and priority."""

    label: str
    held: Resources


UsageByQueue = Mapping[tuple[int, str], Usage]
"""Keys: (project id, node pool name). A missing key is no use at all."""


@dataclass(frozen=True, slots=True)
class UsageProvider:
    """What the app above answers, each in a constant number of queries.

    usage: per (project id, pool name), for these projects.
    live_workloads: how many workloads that are not finished or deleted each project has; missing is none.
    priority_names, category_names: names of the priority dictionary and of its categories.
    preemptible_work: what these projects hold in the pool of that name and may lose, in the order in which it is taken.
    """

    usage: Callable[[Collection[int]], UsageByQueue]
    live_workloads: Callable[[Collection[int]], Mapping[int, int]]
    priority_names: Callable[[], Collection[str]]
    category_names: Callable[[], Collection[str]] = tuple
    preemptible_work: Callable[[Collection[int], str], Sequence[HeldWork]] = lambda _ids, _pool: ()


NOBODY: Final = UsageProvider(usage=lambda _: {}, live_workloads=lambda _: {}, priority_names=lambda: ())
_registered: list[UsageProvider] = []


def register(provider: UsageProvider) -> UsageProvider:
    """Make this provider the source of every answer; returns the one it replaces."""
    previous = _provider()
    _registered[:] = [provider]
    return previous


def _provider() -> UsageProvider:
    return _registered[0] if _registered else NOBODY


def usage_by_queue(project_ids: Collection[int]) -> UsageByQueue:
    """Use of these projects per (project id, pool name)."""
    return _provider().usage(project_ids)


def usage_of(project: Project, pool: str) -> Usage:
    """Use of one project in the node pool of that name."""
    return usage_by_queue([project.pk]).get((project.pk, pool), Usage())


def live_workloads(project_ids: Collection[int]) -> int:
    """How many workloads of these projects are neither finished nor deleted."""
    return sum(_provider().live_workloads(project_ids).values())


def priority_names() -> frozenset[str]:
    """Names of the priority dictionary; empty when nobody has registered one."""
    return frozenset(_provider().priority_names())


def category_names() -> frozenset[str]:
    """Names of the categories of workloads; empty when nobody has registered one."""
    return frozenset(_provider().category_names())


def preemptible_work(project_ids: Collection[int], pool: str) -> Sequence[HeldWork]:
    """What these projects hold in a pool and may lose: lowest priority first, of equals the youngest."""
    return _provider().preemptible_work(project_ids, pool)
