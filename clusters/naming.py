"""What owners are called: the apps above know the names of their rows, and say them when asked."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

Namer: TypeAlias = Callable[[frozenset[str]], Mapping[str, str]]
"""Ids of owners in, names of those it knows out."""

_namers: Final[list[Namer]] = []


def register(namer: Namer) -> None:
    """Add one who knows names; once is enough, again changes nothing."""
    if namer not in _namers:
        _namers.append(namer)


def names_of(owner_ids: Iterable[str]) -> dict[str, str]:
    """Names by id; an id that nobody knows is left out."""
    wanted = frozenset(owner_ids) - {""}
    if not wanted:
        return {}
    return {owner: name for namer in _namers for owner, name in namer(wanted).items()}
