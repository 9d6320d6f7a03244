"""One look at a cluster: what changed since the last one becomes rows, and the apps above are told.

Nothing is held in memory between looks. Versions move forward in the same transaction as rows and handlers, so a
failure anywhere brings the same changes again, and of two observers at once one finds that the other was faster.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from clusters.errors import ClusterChanged, ClusterRefused
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import EVENT, NODE, POD, WORKLOAD_KINDS
from clusters.models import Cluster, ObserverLease
from clusters.observation import Observation, handlers
from clusters.ports import ClusterGateway, Kind
from clusters.services.looks import CountsVersions, Look, look, newer
from clusters.services.observed_events import owners_of_events, store_events
from clusters.services.observed_jobs import Owners, bare_pod_changes, job_changes
from clusters.services.observed_nodes import move_nodes, store_nodes
from clusters.services.observed_pods import PodStore

JOB_KINDS: Final = tuple(kind for kind in WORKLOAD_KINDS if kind.key != POD.key)
ALWAYS: Final = frozenset({NODE.key, POD.key, EVENT.key})
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
OWNERS: Final = "owners"  # beside the versions: whose object is whose
NEWEST: Final = "newest"  # and the version of all kinds together, where the cluster counts so


@dataclass(frozen=True, slots=True)
class _Seen:
    """Everything one look brought, before anything is written."""

    before: dict[str, Any]
    newest: str
    looks: dict[str, Look] = field(default_factory=dict)
    event_owners: dict[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return all(each.is_empty for each in self.looks.values())

    def versions(self, owners: Owners) -> dict[str, Any]:
        """What to keep: where the next look begins."""
        begins = {key: newer(each.version, self.newest) for key, each in self.looks.items()}
        return {**self.before, **begins, OWNERS: owners, NEWEST: self.newest}

    def jobs(self) -> list[Look]:
        return [self.looks[kind.key] for kind in JOB_KINDS if kind.key in self.looks]


def observe_cluster(cluster: Cluster) -> Observation:
    """Look, store, tell.

    1. watch every kind from its kept version, or list it (no transaction is open while the cluster is asked)
    2. in one transaction: rows of nodes, pods, events; statuses of jobs; handlers in order; versions

    Raises ClusterError; whatever a handler raises, after everything was rolled back.
    """
    lease = lease_of(cluster)
    seen = _see(cluster, lease.versions)
    at = timezone.now()
    with transaction.atomic():
        locked = ObserverLease.objects.select_for_update().get(cluster=cluster)
        if locked.versions != seen.before:
            return Observation(at=at)
        owners: Owners = {key: dict(kept) for key, kept in seen.before.get(OWNERS, {}).items()}
        observation = Observation(at=at) if seen.is_empty else _store(cluster, seen, owners, at)
        if seen.looks and (kept := seen.versions(owners)) != seen.before:
            locked.versions = kept
            locked.save(update_fields=["versions"])
        move_nodes(cluster, list(cluster.node_pools.all()))
        Cluster.objects.filter(pk=cluster.pk).update(observed_at=at)
    return observation


def lease_of(cluster: Cluster) -> ObserverLease:
    """The cluster's lease row, with the versions that were seen last."""
    return ObserverLease.objects.get_or_create(cluster=cluster, defaults={"holder": "", "expires_at": NEVER})[0]


def _see(cluster: Cluster, before: dict[str, Any]) -> _Seen:
    gateway = gateway_for(cluster)
    if not before:
        _refuse_another(cluster, gateway)
    newest = gateway.newest() if isinstance(gateway, CountsVersions) else ""
    if newest and newest == before.get(NEWEST):
        return _Seen(before, newest)
    looks = {
        kind.key: found for kind in (NODE, POD, EVENT, *JOB_KINDS) if (found := _look(cluster, gateway, kind, before))
    }
    owners = owners_of_events(gateway, looks[EVENT.key], before.get(OWNERS, {}))
    return _Seen(before, newest, looks, owners)


def _look(cluster: Cluster, gateway: ClusterGateway, kind: Kind, before: dict[str, Any]) -> Look | None:
    since = str(before.get(kind.key, ""))
    try:
        found = look(gateway, kind, since=since, managed_only=kind.key not in ALWAYS)
    except ClusterRefused:
        if kind.key in ALWAYS:
            raise
        return None  # this cluster does not serve the kind
    if found.whole and since:
        _refuse_another(cluster, gateway)
    return found


def _refuse_another(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Versions of one cluster mean nothing on another one behind the same address."""
    uid, _version = gateway.identity()
    if cluster.uid and uid != cluster.uid:
        raise ClusterChanged(f"{cluster.name} was {cluster.uid} and is now {uid}.")


def _store(cluster: Cluster, seen: _Seen, owners: Owners, at: datetime) -> Observation:
    flavour, pools = flavour_for(cluster.flavour), list(cluster.node_pools.all())
    store_nodes(cluster, seen.looks[NODE.key], pools, at=at)
    pods = PodStore(cluster, flavour, pools, at).store(seen.looks[POD.key])
    jobs = job_changes(seen.jobs(), owners)
    jobs |= bare_pod_changes(cluster, seen.looks[POD.key], pods.rows, owners)
    known = {**seen.event_owners, **{uid: owner for kept in owners.values() for uid, owner in kept.items()}}
    events = store_events(cluster, seen.looks[EVENT.key], known, at=at)
    observation = Observation(at, tuple(pods.rows), jobs, tuple(events), pods.readings)
    for handler in handlers():
        handler(cluster, observation)
    return observation
