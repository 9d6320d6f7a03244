"""Who watches which cluster: a lease that expires by the database's clock. Holding one is an optimization, no more."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster, ClusterState, ObserverLease
from clusters.services.storing import lease_of

LEASE: Final = timedelta(seconds=15)


def acquire(*, cluster: Cluster, holder: str) -> bool:
    """Take or renew the lease; False while somebody else holds it."""
    lease_of(cluster)
    free = ObserverLease.objects.filter(Q(holder=holder) | Q(expires_at__lt=Now()), cluster=cluster)
    return free.update(holder=holder, expires_at=Now() + LEASE) == 1


def release(*, holder: str) -> None:
    """Give every lease of this holder back."""
    ObserverLease.objects.filter(holder=holder).update(holder="", expires_at=Now())


def unwatched() -> list[UUID]:
    """Active clusters whose lease nobody holds."""
    watched = ObserverLease.objects.filter(expires_at__gte=Now()).exclude(holder="").values("cluster")
    return list(Cluster.objects.filter(state=ClusterState.ACTIVE).exclude(pk__in=watched).values_list("pk", flat=True))
