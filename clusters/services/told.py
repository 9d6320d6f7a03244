"""What a scheduler writes into objects of its own is kept as events about the jobs they stand for.

So it waits for its job to be seen, outlives the object it stood in, also one that went before it was seen, and is read
like everything said of a job. A later version of the object rewrites what the earlier one said. Where a scheduler tells
of pods, or of a workload's object, by events about objects of its own, they are kept as events about those.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain

from clusters.flavours import flavour_for
from clusters.kinds_core import EVENT, POD
from clusters.models import Cluster, ClusterEvent, ObservedObject, ObservedPod
from clusters.pods import moment_of
from clusters.ports import Manifest
from clusters.services.looks import Look
from clusters.services.observed_events import KINDS, store_events


def store_told(cluster: Cluster, looks: Mapping[str, Look], *, at: datetime) -> list[ClusterEvent]:
    """Events that these looks at the scheduler's objects amount to, as far as they are about ours and new."""
    events: list[ClusterEvent] = []
    traits = flavour_for(cluster.flavour).traits
    if traits.retells and (look := looks.get(EVENT.key)):
        named = [event for each in look.present if (event := traits.retells(each))]
        known = list(chain(_identified(cluster, named), _found(cluster, named)))
        events += store_events(cluster, Look(EVENT, look.version, known), at=at)
    for kind, tell in traits.tells.items():
        if look := looks.get(kind.key):
            told = [event for each in look.every for event in tell(each)]
            about = KINDS | {kind.kind}  # what stands beside a workload is ours too, and may speak of itself
            events += store_events(cluster, Look(EVENT, look.version, told), at=at, kinds=about)
    return events


def _identified(cluster: Cluster, events: Sequence[Manifest]) -> Iterator[Manifest]:
    """With the uid of the pod that had the name then: a later one may have the same. A pod nobody saw is left out."""
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
    """With kind and name of the object that has the uid. One that nobody saw yet is left out: they are told again."""
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
