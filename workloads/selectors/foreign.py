"""Pods that Rung did not make, as far as somebody may see them."""

from collections.abc import Iterable

from django.db.models import QuerySet

from clusters.models import Cluster, ObservedPod
from tenants.permissions import Standing


def foreign_pods(cluster: Cluster, uids: Iterable[str], standing: Standing) -> QuerySet[ObservedPod]:
    """Of these pods, those in namespaces of projects that the subject may view; all for a platform admin."""
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=list(uids))
    if standing.is_platform_admin:
        return pods
    return pods.filter(namespace__in=standing.projects().filter(cluster=cluster).values("namespace"))
