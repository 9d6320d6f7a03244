"""Topologies that an admin has made in a cluster, as lines among the kinds that its row says are served. Pure.

A scheduler that looks for close nodes by a topology uses for a node pool the one of the pool's own name.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from clusters.ports import Manifest

MARK: Final = "topology"
KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
MOST: Final = 100
"""Topologies, and levels of one, that are kept."""


def line_of(topology: Manifest) -> str:
    """`topology <name> <widest key> … <narrowest key>`; empty for what names no label."""
    spec = topology.get("spec")
    levels: Any = spec.get("levels") if isinstance(spec, dict) else None
    keys = [str(each.get("nodeLabel", "")) for each in levels or () if isinstance(each, dict)]
    named = [key for key in keys[:MOST] if KEY.fullmatch(key)]
    return " ".join([MARK, str(topology["metadata"]["name"]), *named]) if named else ""


def kinds_among(served: Iterable[str]) -> list[str]:
    """The lines that name kinds."""
    return [line for line in served if not _is_topology(line)]


def topologies_among(served: Iterable[str]) -> list[str]:
    """The lines that name topologies."""
    return [line for line in served if _is_topology(line)]


def levels_of(served: Iterable[str], pool: str) -> tuple[str, ...]:
    """Node labels of a pool's domains, widest first; empty: there is no topology of its name."""
    head = f"{MARK} {pool.lower()} "
    return next((tuple(line.split(" ")[2:]) for line in served if line.startswith(head)), ())


def _is_topology(line: str) -> bool:
    return line.startswith(f"{MARK} ")
