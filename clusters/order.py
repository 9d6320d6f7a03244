"""In which order changes are safe: lower before raise, what others stand on first, deletions last. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from clusters.diff import Change, Changes, Create, Delete, Update
from clusters.kinds_core import KAI_QUEUE, LIMIT_RANGE, NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA
from clusters.ports import Manifest
from scheduling.resources import parse_quantity

STANDS_ON: Final = (PRIORITY_CLASS, NAMESPACE, KAI_QUEUE, LIMIT_RANGE, RESOURCE_QUOTA)
"""What comes first when objects are created. Quotas name PriorityClasses and live in namespaces."""

LOWERING, BUILDING, CLEARING = 0, 1, 2
AMOUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    RESOURCE_QUOTA.key: ("/spec/hard/",),
    KAI_QUEUE.key: ("/spec/resources/",),
}
ENDLESS: Final = float("inf")

_RANK: Final = {kind.key: number for number, kind in enumerate(STANDS_ON)}


def in_safe_order(changes: Iterable[Change]) -> list[Change]:
    """Quotas that shrink or go, then everything that is built up (parents first), then what goes (children first)."""
    known = list(changes)
    depths = _depths(known)
    return sorted(known, key=lambda change: _key(change, depths.get(change.ref.name, 0)))


def is_lowering(change: Change) -> bool:
    """It gives an amount back: applied before anything that takes one."""
    if isinstance(change, Delete):
        return change.ref.kind == KAI_QUEUE
    return isinstance(change, Update) and "lower" in set(_directions(change.ref.kind.key, change.changes))


def is_raising(change: Change) -> bool:
    """It takes an amount: not applied while a lowering of the same owner has failed."""
    if isinstance(change, Create):
        return change.ref.kind == KAI_QUEUE
    if isinstance(change, Delete):
        return change.ref.kind == RESOURCE_QUOTA
    return isinstance(change, Update) and "raise" in set(_directions(change.ref.kind.key, change.changes))


def body_of(change: Change) -> Manifest:
    """The object the change is about: as desired, or as observed where it goes."""
    return change.observed if isinstance(change, Delete) else change.desired


def _key(change: Change, depth: int) -> tuple[int, int, int, str, str]:
    rank = _RANK.get(change.ref.kind.key, len(STANDS_ON))
    place = (change.ref.namespace, change.ref.name)
    if is_lowering(change):
        return (LOWERING, -rank, -depth, *place)
    if isinstance(change, Delete):
        return (CLEARING, -rank, -depth, *place)
    return (BUILDING, rank, depth, *place)


def _depths(changes: Iterable[Change]) -> dict[str, int]:
    """How far below the root each queue hangs, as far as the changes tell."""
    parents = {
        change.ref.name: str(body_of(change).get("spec", {}).get("parentQueue") or "")
        for change in changes
        if change.ref.kind == KAI_QUEUE
    }
    return {name: _depth(name, parents) for name in parents}


def _depth(name: str, parents: Mapping[str, str]) -> int:
    steps = 0
    while (name := parents.get(name, "")) and steps <= len(parents):
        steps += 1
    return steps


def _directions(kind_key: str, changes: Changes) -> Iterator[str]:
    for change in changes:
        if change.path.startswith(AMOUNTS.get(kind_key, ())) and not change.path.endswith("overQuotaWeight"):
            before, after = _amount(change.observed), _amount(change.desired)
            if before != after:
                yield "lower" if after < before else "raise"


def _amount(value: Any) -> float:
    """-1, absent and unreadable bound nothing."""
    try:
        number = float(parse_quantity(str(value)))
    except ValueError:
        return ENDLESS
    return ENDLESS if number < 0 else number
