"""Domains of close nodes that change make a reconcile due, where the scheduler is told each of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from clusters.domains import places_of
from clusters.enqueue import wake_sync
from clusters.flavours import flavour_for
from clusters.models import Cluster, NodePool
from clusters.services import touches
from clusters.services.looks import Look


@contextmanager
def domains_watched(cluster: Cluster, pools: Sequence[NodePool], look: Look | None, *, moved: bool) -> Iterator[None]:
    """While what was seen of nodes is stored, in its transaction. `moved`: pools have changed, so any node may move.

    Everything is looked at then, since domains may go; a node that says something else of itself costs nothing.
    """
    named = [pool for pool in pools if pool.topology_levels]
    names = _whose(look, moved=moved)
    if not named or not (names is None or names) or not flavour_for(cluster.flavour).traits.names_domains:
        yield
        return
    before = places_of(named, names)
    yield
    if places_of(named, names) != before:
        touches.call_for(cluster.pk, [touches.EVERYTHING])
        wake_sync(cluster.pk)


def _whose(look: Look | None, *, moved: bool) -> Collection[str] | None:
    """Nodes of which something was seen; None: it may be any."""
    if moved or (look and look.whole):
        return None
    return {str(each["metadata"]["name"]) for each in look.every} if look else ()
