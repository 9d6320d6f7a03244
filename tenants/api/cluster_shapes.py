"""Clusters to Run:ai's JSON. How they stand is told from what Rung saw and did, never guessed."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from clusters.models import Cluster, ClusterState, SyncRun, SyncState
from clusters.selectors import STALE_AFTER, comparison_of
from clusters.services.removing import TRIGGER
from portal.core.wire import TENANT_ID, stamp

LACKS_RIGHTS: Final = "Its account lacks rights"


def clusters_json(clusters: Iterable[Cluster], *, full: bool) -> list[dict[str, Any]]:
    """DisplayedCluster, with two keys of Rung's own: its scheduler, and whether it is simulated. Two queries."""
    chosen = list(clusters)
    removals = _removals(chosen)
    return [_cluster(each, removals.get(each.pk), full=full) for each in chosen]


def _removals(clusters: Iterable[Cluster]) -> Mapping[UUID, datetime]:
    """When the removal that goes on, or is done, was asked for."""
    runs = SyncRun.objects.filter(cluster__in=clusters, trigger=TRIGGER).order_by("started_at", "id")
    latest = {run.cluster_id: run for run in runs}
    wanted = {SyncState.RUNNING, SyncState.SUCCEEDED}
    return {key: run.started_at for key, run in latest.items() if run.state in wanted}


def _cluster(cluster: Cluster, removal: datetime | None, *, full: bool) -> dict[str, Any]:
    leaves = cluster.state == ClusterState.PAUSED
    return {
        "uuid": str(cluster.pk),
        "tenantId": TENANT_ID,
        "name": cluster.name,
        "createdAt": stamp(cluster.created_at),
        "lastLiveness": stamp(cluster.observed_at),
        "deleteRequestedAt": stamp(removal) if leaves else None,
        "flavour": cluster.flavour,
        "simulated": cluster.is_simulated,
        **({"status": _status(cluster)} if full else {}),
    }


def _status(cluster: Cluster) -> dict[str, Any]:
    return {
        "state": state_of(cluster),
        "conditions": [_observed(cluster), _synced(cluster), *_paused(cluster), *_takes_no_work(cluster)],
        "platform": {"kubeVersion": cluster.version or None},
    }


def state_of(cluster: Cluster) -> str:
    """One of Run:ai's words for how Rung stands with the cluster."""
    if cluster.state == ClusterState.PAUSED:
        return "MissingPrerequisites" if cluster.paused_reason.startswith(LACKS_RIGHTS) else "Disconnected"
    if cluster.observed_at is None:
        return "WaitingToConnect"
    if not _is_seen(cluster):
        return "Disconnected"
    return "ServiceIssues" if cluster.failures or cluster.breaker_reason else "Connected"


def _is_seen(cluster: Cluster) -> bool:
    return cluster.observed_at is not None and timezone.now() - cluster.observed_at <= STALE_AFTER


def _observed(cluster: Cluster) -> dict[str, Any]:
    """Since when is not kept: its time is the last moment that is on record."""
    seen = _is_seen(cluster)
    at = cluster.observed_at or cluster.created_at
    text = "" if seen else "Nobody has seen it since." if cluster.observed_at else "It was not seen yet."
    return _condition("Observed", "Seen" if seen else "NotSeen", text, at, is_true=seen)


def _synced(cluster: Cluster) -> dict[str, Any]:
    """Unknown where the last complete comparison says nothing of now. Its time is that comparison's."""
    compared = comparison_of(cluster)
    text = f"{cluster.failures} runs in a row did not succeed." if cluster.failures else compared.why
    at = compared.at or cluster.created_at
    if compared.state == "unknown":
        return _condition("Synced", "NotCompared", text, at, is_true=None)
    done = compared.state == "synced"
    return _condition("Synced", "HoldsWhatIsWanted" if done else "ChangesAreDue", text, at, is_true=done)


def _paused(cluster: Cluster) -> list[dict[str, Any]]:
    if cluster.state != ClusterState.PAUSED:
        return []
    at = cluster.observed_at or cluster.created_at
    return [_condition("Paused", "Paused", cluster.paused_reason, at, is_true=True)]


def _takes_no_work(cluster: Cluster) -> list[dict[str, Any]]:
    """Why no work is sent to it, while its circuit breaker is open."""
    if not cluster.breaker_reason:
        return []
    at = cluster.breaker_since or cluster.created_at
    return [_condition("TakesWork", "TriedAgain", cluster.breaker_reason, at, is_true=False)]


def _condition(name: str, reason: str, message: str, at: datetime, *, is_true: bool | None) -> dict[str, Any]:
    return {
        "type": name,
        "status": "Unknown" if is_true is None else str(is_true),
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
    }
