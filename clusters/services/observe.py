"""One look at a cluster: every kind is watched from its kept version, or listed, and what changed is stored.

This is what a worker does for a cluster without an observer, and how clusters are observed whose versions are one
counter. An observer keeps watches open instead (`streams`); both store by the same `storing.store`.
"""

from collections.abc import Mapping
from typing import Any, Final

from clusters.errors import ClusterChanged, ClusterRefused
from clusters.flavours import LABELLED_KEYS, TOLD_KEYS, flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import EVENT, NODE, POD, WORKLOAD_KINDS
from clusters.models import Cluster
from clusters.observation import Observation
from clusters.ports import ClusterGateway, Kind
from clusters.services.inquiries import ask, keep, questions_of
from clusters.services.looks import CountsVersions, Look, look
from clusters.services.storing import NEWEST, Seen, lease_of, store

JOB_KINDS: Final = tuple(kind for kind in WORKLOAD_KINDS if kind.key != POD.key)
ALWAYS: Final = frozenset({NODE.key, POD.key, EVENT.key})
"""Kinds without which a cluster is not observed."""
EVERYBODYS: Final = ALWAYS | TOLD_KEYS - LABELLED_KEYS
"""Kinds of which also objects that are not ours matter."""


def observe_cluster(cluster: Cluster) -> Observation:
    """Look, store, tell. No transaction is open while the cluster is asked.

    Raises ClusterError; whatever a handler raises, after everything was rolled back.
    """
    lease = lease_of(cluster)
    observation = store(cluster, _see(cluster, lease.versions)).observation
    if flavour_for(cluster.flavour).traits.inquiries:
        keep(cluster, ask(cluster, gateway_for(cluster), questions_of(cluster)), at=observation.at)
    return observation


def kinds_of(cluster: Cluster) -> list[Kind]:
    """What is watched: nodes, pods, events, the objects of workloads, what stands beside them, and what reconcile owns.

    Each kind once.
    """
    flavour = flavour_for(cluster.flavour)
    kinds = (NODE, POD, EVENT, *JOB_KINDS, *flavour.traits.beside, *flavour.traits.tells, *flavour.kinds())
    return list({kind.key: kind for kind in kinds}.values())


def refuse_another(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Versions of one cluster mean nothing on another one behind the same address. Raises ClusterChanged."""
    uid, _version = gateway.identity()
    if cluster.uid and uid != cluster.uid:
        raise ClusterChanged(f"{cluster.name} was {cluster.uid} and is now {uid}.")


def _see(cluster: Cluster, before: Mapping[str, Any]) -> Seen:
    gateway = gateway_for(cluster)
    if not before:
        refuse_another(cluster, gateway)
    newest = gateway.newest() if isinstance(gateway, CountsVersions) else ""
    if newest and newest == before.get(NEWEST):
        return Seen(before, newest=newest)
    looks = {kind.key: found for kind in kinds_of(cluster) if (found := _look(cluster, gateway, kind, before))}
    return Seen(before, looks, newest)


def _look(cluster: Cluster, gateway: ClusterGateway, kind: Kind, before: Mapping[str, Any]) -> Look | None:
    since = str(before.get(kind.key, ""))
    try:
        if kind.key not in ALWAYS and not gateway.serves(kind):
            return None
        found = look(gateway, kind, since=since, managed_only=kind.key not in EVERYBODYS)
    except ClusterRefused:
        if kind.key in ALWAYS:
            raise
        return None  # it may not be read here
    if found.whole and since:
        refuse_another(cluster, gateway)
    return found
