"""Store Kubernetes events about Rung's objects, and the events derived from the scheduler's own objects.

An event may come before the object it is about: it then waits in its row, without an owner, for the object to be
seen. What happens again and again is one event whose count and time grow: its row grows with it.

So it waits for its job to be seen, outlives the object it stood in, also one that went before it was seen, and is
read like everything said of a job. A later version of the object rewrites what the earlier one said. Where a
scheduler reports pods, or a workload's object, by events about objects of its own, they are stored as events about
those.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from django.db.models import Q

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT, POD, WORKLOAD_KINDS
from clusters.ports.pods import moment_of
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod
from clusters.watch.services.watch_buffer import CHUNK, WatchBatch, batched, number

KINDS = frozenset(kind.kind for kind in WORKLOAD_KINDS)  # what our events can be about; pods are one of them
AHEAD: Final = timedelta(minutes=10)  # so far a cluster's clock may be before ours
FIELDS = ["owner_id", "type", "reason", "message", "count", "resource_version", "at"]


def store_events(
    cluster: Cluster, look: WatchBatch, *, at: datetime, kinds: Collection[str] = KINDS
) -> list[ClusterEvent]:
    """Write what is new, and what happened again, about our objects of these kinds; those rows, oldest first."""
    rows = [row for part in batched(look.present) for row in _rows(cluster, part, at, kinds)]
    ClusterEvent.objects.bulk_create(
        rows,
        batch_size=CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=FIELDS,
    )
    return sorted((row for row in rows if row.owner_id), key=lambda row: row.at)


def adopt_events(cluster: Cluster, fresh: Iterable[ObservedPod | ObservedObject]) -> list[ClusterEvent]:
    """Events that came before their objects find their owner; those about foreign objects are dropped."""
    adopted: list[ClusterEvent] = []
    for part in batched(fresh):
        owners = {(each.uid, each.namespace): each.owner_id for each in part}
        found = list(
            ClusterEvent.objects.filter(cluster=cluster, owner_id="", object_uid__in=[uid for uid, _ in owners])
        )
        for event in found:
            event.owner_id = owners.get((event.object_uid, event.namespace), "")
        ours = [event for event in found if event.owner_id]
        ClusterEvent.objects.bulk_update(ours, ["owner_id"])
        ClusterEvent.objects.filter(pk__in=[event.pk for event in found if not event.owner_id]).delete()
        adopted += ours
    return adopted


def _rows(cluster: Cluster, events: list[Manifest], at: datetime, kinds: Collection[str]) -> Iterator[ClusterEvent]:
    news = {each["metadata"]["uid"]: each for each in events if _about(each).get("kind") in kinds}
    stored = ClusterEvent.objects.filter(cluster=cluster, uid__in=news)
    for uid, version in stored.values_list("uid", "resource_version"):
        if number(_version(news[uid])) <= number(version):
            del news[uid]
    owners = _owners(cluster, {str(_about(each).get("uid", "")) for each in news.values()})
    for event in news.values():
        owner, namespace = owners.get(str(_about(event).get("uid", "")), (None, ""))
        if owner is None or (owner and namespace == event["metadata"].get("namespace", "")):
            yield _row(cluster, event, owner or "", at)


def _owners(cluster: Cluster, uids: set[str]) -> dict[str, tuple[str, str]]:
    """Workload and namespace by the uid of its pod or object.

    Empty for a foreign pod, absent for one not seen yet. An event of another namespace than its object's is
    not a controller's: a writer of events in one namespace may name any uid.
    """
    about = Q(cluster=cluster, uid__in=uids)
    found: dict[str, tuple[str, str]] = {}
    for model in (ObservedPod, ObservedObject):
        rows = model.objects.filter(about).values_list("uid", "owner_id", "namespace")
        found |= {uid: (owner, namespace) for uid, owner, namespace in rows}
    return found


def _about(event: Manifest) -> Manifest:
    return event.get("involvedObject") or {}


def _version(event: Manifest) -> str:
    return str(event["metadata"].get("resourceVersion", ""))


def _row(cluster: Cluster, event: Manifest, owner: str, at: datetime) -> ClusterEvent:
    about, series = _about(event), event.get("series") or {}
    return ClusterEvent(
        cluster=cluster,
        uid=event["metadata"]["uid"],
        namespace=event["metadata"].get("namespace", ""),
        owner_id=owner,
        kind=str(about.get("kind", ""))[:63],
        name=str(about.get("name", ""))[:253],
        object_uid=str(about.get("uid", ""))[:64],
        type=str(event.get("type", "Normal"))[:16],
        reason=str(event.get("reason", ""))[:128],
        message=str(event.get("message", "")),
        source=str(event.get("reportingComponent") or (event.get("source") or {}).get("component", ""))[:128],
        count=max(int(series.get("count") or event.get("count") or 1), 1),
        resource_version=_version(event)[:32],
        at=_last(event, series, latest=at + AHEAD) or at,
    )


def _last(event: Manifest, series: Manifest, *, latest: datetime) -> datetime | None:
    """Old events count in themselves, new ones in a series; a new one that happened once has an event time only.

    What has yet to come did not happen: it would stand above everything, and never be old enough to go.
    """
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((moment for each in times if (moment := moment_of(each)) and moment <= latest), None)


def store_scheduler_events(cluster: Cluster, looks: Mapping[str, WatchBatch], *, at: datetime) -> list[ClusterEvent]:
    """Events that these looks at the scheduler's objects amount to, as far as they are about ours and new."""
    events: list[ClusterEvent] = []
    traits = flavour_for(cluster.flavour).traits
    if traits.redirect_event and (look := looks.get(EVENT.key)):
        named = [event for each in look.present if (event := traits.redirect_event(each))]
        known = list(chain(_identified(cluster, named), _found(cluster, named)))
        events += store_events(cluster, WatchBatch(EVENT, look.version, known), at=at)
    for kind, tell in traits.event_sources.items():
        if look := looks.get(kind.key):
            described = [event for each in look.every for event in tell(each)]
            about = KINDS | {kind.kind}  # companion objects of a workload are ours too, and have events of their own
            events += store_events(cluster, WatchBatch(EVENT, look.version, described), at=at, kinds=about)
    return events


