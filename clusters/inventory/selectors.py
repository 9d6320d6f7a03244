"""Topology domains of node pools; names and namespaces of owners, as the apps above register them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from clusters.inventory.models import Node, NodePool
from clusters.ports.flavour import TopologyDomain

DomainPath = tuple[int, tuple[str, ...]]
"""A pool's id, and a node's value of each of its levels."""


def domains_of(pool: NodePool) -> tuple[TopologyDomain, ...]:
    """Of its narrowest level; nodes that lack the label of a level are in none."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, values in _values(Node.objects.filter(pool=pool), pool).items():
        found[values].append(name)
    return tuple(TopologyDomain(values, tuple(sorted(found[values]))) for values in sorted(found))


def domains_by_node(pools: Collection[NodePool], names: Collection[str] | None = None) -> Mapping[str, DomainPath]:
    """Where nodes are, by name, of those that are in a domain; of all, or of these."""
    places: dict[str, DomainPath] = {}
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


Namer: TypeAlias = Callable[[frozenset[str]], Mapping[str, str]]
"""Ids of owners in, names of those it knows out."""

OwnerNamespace: TypeAlias = tuple[UUID, str]
"""A cluster's id and a namespace."""
NamespaceLookup: TypeAlias = Callable[[frozenset[str]], Mapping[str, OwnerNamespace]]
"""Ids of owners in, where the objects of those it knows belong out."""

_namers: Final[list[Namer]] = []
_tellers: Final[list[NamespaceLookup]] = []


def register_namer(namer: Namer) -> None:
    """Add one who knows names; once is enough, again changes nothing."""
    if namer not in _namers:
        _namers.append(namer)


def names_of(owner_ids: Iterable[str]) -> dict[str, str]:
    """Names by id; unknown ids are left out."""
    wanted = frozenset(owner_ids) - {""}
    if not wanted:
        return {}
    return {owner: name for namer in _namers for owner, name in namer(wanted).items()}


def register_namespaces(teller: NamespaceLookup) -> None:
    """Add one who knows homes; once is enough, again changes nothing."""
    if teller not in _tellers:
        _tellers.append(teller)


def namespaces_of(owner_ids: Iterable[str]) -> dict[str, OwnerNamespace]:
    """Namespaces by id; unknown ids are left out."""
    wanted = frozenset(owner_ids) - {""}
    if not wanted:
        return {}
    return {owner: home for teller in _tellers for owner, home in teller(wanted).items()}
