"""Kubernetes events about our objects, kept after the API server has forgotten them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from clusters.errors import ClusterError
from clusters.kinds_core import kind_of
from clusters.models import Cluster, ClusterEvent, ObservedPod
from clusters.pods import moment_of
from clusters.ports import ClusterGateway, Manifest, ObjectRef
from clusters.services.looks import Look
from clusters.services.observed_pods import workload_id

MANY = 5000


def owners_of_events(gateway: ClusterGateway, look: Look, owners: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Workload id by uid, also of job objects that are not known yet. Asks the cluster: not inside a transaction."""
    known = {uid: owner for kept in owners.values() for uid, owner in kept.items()}
    for event in look.present[-MANY:]:
        about = event.get("involvedObject") or {}
        uid = str(about.get("uid", ""))
        if about.get("kind") != "Pod" and uid and uid not in known:
            known[uid] = _ask(gateway, about)
    return known


def _ask(gateway: ClusterGateway, about: Mapping[str, Any]) -> str:
    try:
        kind = kind_of(about)
        found = gateway.get(ObjectRef(kind, str(about["name"]), str(about.get("namespace", ""))))
    except (KeyError, ClusterError):
        return ""
    return workload_id(found) if found and found["metadata"]["uid"] == about.get("uid") else ""


def store_events(cluster: Cluster, look: Look, owners: Mapping[str, str], *, at: datetime) -> list[ClusterEvent]:
    """Write new events about our pods and jobs; the new rows, oldest first."""
    events = list(look.present[-MANY:])
    by_uid = {each["metadata"]["uid"]: each for each in events}
    seen = set(ClusterEvent.objects.filter(cluster=cluster, uid__in=by_uid).values_list("uid", flat=True))
    news = [event for uid, event in by_uid.items() if uid not in seen]
    about = {str((event.get("involvedObject") or {}).get("uid", "")) for event in news}
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=about).exclude(owner_id="")
    known = {**owners, **dict(pods.values_list("uid", "owner_id"))}
    rows = [row for event in news if (row := _row(cluster, event, known, at)).owner_id]
    rows.sort(key=lambda row: row.at)
    return ClusterEvent.objects.bulk_create(rows)


def _row(cluster: Cluster, event: Manifest, owners: Mapping[str, str], at: datetime) -> ClusterEvent:
    about = event.get("involvedObject") or {}
    uid = str(about.get("uid", ""))
    return ClusterEvent(
        cluster=cluster,
        uid=event["metadata"]["uid"],
        namespace=event["metadata"].get("namespace", ""),
        owner_id=owners.get(uid, ""),
        kind=str(about.get("kind", ""))[:63],
        name=str(about.get("name", ""))[:253],
        object_uid=uid[:64],
        type=str(event.get("type", "Normal"))[:16],
        reason=str(event.get("reason", ""))[:128],
        message=str(event.get("message", "")),
        source=str(event.get("reportingComponent") or (event.get("source") or {}).get("component", ""))[:128],
        at=moment_of(event.get("lastTimestamp") or event.get("eventTime")) or at,
    )
