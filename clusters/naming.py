"""What owners are called, and where they are at home: the apps above know their rows, and say it when asked."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

Namer: TypeAlias = Callable[[frozenset[str]], Mapping[str, str]]
"""Ids of owners in, names of those it knows out."""

Home: TypeAlias = tuple[UUID, str]
"""A cluster's id and a namespace."""
Teller: TypeAlias = Callable[[frozenset[str]], Mapping[str, Home]]
"""Ids of owners in, where the objects of those it knows belong out."""

_namers: Final[list[Namer]] = []
_tellers: Final[list[Teller]] = []


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


def register_homes(teller: Teller) -> None:
    """Add one who knows homes; once is enough, again changes nothing."""
    if teller not in _tellers:
        _tellers.append(teller)


def homes_of(owner_ids: Iterable[str]) -> dict[str, Home]:
    """Homes by id; an id that nobody knows is left out."""
    wanted = frozenset(owner_ids) - {""}
    if not wanted:
        return {}
    return {owner: home for teller in _tellers for owner, home in teller(wanted).items()}
