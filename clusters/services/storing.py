"""What was seen of a cluster becomes rows, and the apps above are told: all of it in one transaction, or nothing.

Versions move forward in the same transaction as rows and handlers, so a failure anywhere brings the same changes again,
and of two observers at once one finds that the other was faster. Times are the database's: a worker's clock may lie.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from clusters.flavours import BESIDE_KEYS, TOLD_KEYS, flavour_for
from clusters.job_status import JobStatus
from clusters.kinds_core import EVENT, NODE, POD, WORKLOAD_KINDS
from clusters.models import Cluster, NodePool, ObservedObject, ObserverLease
from clusters.observation import Observation, handlers
from clusters.services.domain_watch import domains_watched
from clusters.services.drift_watch import note_changes
from clusters.services.homes import disown_strangers
from clusters.services.looks import Look, newer
from clusters.services.observed_events import adopt_events, store_events
from clusters.services.observed_jobs import bare_pod_changes, beside_changes, job_changes
from clusters.services.observed_nodes import move_nodes, store_nodes
from clusters.services.observed_pods import PodChanges, PodStore
from clusters.services.told import store_told

JOB_KEYS: Final = frozenset(kind.key for kind in WORKLOAD_KINDS if kind.key != POD.key)
CORE_KEYS: Final = frozenset({NODE.key, POD.key, EVENT.key})
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
NEWEST: Final = "newest"  # beside the versions: that of all kinds together, where the cluster counts so
POOLS: Final = "pools"  # and what the pools were when nodes were last put into them


@dataclass(frozen=True, slots=True)
class Seen:
    """What lists and watches brought, before anything is written.

    `before`: the versions it builds on. `age`: how long ago every kind that is always watched had shown life; None:
    one of them has not.
    """

    before: Mapping[str, Any]
    looks: Mapping[str, Look] = field(default_factory=dict)
    newest: str = ""
    age: timedelta | None = timedelta()

    @property
    def is_empty(self) -> bool:
        """Nothing to store."""
        return all(each.is_empty for each in self.looks.values())

    def versions(self) -> dict[str, Any]:
        """Where the next look begins."""
        begins = {key: newer(each.version, self.newest) for key, each in self.looks.items()}
        return {**self.before, **begins, NEWEST: self.newest}


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of it. `versions`: what is kept now; None when somebody else was faster and nothing was written."""

    observation: Observation
    versions: dict[str, Any] | None


def lease_of(cluster: Cluster) -> ObserverLease:
    """The cluster's lease row, with the versions that were seen last."""
    return ObserverLease.objects.get_or_create(cluster=cluster, defaults={"holder": "", "expires_at": NEVER})[0]


@transaction.atomic
def store(cluster: Cluster, seen: Seen) -> Stored:
    """Rows of nodes, pods, objects and events; handlers in order; versions.

    Raises whatever a handler raises, after everything was rolled back.
    """
    locked = ObserverLease.objects.select_for_update().annotate(now=Now()).get(cluster=cluster)
    at: datetime = locked.now
    if locked.versions != seen.before:
        return Stored(Observation(at=at), None)
    pools = list(cluster.node_pools.all())
    kept = seen.versions() if seen.looks else dict(seen.before)
    sorted_in = _fingerprint(pools)
    moved = seen.before.get(POOLS) != sorted_in
    with domains_watched(cluster, pools, seen.looks.get(NODE.key), moved=moved):
        observation = Observation(at=at) if seen.is_empty else _store(cluster, seen.looks, pools, at)
        if moved:
            move_nodes(cluster, pools)
            kept[POOLS] = sorted_in
    if kept != seen.before:
        locked.versions = kept
        locked.save(update_fields=["versions"])
    if seen.age is not None:
        show_life(cluster, at - seen.age)
    return Stored(observation, kept)


def show_life(cluster: Cluster, at: datetime) -> None:
    """What is on screen is of this moment. It never goes back."""
    rows = Cluster.objects.filter(Q(observed_at=None) | Q(observed_at__lt=at), pk=cluster.pk)
    rows.update(observed_at=at)


def _fingerprint(pools: list[NodePool]) -> list[list[Any]]:
    return [[pool.pk, pool.label_key, pool.label_value, pool.is_default] for pool in pools]


def _store(cluster: Cluster, looks: Mapping[str, Look], pools: list[NodePool], at: datetime) -> Observation:
    """Objects before events, so that an event that is seen together with its object finds it."""
    disown_strangers(cluster, looks)
    if NODE.key in looks:
        store_nodes(cluster, looks[NODE.key], pools, at=at)
    pods = _pods(cluster, looks, pools, at)
    jobs, fresh = _jobs(cluster, looks, pods)
    for key, look in looks.items():
        if key not in CORE_KEYS | JOB_KEYS | BESIDE_KEYS | TOLD_KEYS:
            note_changes(cluster, look)
    events = adopt_events(cluster, [*pods.fresh, *fresh])
    if EVENT.key in looks:
        events += store_events(cluster, looks[EVENT.key], at=at)
    events += store_told(cluster, looks, at=at)
    observation = Observation(at, tuple(pods.rows), jobs, tuple(events), pods.readings)
    for handler in handlers():
        handler(cluster, observation)
    return observation


def _pods(cluster: Cluster, looks: Mapping[str, Look], pools: list[NodePool], at: datetime) -> PodChanges:
    if POD.key not in looks:
        return PodChanges()
    return PodStore(cluster, flavour_for(cluster.flavour), pools, at).store(looks[POD.key])


def _jobs(
    cluster: Cluster, looks: Mapping[str, Look], pods: PodChanges
) -> tuple[dict[str, JobStatus], list[ObservedObject]]:
    jobs, fresh = job_changes(cluster, [look for key, look in looks.items() if key in JOB_KEYS])
    if POD.key in looks:
        jobs |= bare_pod_changes(cluster, looks[POD.key], pods.rows)
    return {**beside_changes(cluster, [look for key, look in looks.items() if key in BESIDE_KEYS]), **jobs}, fresh
