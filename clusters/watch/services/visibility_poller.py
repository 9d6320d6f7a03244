"""Poll what no watch reports: the order of pending jobs in their queues, and whether webhooks accept jobs.

Places become events about the jobs, one per job that is rewritten. A scheduler whose webhook for jobs does not answer
keeps every job of the cluster from being made: that is an event about the cluster itself, until a job made on
trial is taken again. Bounded: some queues at a time, and only those in which something waits.

What to ask is read, and what was answered is stored, in the turns in which everything else of the cluster is stored.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

import structlog
from django.db import transaction

from clusters.flavours.pod_status import QUEUED
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import VisibilityApi
from clusters.ports.gateway import ClusterError, ClusterGateway, Invalid, Manifest, ObjectRef
from clusters.ports.objects import EVENT
from clusters.watch.models import ClusterEvent, ObservedObject
from clusters.watch.services.events import store_events
from clusters.watch.services.observations import Observation, handlers
from clusters.watch.services.watch_buffer import WatchBatch, WatchBuffer

log = structlog.get_logger(__name__)

MOST_QUEUES: Final = 50
"""Queues asked about in one round; of more that wait, each round takes others."""
STILL: Final = timedelta(seconds=20)
"""A place that has not changed is written again after so long, so that its age is that of the answer."""
CLUSTER: Final = "cluster"
"""Owner of an event about the cluster itself."""
JOBS_REJECTED: Final = "JobsRefused"
JOBS_ACCEPTED: Final = "JobsTaken"


@runtime_checkable
class VisibilityGateway(Protocol):
    """A gateway that can be asked."""

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        """A subresource of an object."""

    def try_create(self, manifest: Manifest) -> None:
        """Create without storing."""


@dataclass(frozen=True, slots=True)
class VisibilityQueries:
    """Queues in which something waits, and a job to be made on trial."""

    queues: tuple[ObjectRef, ...] = ()
    trial: Manifest | None = None


@dataclass(frozen=True, slots=True)
class VisibilityResult:
    """Events about places. `shut`: the words of the server that takes no job; empty: it took one; None: not known."""

    places: Sequence[Manifest] = ()
    shut: str | None = None


def visibility_queries(cluster: Cluster, *, turn: int = 0) -> VisibilityQueries:
    """What to ask now. `turn` counts the rounds: where more queues wait than one round takes, they take turns."""
    about = flavour_for(cluster.flavour).traits.inquiries
    if about is None:
        return VisibilityQueries()
    rows = ObservedObject.objects.filter(cluster=cluster, kind__startswith=f"{about.queue.kind}.")
    ours = sorted(rows.values_list("namespace", "name"))
    spaces = _waiting_in(cluster)
    busy = [ObjectRef(about.queue, name, space) for space, name in ours if space in spaces]
    begin = turn * MOST_QUEUES % max(len(busy), 1)
    requested = (*busy[begin:], *busy[:begin])[:MOST_QUEUES]
    return VisibilityQueries(requested, about.example(*ours[0]) if ours else None)


def _waiting_in(cluster: Cluster) -> set[str]:
    """Namespaces of jobs that wait, as far as they are still there."""
    events = ClusterEvent.objects.filter(cluster=cluster, reason=QUEUED)
    there = ObservedObject.objects.filter(cluster=cluster, uid__in=events.values("object_uid"))
    return set(there.values_list("namespace", flat=True))


def query_visibility(cluster: Cluster, gateway: object, questions: VisibilityQueries) -> VisibilityResult:
    """Never raises for what the cluster says: what cannot be asked is not known."""
    about = flavour_for(cluster.flavour).traits.inquiries
    if about is None or not isinstance(gateway, VisibilityGateway):
        return VisibilityResult()
    try:
        summaries = [gateway.part(ref, about.part) for ref in questions.queues]
    except ClusterError as error:
        log.info("observer.no_places", cluster=cluster.name, code=error.code, message=error.message)
        summaries = []
    places = [event for each in summaries if each for event in about.tell(each)]
    return VisibilityResult(places, _rejecting_webhook(about, gateway, questions.trial))


def _rejecting_webhook(about: VisibilityApi, gateway: VisibilityGateway, trial: Manifest | None) -> str | None:
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


def job_rejection_of(cluster: Cluster) -> ClusterEvent | None:
    """Since when the cluster takes no jobs, and what its server says of it; None: it takes them, as far as is known."""
    return ClusterEvent.objects.filter(cluster=cluster, uid=JOBS_REJECTED).first()


@transaction.atomic
def store_visibility(cluster: Cluster, answered: VisibilityResult, *, at: datetime) -> None:
    """Write what is new, and notify listeners when the cluster accepts jobs again."""
    _store_positions(cluster, answered.places, at)
    if answered.shut is not None:
        _store_rejection(cluster, answered.shut, at)


def _store_positions(cluster: Cluster, places: Sequence[Manifest], at: datetime) -> None:
    uids = [each["metadata"]["uid"] for each in places]
    rows = ClusterEvent.objects.filter(cluster=cluster, uid__in=uids, at__gt=at - STILL)
    known = dict(rows.values_list("uid", "message"))
    about = [each["involvedObject"]["uid"] for each in places]
    ours = set(ObservedObject.objects.filter(cluster=cluster, uid__in=about).values_list("uid", flat=True))
    news = list(_stamped(places, known, ours, at))
    if news:
        store_events(cluster, WatchBatch(EVENT, "", news), at=at)


def _stamped(places: Iterable[Manifest], known: Mapping[str, str], ours: set[str], at: datetime) -> Iterable[Manifest]:
    """Those that say something else than before, or the same later; a later one has a larger version."""
    version = str(int(at.timestamp() * 1000))
    for each in places:
        metadata = each["metadata"]
        if each["involvedObject"]["uid"] in ours and known.get(metadata["uid"]) != each["message"]:
            yield {**each, "metadata": {**metadata, "resourceVersion": version}, "lastTimestamp": at.isoformat()}


def _store_rejection(cluster: Cluster, shut: str, at: datetime) -> None:
    rows = ClusterEvent.objects.filter(cluster=cluster, uid=JOBS_REJECTED)
    if shut:
        row, fresh = rows.get_or_create(
            cluster=cluster, uid=JOBS_REJECTED, defaults=_rejection_event(JOBS_REJECTED, shut, at)
        )
        if not fresh:
            rows.update(message=shut, count=row.count + 1)
        else:
            log.warning("observer.jobs_refused", cluster=cluster.name, message=shut)
    elif rows.delete()[0]:
        log.info("observer.jobs_taken", cluster=cluster.name)
        event = ClusterEvent(
            cluster=cluster, uid=JOBS_ACCEPTED, **_rejection_event(JOBS_ACCEPTED, "The webhook responds again.", at)
        )
        for handler in handlers():
            handler(cluster, Observation(at, events=(event,)))


def _rejection_event(reason: str, message: str, at: datetime) -> dict[str, object]:
    return {
        "owner_id": CLUSTER,
        "kind": "Cluster",
        "name": "",
        "type": "Warning" if reason == JOBS_REJECTED else "Normal",
        "reason": reason,
        "message": message,
        "at": at,
    }


EVERY: Final = 5.0
"""Seconds between two rounds."""


class VisibilityPoller:
    """One cluster whose scheduler has to be asked; for any other one it does nothing."""

    def __init__(self, cluster: Cluster, gateway: ClusterGateway, inbox: WatchBuffer, bell: threading.Event) -> None:
        self._cluster, self._gateway, self._inbox, self._bell = cluster, gateway, inbox, bell
        self._lock = threading.Lock()
        self._questions: VisibilityQueries | None = None
        self._answered: VisibilityResult | None = None
        self._round = 0
        self._read_at = float("-inf")
        self._wanted = flavour_for(cluster.flavour).traits.inquiries is not None
        if self._wanted:
            threading.Thread(target=self._run, name=f"asking-{cluster.name}", daemon=True).start()

    def is_due(self) -> bool:
        """Something was answered, or it is time to say what to ask."""
        if not self._wanted:
            return False
        return self._answered is not None or time.monotonic() - self._read_at >= EVERY

    def turn(self, at: datetime) -> None:
        """Store what was answered, and say what to ask next."""
        if not self._wanted:
            return
        with self._lock:
            answered, self._answered = self._answered, None
        if answered is not None:
            store_visibility(self._cluster, answered, at=at)
        if time.monotonic() - self._read_at >= EVERY:
            self._read_at = time.monotonic()
            self._questions = visibility_queries(self._cluster, turn=self._round)
            self._round += 1

    def _run(self) -> None:
        while not self._inbox.closed:
            questions, self._questions = self._questions, None
            if questions is None:
                self._inbox.rest(EVERY / 25)
                continue
            try:
                self._take(query_visibility(self._cluster, self._gateway, questions))
            except Exception:  # as in a feed: a fault of ours in an answer must not end the asking
                log.exception("observer.asking_failed", cluster=self._cluster.name)

    def _take(self, answered: VisibilityResult) -> None:
        with self._lock:
            self._answered = answered
        self._bell.set()
