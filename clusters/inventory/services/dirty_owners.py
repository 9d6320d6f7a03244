"""Owners whose objects may differ since the last sync, and the messages that notify workers of them.

Each row says: from this generation on, this owner's objects may differ. The empty owner means everything. Rows are
removed once a run has brought about what they stand for, so a lost message or a dead worker loses none of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import F, Min
from django.db.models.functions import Now

from clusters.inventory.models import Cluster, DirtyOwner
from portal.kit.messaging.publisher import notify_worker

SYNC_QUEUE = "sync"


def notify_sync(cluster_id: UUID | str) -> None:
    notify_worker("clusters.reconcile_cluster", str(cluster_id), queue=SYNC_QUEUE)


def notify_dry_run(cluster_id: UUID | str) -> None:
    """Find out soon what a reconcile of this cluster would do."""
    notify_worker("clusters.dry_run", str(cluster_id), queue=SYNC_QUEUE)


def notify_removal(cluster_id: UUID | str) -> None:
    notify_worker("clusters.remove_traces", str(cluster_id), queue=SYNC_QUEUE)


def notify_observe(cluster_id: UUID | str) -> None:
    notify_worker("clusters.observe", str(cluster_id), queue=SYNC_QUEUE)


ALL_OWNERS: Final = ""
MOST: Final = 16
"""Owners that are looked at one by one; more of them cost more than listing everything."""
FEW: Final = 4
"""Objects of one owner that are looked at one by one; more of them are no less than all of the owner's."""


class ObjectKey(NamedTuple):
    """One object: the key of its kind, its namespace if it is in one, its name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class DirtyScope:
    """Dirty owners up to a generation; per owner the dirty objects, or none: then any may differ."""

    generation: int
    owners: Mapping[str, frozenset[ObjectKey]]


def enqueue(cluster_id: UUID, owners: Iterable[str], only: Mapping[str, Iterable[ObjectKey]] | None = None) -> None:
    """A reason to look at these owners: due now. A generation of its own, so that a run under way does not settle it.

    `only`: of which of them only some objects were touched. Call it in the transaction of the change.
    """
    row = Cluster.objects.filter(pk=cluster_id)
    row.update(generation=F("generation") + 1, sync_due_at=Now())
    record_dirty(cluster_id, owners, row.values_list("generation", flat=True).get(), only)


def record_dirty(
    cluster_id: UUID, owners: Iterable[str], generation: int, only: Mapping[str, Iterable[ObjectKey]] | None = None
) -> None:
    """These owners wait for this generation; call it in the transaction of the change.

    Who waits already keeps what was said then, and its generation with it: that is how it comes to mean all.
    """
    lines = {owner: _lines(places) for owner, places in (only or {}).items()}
    rows = [
        DirtyOwner(
            cluster_id=cluster_id, owner=owner, generation=generation, only=lines.get(owner, ""), only_at=generation
        )
        for owner in owners
    ]
    DirtyOwner.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "owner"], update_fields=["generation"]
    )


def dirty_scope_of(cluster: Cluster, *, now: datetime) -> DirtyScope | None:
    """What a run has to read; None: everything, because it is due or no owner was named."""
    waiting = DirtyOwner.objects.filter(cluster=cluster, cluster__resync_due_at__gt=now)
    rows = list(waiting.values_list("cluster__generation", "owner", "generation", "only", "only_at")[: MOST + 1])
    owners = {owner: _places(only if at == only_at else "") for _, owner, at, only, only_at in rows}
    if not owners or len(owners) > MOST or ALL_OWNERS in owners:
        return None
    return DirtyScope(min(row[0] for row in rows), owners)


def _lines(places: Iterable[ObjectKey]) -> str:
    named = sorted({" ".join(place) for place in places})
    return "\n".join(named) if len(named) <= FEW else ""


def _places(lines: str) -> frozenset[ObjectKey]:
    return frozenset(ObjectKey(*line.split(" ", 2)) for line in lines.splitlines())


def mark_synced(cluster_id: UUID, generation: int, *, owners: frozenset[str] | None, left: Iterable[str]) -> int:
    """A run has made the cluster equal to this generation, except for the owners that are left.

    Return the generation before the first one that is still dirty: the cluster is synced up to it.
    """
    waiting = set(left)
    done = DirtyOwner.objects.filter(cluster_id=cluster_id, generation__lte=generation)
    if owners is not None:
        done = done.filter(owner__in=owners)
    done.exclude(owner__in=waiting).delete()
    known = set(DirtyOwner.objects.filter(cluster_id=cluster_id, owner__in=waiting).values_list("owner", flat=True))
    record_dirty(cluster_id, waiting - known if len(waiting) <= MOST else {ALL_OWNERS}, generation)
    first = DirtyOwner.objects.filter(cluster_id=cluster_id).aggregate(first=Min("generation"))["first"]
    return generation if first is None else min(generation, int(first) - 1)
