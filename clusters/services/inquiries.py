"""What a cluster says only when it is asked: the order in which jobs wait in their queues, and whether it takes any.

Places become events about the jobs, one per job that is rewritten. A scheduler whose webhook for jobs does not answer
keeps every job of the cluster from being made: that stands as an event about the cluster itself, until a job made on
trial is taken again. Bounded: some queues at a time, and only those in which something waits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

import structlog
from django.db import transaction

from clusters.errors import ClusterError, Invalid
from clusters.flavours import flavour_for
from clusters.flavours.reading import QUEUED
from clusters.kinds_core import EVENT
from clusters.models import Cluster, ClusterEvent, ObservedObject
from clusters.observation import Observation, handlers
from clusters.ports import Inquiries, Manifest, ObjectRef
from clusters.services.looks import Look
from clusters.services.observed_events import store_events

log = structlog.get_logger(__name__)

MOST_QUEUES: Final = 50
"""Queues asked about in one round; of more that wait, each round takes others."""
STILL: Final = timedelta(seconds=20)
"""A place that has not changed is written again after so long, so that its age is that of the answer."""
CLUSTER: Final = "cluster"
"""Owner of an event about the cluster itself."""
SHUT: Final = "JobsRefused"
OPEN: Final = "JobsTaken"


@runtime_checkable
class Answers(Protocol):
    """A gateway that can be asked."""

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        """A subresource of an object."""

    def try_create(self, manifest: Manifest) -> None:
        """Create without storing."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Queues in which something waits, and a job to be made on trial."""

    queues: tuple[ObjectRef, ...] = ()
    trial: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Events about places. `shut`: the words of the server that takes no job; empty: it took one; None: not known."""

    places: Sequence[Manifest] = ()
    shut: str | None = None


def questions_of(cluster: Cluster, *, turn: int = 0) -> Questions:
    """What to ask now. `turn` counts the rounds: where more queues wait than one round takes, they take turns."""
    about = flavour_for(cluster.flavour).traits.inquiries
    if about is None:
        return Questions()
    rows = ObservedObject.objects.filter(cluster=cluster, kind__startswith=f"{about.queue.kind}.")
    ours = sorted(rows.values_list("namespace", "name"))
    spaces = _waiting_in(cluster)
    busy = [ObjectRef(about.queue, name, space) for space, name in ours if space in spaces]
    begin = turn * MOST_QUEUES % max(len(busy), 1)
    asked = (*busy[begin:], *busy[:begin])[:MOST_QUEUES]
    return Questions(asked, about.example(*ours[0]) if ours else None)


def _waiting_in(cluster: Cluster) -> set[str]:
    """Namespaces of jobs that wait, as far as they are still there."""
    said = ClusterEvent.objects.filter(cluster=cluster, reason=QUEUED)
    there = ObservedObject.objects.filter(cluster=cluster, uid__in=said.values("object_uid"))
    return set(there.values_list("namespace", flat=True))


def ask(cluster: Cluster, gateway: object, questions: Questions) -> Answered:
    """Never raises for what the cluster says: what cannot be asked is not known."""
    about = flavour_for(cluster.flavour).traits.inquiries
    if about is None or not isinstance(gateway, Answers):
        return Answered()
    try:
        summaries = [gateway.part(ref, about.part) for ref in questions.queues]
    except ClusterError as error:
        log.info("observer.no_places", cluster=cluster.name, code=error.code, message=error.message)
        summaries = []
    places = [event for each in summaries if each for event in about.tell(each)]
    return Answered(places, _shut(about, gateway, questions.trial))


def _shut(about: Inquiries, gateway: Answers, trial: Manifest | None) -> str | None:
    """Only who was asked can find it invalid; whatever else refuses it may do so before the webhooks are called."""
    if trial is None:
        return None
    try:
        gateway.try_create(trial)
    except Invalid:
        return ""
    except ClusterError as error:
        return error.message if about.closed_by(error.message) else None
    return ""


def door_of(cluster: Cluster) -> ClusterEvent | None:
    """Since when the cluster takes no jobs, and what its server says of it; None: it takes them, as far as is known."""
    return ClusterEvent.objects.filter(cluster=cluster, uid=SHUT).first()


@transaction.atomic
def keep(cluster: Cluster, answered: Answered, *, at: datetime) -> None:
    """Write what is new, and tell who listens when the cluster takes jobs again."""
    _keep_places(cluster, answered.places, at)
    if answered.shut is not None:
        _keep_door(cluster, answered.shut, at)


def _keep_places(cluster: Cluster, places: Sequence[Manifest], at: datetime) -> None:
    uids = [each["metadata"]["uid"] for each in places]
    rows = ClusterEvent.objects.filter(cluster=cluster, uid__in=uids, at__gt=at - STILL)
    known = dict(rows.values_list("uid", "message"))
    about = [each["involvedObject"]["uid"] for each in places]
    ours = set(ObservedObject.objects.filter(cluster=cluster, uid__in=about).values_list("uid", flat=True))
    news = list(_stamped(places, known, ours, at))
    if news:
        store_events(cluster, Look(EVENT, "", news), at=at)


def _stamped(places: Iterable[Manifest], known: Mapping[str, str], ours: set[str], at: datetime) -> Iterable[Manifest]:
    """Those that say something else than before, or the same later; a later one has a larger version."""
    version = str(int(at.timestamp() * 1000))
    for each in places:
        metadata = each["metadata"]
        if each["involvedObject"]["uid"] in ours and known.get(metadata["uid"]) != each["message"]:
            yield {**each, "metadata": {**metadata, "resourceVersion": version}, "lastTimestamp": at.isoformat()}


def _keep_door(cluster: Cluster, shut: str, at: datetime) -> None:
    rows = ClusterEvent.objects.filter(cluster=cluster, uid=SHUT)
    if shut:
        row, fresh = rows.get_or_create(cluster=cluster, uid=SHUT, defaults=_door(SHUT, shut, at))
        if not fresh:
            rows.update(message=shut, count=row.count + 1)
        else:
            log.warning("observer.jobs_refused", cluster=cluster.name, message=shut)
    elif rows.delete()[0]:
        log.info("observer.jobs_taken", cluster=cluster.name)
        told = ClusterEvent(cluster=cluster, uid=OPEN, **_door(OPEN, "Jobs are taken again.", at))
        for handler in handlers():
            handler(cluster, Observation(at, events=(told,)))


def _door(reason: str, message: str, at: datetime) -> dict[str, object]:
    return {
        "owner_id": CLUSTER,
        "kind": "Cluster",
        "name": "",
        "type": "Warning" if reason == SHUT else "Normal",
        "reason": reason,
        "message": message,
        "at": at,
    }
