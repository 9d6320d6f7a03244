"""Domains of close nodes in Volcano's words: a HyperNode for each, and the tier that a gang may not leave. Pure.

Source: Volcano 1.15.1. A gang that may use tier 2 is put into one HyperNode of tier 2 or below. Three traps are known:
above all HyperNodes Volcano thinks a root, of a tier one higher than the highest, which stands for the whole cluster;
a member by label that moves to another HyperNode stays in the first one too; and a HyperNode that is a member of two
stops every gang that asks for a domain. So there is always one of a tier above all levels, members are named, and
a domain is named after the values of all levels down to its own, which belong to one parent only.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from clusters.flavours.common import POOL, TOPOLOGY_KEY
from clusters.kinds_core import VOLCANO_HYPER_NODE
from clusters.ownership import owned
from clusters.ports import JobSpec, Manifest, PoolSpec
from clusters.topologies import MOST

CEILING: Final = "rung.ceiling"
NOBODY: Final = "rung.nobody"
"""A node that is none: the ceiling holds no nodes, but Volcano wants it to have a member."""
NOWHERE: Final = 0
"""A tier without HyperNodes."""
LONGEST: Final = 63
DIGEST: Final = 10


def hyper_nodes(pools: Iterable[PoolSpec]) -> Iterator[Manifest]:
    """topology.volcano.sh/v1alpha1 HyperNodes: the ceiling, then the domains of every pool, narrowest first."""
    yield _hyper_node(CEILING, "cluster", MOST + 1, [("Node", NOBODY)])
    for pool in pools:
        for depth in range(len(pool.topology_levels), 0, -1):
            yield from _level(pool, depth)


def network_topology(job: JobSpec) -> dict[str, Any]:
    """Of a PodGroup: its pods in one domain of the level that was asked for; empty: anywhere.

    What is no level of the pool any more is nowhere: the gang waits, rather than be spread.
    """
    key = asked_level(job)
    if not key:
        return {}
    levels = job.pool.topology_levels if job.pool else ()
    tier = len(levels) - levels.index(key) if key in levels else NOWHERE
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}


def asked_level(job: JobSpec) -> str:
    """The node label of which all its pods want one value; empty: any nodes will do."""
    return str(((job.manifest.get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_KEY, ""))


def _level(pool: PoolSpec, depth: int) -> Iterator[Manifest]:
    """Domains of the level at that depth: of the narrowest their members are nodes, else the domains inside them."""
    members: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
    narrowest = depth == len(pool.topology_levels)
    for domain in pool.domains:
        inner = ("HyperNode", _name(pool, domain.values[: depth + 1]))
        members[domain.values[:depth]] |= {("Node", node) for node in domain.nodes} if narrowest else {inner}
    tier, key = len(pool.topology_levels) - depth + 1, pool.topology_levels[depth - 1]
    for values, found in sorted(members.items()):
        yield _hyper_node(_name(pool, values), f"pool.{pool.name}", tier, sorted(found), pool=pool, key=key)


def _name(pool: PoolSpec, values: Sequence[str]) -> str:
    """Legible, and another one for every other path of values."""
    digest = sha256("\n".join((pool.name, *values)).encode()).hexdigest()[:DIGEST]
    legible = re.sub(r"[^a-z0-9]+", "-", "-".join(values).lower()).strip("-")
    return f"{f'{pool.name}.{legible}'[: LONGEST - DIGEST - 1].strip('-.')}-{digest}"


def _hyper_node(
    name: str,
    owner: str,
    tier: int,
    members: Iterable[tuple[str, str]],
    *,
    pool: PoolSpec | None = None,
    key: str = "",
) -> Manifest:
    labels, annotations = ({POOL: pool.name}, {TOPOLOGY_KEY: key}) if pool else ({}, {})
    metadata = owned(name, owner=owner, generation=0, labels=labels, annotations=annotations)
    named = [{"type": kind, "selector": {"exactMatch": {"name": each}}} for kind, each in members]
    kind, spec = VOLCANO_HYPER_NODE, {"tier": tier, "members": named}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
