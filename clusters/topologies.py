"""The topology of a node pool: keys of node labels, widest first. Nodes with one value of a key are a domain. Pure.

The rules are those of the schedulers' own objects (Kueue and KAI): no key twice, the node's own name only last.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from portal.core.errors import Problem

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY: Final = rf"({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
LONGEST: Final = 253
MOST: Final = 8
"""Levels of one pool."""
HOSTNAME: Final = "kubernetes.io/hostname"


def told_levels(levels: Sequence[str]) -> tuple[str, ...]:
    """As schedulers are told them: down to the single node, so that what they let go has its places on nodes."""
    return (*levels, *(() if HOSTNAME in levels else (HOSTNAME,)))


def wrong_levels(levels: Sequence[str], *, field: str) -> Iterator[Problem]:
    """What is wrong with them, at the pointer of each; nothing: they can be."""
    if len(levels) > MOST:
        yield Problem(field, "too_many", f"There are {len(levels)} levels; a pool has at most {MOST}.")
    for index, key in enumerate(levels[: MOST + 1]):
        if code := _wrong(levels, index):
            yield Problem(f"{field}/{index}", code, _SAID[code].format(key=key[:80]))


def _wrong(levels: Sequence[str], index: int) -> str:
    key = levels[index]
    if len(key) > LONGEST or not re.fullmatch(LABEL_KEY, key):
        return "invalid"
    if key in levels[:index]:
        return "repeated"
    return "not_last" if key == HOSTNAME and index + 1 < len(levels) else ""


_SAID: Final = {
    "invalid": "{key!r} is no key of a node label, such as topology.kubernetes.io/zone.",
    "repeated": "{key} is a level above already.",
    "not_last": "{key} names single nodes: it can only be the last level.",
}
