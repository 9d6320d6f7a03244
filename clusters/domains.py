"""Domains of close nodes as the nodes of a pool were seen last: each with the values of all levels, and its nodes."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from clusters.models import Node, NodePool
from clusters.ports import Domain

Place = tuple[int, tuple[str, ...]]
"""A pool's id, and a node's value of each of its levels."""


def domains_of(pool: NodePool) -> tuple[Domain, ...]:
    """Of its narrowest level; nodes that lack the label of a level are in none."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, values in _values(Node.objects.filter(pool=pool), pool).items():
        found[values].append(name)
    return tuple(Domain(values, tuple(sorted(found[values]))) for values in sorted(found))


def places_of(pools: Collection[NodePool], names: Collection[str] | None = None) -> Mapping[str, Place]:
    """Where nodes are, by name, of those that are in a domain; of all, or of these."""
    places: dict[str, Place] = {}
    for pool in pools:
        nodes = Node.objects.filter(pool=pool)
        found = _values(nodes if names is None else nodes.filter(name__in=names), pool)
        places |= {name: (pool.pk, values) for name, values in found.items()}
    return places


def _values(nodes: QuerySet[Node], pool: NodePool) -> Mapping[str, tuple[str, ...]]:
    if not pool.topology_levels:
        return {}
    levels = [KeyTextTransform(key, "labels") for key in pool.topology_levels]
    rows = nodes.order_by().values_list("name", *levels)
    return {name: values for name, *found in rows if all(values := tuple(found))}
