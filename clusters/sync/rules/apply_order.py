"""In which order changes are safe: lower before raise, what others stand on first, deletions last. Pure."""

import copy
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from clusters.ports.gateway import Manifest
from clusters.ports.objects import (
    CREATION_ORDER,
    KAI_QUEUE,
    KUEUE_COHORT,
    KUEUE_QUEUE,
    PARENTS,
    RESOURCE_QUOTA,
    VOLCANO_QUEUE,
    stamped,
)
from clusters.sync.rules.diff import Change, Changes, Create, Delete, FieldChange, Update
from scheduling.model.resources import parse_quantity

LOWERING, BUILDING, CLEARING, RETIRING = 0, 1, 2, 3
AMOUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    RESOURCE_QUOTA.key: ("/spec/hard/",),
    KAI_QUEUE.key: ("/spec/resources/",),
    VOLCANO_QUEUE.key: ("/spec/deserved/", "/spec/capability/"),
    KUEUE_COHORT.key: ("/spec/resourceGroups/",),
    KUEUE_QUEUE.key: ("/spec/resourceGroups/",),
}
ENDLESS: Final = float("inf")
Wave: TypeAlias = tuple[int, int, int]
"""Phase, rank of the kind, depth in the tree of queues."""

_RANK: Final = {kind.key: number for number, kind in enumerate(CREATION_ORDER)}


def in_waves(changes: Iterable[Change], *, retired: Container[str] = ()) -> list[list[Change]]:
    """Changes that do not stand on each other, wave after wave: each begins when the one before it has ended.

    1. quotas that shrink or go, 2. everything that is built up, parents first, 3. what goes, children first,
    4. what goes of retired kinds (their keys), which only a former scheduler reads.
    An update that lowers one amount and raises another becomes two, so an object is in a wave once at most.
    """
    known = [step for change in changes for step in _steps(change)]
    depths = _depths(known)
    waves: dict[Wave, list[Change]] = defaultdict(list)
    for step in known:
        last = is_retiring(step, retired)
        depth = depths.get(step.ref.name, 0)
        waves[_retiring(step, depth) if last else _wave(step, depth)].append(step)
    return [sorted(waves[wave], key=_place) for wave in sorted(waves)]


def is_retiring(change: Change, retired: Container[str]) -> bool:
    """It takes away what a former scheduler needed."""
    return isinstance(change, Delete) and change.ref.kind.key in retired


def is_lowering(change: Change) -> bool:
    """It gives an amount back: applied before anything that takes one."""
    if isinstance(change, Delete):
        return change.ref.kind.key in PARENTS
    return isinstance(change, Update) and "lower" in _directions(change.ref.kind.key, change.changes)


def is_raising(change: Change) -> bool:
    """It takes an amount: not applied while a lowering of the same owner has failed."""
    if isinstance(change, Create):
        return change.ref.kind.key in PARENTS
    if isinstance(change, Delete):
        return change.ref.kind == RESOURCE_QUOTA
    return isinstance(change, Update) and "raise" in _directions(change.ref.kind.key, change.changes)


def body_of(change: Change) -> Manifest:
    """The object the change is about: as desired, or as observed where it goes."""
    return change.observed if isinstance(change, Delete) else change.desired


def _steps(change: Change) -> Iterator[Change]:
    if isinstance(change, Update) and is_lowering(change) and is_raising(change):
        raised = tuple(each for each in change.changes if _direction(change.ref.kind.key, each) == "raise")
        first = copy.deepcopy(change.desired)
        for each in raised:
            _put(first, each.path, each.observed)
        rest = tuple(each for each in change.changes if each not in raised)
        yield replace(change, desired=stamped(first), changes=rest)
        yield replace(change, changes=raised)
    else:
        yield change


def _put(manifest: Manifest, pointer: str, value: Any) -> None:
    *above, last = (token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])
    node: Any = manifest
    for token in above:
        node = node[int(token)] if isinstance(node, list) else node[token]
    node[last] = value


def _wave(change: Change, depth: int) -> Wave:
    rank = _RANK.get(change.ref.kind.key, len(CREATION_ORDER))
    if is_lowering(change):
        return (LOWERING, -rank, -depth)
    if isinstance(change, Delete):
        return (CLEARING, -rank, -depth)
    return (BUILDING, rank, depth)


def _retiring(change: Change, depth: int) -> Wave:
    return (RETIRING, -_RANK.get(change.ref.kind.key, len(CREATION_ORDER)), -depth)


def _place(change: Change) -> tuple[str, str]:
    return (change.ref.namespace, change.ref.name)


def _depths(changes: Iterable[Change]) -> dict[str, int]:
    """Depth of each queue below the root, as far as the changes show."""
    parents = {
        change.ref.name: str(body_of(change).get("spec", {}).get(PARENTS[change.ref.kind.key]) or "")
        for change in changes
        if change.ref.kind.key in PARENTS
    }
    return {name: _depth(name, parents) for name in parents}


def _depth(name: str, parents: Mapping[str, str]) -> int:
    steps = 0
    while (name := parents.get(name, "")) and steps <= len(parents):
        steps += 1
    return steps


def _directions(kind_key: str, changes: Changes) -> Iterator[str]:
    return (_direction(kind_key, change) for change in changes)


def _direction(kind_key: str, change: FieldChange) -> str:
    """lower, raise, or empty for a field that bounds nothing."""
    if not change.path.startswith(AMOUNTS.get(kind_key, ())) or change.path.endswith("overQuotaWeight"):
        return ""
    before, after = _amount(change.observed), _amount(change.desired)
    if before == after:
        return ""
    return "lower" if after < before else "raise"


def _amount(value: Any) -> float:
    """-1, absent and unreadable bound nothing."""
    try:
        number = float(parse_quantity(str(value)))
    except ValueError:
        return ENDLESS
    return ENDLESS if number < 0 else number
