"""What a scheduler of whole jobs has said of its queues: whom it let in when, and which pods it queues no more."""

from collections.abc import Collection
from typing import Final

from django.db.models import Q, QuerySet

from clusters.flavours.reading import ADMITTED, LEFT_OUT
from clusters.kinds_core import POD
from clusters.models import Cluster, ClusterEvent, ObservedPod

SECOND: Final = 1_000_000  # microseconds, the unit of time stamps in a snapshot


def let_in(cluster: Cluster, pods: Collection[ObservedPod]) -> dict[str, int]:
    """When each pod group was let in, by its name. It may wait for a node long after."""
    owners, uids = {pod.owner_id for pod in pods if pod.owner_id}, [pod.uid for pod in pods]
    said = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason=ADMITTED)
    rows = said.filter(~Q(kind=POD.kind) | Q(object_uid__in=uids)).order_by("at")
    return {
        f"{owner}:{uid}" if kind == POD.kind else owner: int(at.timestamp() * SECOND)
        for owner, kind, uid, at in rows.values_list("owner_id", "kind", "object_uid", "at")
    }


def unqueued(cluster: Cluster) -> QuerySet[ClusterEvent, str]:
    """Uids of pods that stay gated until they are deleted: only another pod in their place is queued."""
    said = ClusterEvent.objects.filter(cluster=cluster, kind=POD.kind, reason=LEFT_OUT)
    return said.values_list("object_uid", flat=True)
