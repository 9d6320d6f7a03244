"""What has changed since a cluster was last made equal to the database, owner by owner: so that one change costs one.

Each row says: from this generation on, this owner's objects may differ. The empty owner means everything. Rows are
removed once a run has brought about what they stand for, so a lost message or a dead worker loses none of them.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import F, Min
from django.db.models.functions import Now

from clusters.models import Cluster, Touch

EVERYTHING: Final = ""
MOST: Final = 16
"""Owners that are looked at one by one; more of them cost more than listing everything."""


def call_for(cluster_id: UUID, owners: Iterable[str]) -> None:
    """A reason to look at these owners: due now. A generation of its own, so that a run under way does not settle it.

    Call it in the transaction of the change.
    """
    row = Cluster.objects.filter(pk=cluster_id)
    row.update(generation=F("generation") + 1, sync_due_at=Now())
    note(cluster_id, owners, row.values_list("generation", flat=True).get())


def note(cluster_id: UUID, owners: Iterable[str], generation: int) -> None:
    """These owners wait for this generation; call it in the transaction of the change."""
    rows = [Touch(cluster_id=cluster_id, owner=owner, generation=generation) for owner in owners]
    Touch.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "owner"], update_fields=["generation"]
    )


def scope_of(cluster: Cluster, *, now: datetime) -> tuple[frozenset[str], int] | None:
    """The owners a run has to look at, and the generation; None: everything, as it is time, or nobody said more."""
    waiting = Touch.objects.filter(cluster=cluster, cluster__resync_due_at__gt=now)
    found = dict(waiting.values_list("owner", "cluster__generation")[: MOST + 1])
    if not found or len(found) > MOST or EVERYTHING in found:
        return None
    return frozenset(found), min(found.values())


def settle(cluster_id: UUID, generation: int, *, owners: frozenset[str] | None, left: Iterable[str]) -> int:
    """A run has made the cluster equal to this generation, except for the owners that are left.

    Answers the generation before the first that somebody still waits for: so far the cluster is synced.
    """
    waiting = set(left)
    done = Touch.objects.filter(cluster_id=cluster_id, generation__lte=generation)
    if owners is not None:
        done = done.filter(owner__in=owners)
    done.exclude(owner__in=waiting).delete()
    known = set(Touch.objects.filter(cluster_id=cluster_id, owner__in=waiting).values_list("owner", flat=True))
    note(cluster_id, waiting - known if len(waiting) <= MOST else {EVERYTHING}, generation)
    first = Touch.objects.filter(cluster_id=cluster_id).aggregate(first=Min("generation"))["first"]
    return generation if first is None else min(generation, int(first) - 1)
