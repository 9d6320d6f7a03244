"""Who still needs an observed pod. The apps above register keepers at start-up; what nobody needs is pruned in time."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from clusters.models import ObservedPod

Keeper: TypeAlias = Callable[[Sequence[ObservedPod]], set[int]]
"""Given rows that are old enough to go, the primary keys of those that must stay."""

_keepers: Final[list[Keeper]] = []


def register(keeper: Keeper) -> None:
    """Add a keeper; once is enough, again changes nothing."""
    if keeper not in _keepers:
        _keepers.append(keeper)


def needed(pods: Sequence[ObservedPod]) -> set[int]:
    """The rows that somebody still needs."""
    return set().union(*(keeper(pods) for keeper in _keepers))
