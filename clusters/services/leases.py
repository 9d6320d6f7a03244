"""Who watches which cluster: leases that expire by the database's clock, shared out evenly among living observers.

Holding one is an optimization, no more: two observers of one cluster find out by the versions that they store.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from clusters.models import Cluster, ClusterState, ObserverLease, ObserverSeat
from clusters.services.storing import lease_of

LEASE: Final = timedelta(seconds=15)


def acquire(*, cluster: Cluster, holder: str) -> bool:
    """Take or renew the lease; False while somebody else holds it."""
    lease_of(cluster)
    free = ObserverLease.objects.filter(Q(holder=holder) | Q(expires_at__lt=Now()), cluster=cluster)
    return free.update(holder=holder, expires_at=Now() + LEASE) == 1


def share_out(*, holder: str) -> set[UUID]:
    """Show life, renew, give away what is too much and take what is missing; the clusters that are the holder's now.

    1. take a seat among the living; the seats' order says who takes one more where it does not come out even
    2. renew the leases of active clusters
    3. release those beyond the share, or take free ones up to it
    """
    share = _share(holder)
    mine = _renewed(holder)
    for cluster_id in mine[share:]:
        ObserverLease.objects.filter(cluster=cluster_id, holder=holder).update(holder="", expires_at=Now())
    taken = mine[:share]
    if len(taken) < share:
        taken += _taken(holder, share - len(taken), taken)
    return set(taken)


def release(*, holder: str) -> None:
    """Give every lease of this holder back, and its seat."""
    ObserverLease.objects.filter(holder=holder).update(holder="", expires_at=Now())
    ObserverSeat.objects.filter(holder=holder).delete()


def unwatched() -> list[UUID]:
    """Active clusters whose lease nobody holds."""
    watched = ObserverLease.objects.filter(expires_at__gte=Now()).exclude(holder="").values("cluster")
    return list(_active().exclude(pk__in=watched).values_list("pk", flat=True))


def _active() -> QuerySet[Cluster]:
    return Cluster.objects.filter(state=ClusterState.ACTIVE).order_by("pk")


def _share(holder: str) -> int:
    seat = ObserverSeat(holder=holder, seen_at=Now())
    ObserverSeat.objects.bulk_create([seat], update_conflicts=True, unique_fields=["holder"], update_fields=["seen_at"])
    ObserverSeat.objects.filter(seen_at__lt=Now() - LEASE).delete()
    living = list(ObserverSeat.objects.order_by("holder").values_list("holder", flat=True))
    place = living.index(holder) if holder in living else len(living)
    each, more = divmod(_active().count(), max(len(living), 1))
    return each + (place < more)


def _renewed(holder: str) -> list[UUID]:
    leases = ObserverLease.objects.filter(holder=holder, cluster__state=ClusterState.ACTIVE)
    mine = list(leases.order_by("cluster").values_list("cluster", flat=True))
    renewed = ObserverLease.objects.filter(holder=holder, cluster__in=mine).update(expires_at=Now() + LEASE)
    if renewed != len(mine):  # one was taken over in between
        mine = list(leases.order_by("cluster").values_list("cluster", flat=True))
    return mine


def _taken(holder: str, count: int, mine: Iterable[UUID]) -> list[UUID]:
    taken: list[UUID] = []
    for cluster in _active().exclude(pk__in=mine).filter(pk__in=unwatched()):
        if len(taken) < count and acquire(cluster=cluster, holder=holder):
            taken.append(cluster.pk)
    return taken


def forget_versions(cluster: Cluster) -> None:
    """Another cluster stands behind the address: the versions of the old one mean nothing there, so all is listed."""
    ObserverLease.objects.filter(cluster=cluster).update(versions={})