def _identified(cluster: Cluster, events: Sequence[Manifest]) -> Iterator[Manifest]:
    """With the uid of the pod that had the name then: a later one may have the same. Unknown pods are left out."""
    events = [each for each in events if "name" in each["involvedObject"]]
    names = {each["involvedObject"]["name"] for each in events}
    rows = ObservedPod.objects.filter(cluster=cluster, name__in=names).order_by("created_at")
    seen = list(rows.values_list("namespace", "name", "created_at", "uid"))
    for event in events:
        about, at = event["involvedObject"], moment_of(event.get("lastTimestamp"))
        named = (about["namespace"], about["name"])
        uids = [uid for *its, created, uid in seen if tuple(its) == named and (at is None or created <= at)]
        if uids:
            yield {**event, "involvedObject": {**about, "uid": uids[-1]}}


def _found(cluster: Cluster, events: Sequence[Manifest]) -> Iterator[Manifest]:
    """With kind and name of the object that has the uid. Unknown objects are left out; their events repeat."""
    events = [each for each in events if "name" not in each["involvedObject"]]
    uids = {each["involvedObject"]["uid"] for each in events}
    objects = ObservedObject.objects.filter(cluster=cluster, uid__in=uids).values_list("uid", "kind", "name")
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=uids).values_list("uid", "name")
    named = {uid: (kind.partition(".")[0], name) for uid, kind, name in objects}
    named |= {uid: (POD.kind, name) for uid, name in pods}
    for event in events:
        about = event["involvedObject"]
        if about["uid"] in named:
            kind, name = named[about["uid"]]
            yield {**event, "involvedObject": {**about, "kind": kind, "name": name}}
