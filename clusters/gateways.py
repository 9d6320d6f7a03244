"""The only door to the backends: a cluster row in, its gateway out."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from clusters.addresses import checked_target
from clusters.backends.kubernetes import KubernetesGateway
from clusters.backends.memory import MemoryGateway, store_of
from clusters.backends.prometheus import gpu_readings
from clusters.backends.sandbox import SandboxGateway
from clusters.connections import Connection, Target
from clusters.credentials import connection_of, credential_version
from clusters.errors import ClusterUnreachable
from clusters.gpu_readings import GpuReading
from clusters.models import Cluster
from clusters.ports import ClusterGateway

RESOLVED_FOR: Final = 300.0
"""Seconds after which a server's name is resolved and checked again."""


@dataclass(slots=True)
class _Kept:
    """A client that is shared by the threads of this process."""

    version: str
    connection: Connection
    target: Target
    gateway: KubernetesGateway
    resolved_at: float


_kept: Final[dict[str, _Kept]] = {}
_lock = threading.Lock()


def gateway_for(cluster: Cluster) -> ClusterGateway:
    """The gateway of the cluster's backend. KeyError: no such backend; its service refuses one before it is stored.

    Of a real cluster there is one per process and credential: a new credential, or another address behind the name,
    makes a new one. Raises ClusterError when there is no credential or no address to connect to.
    """
    return BACKENDS[cluster.backend](cluster)


def gateway_to(connection: Connection, *, name: str) -> KubernetesGateway:
    """A gateway of its own, for a connection that is not stored yet. The caller closes it. Raises ClusterError."""
    target = checked_target(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    return KubernetesGateway(connection, target, name=name)


def gpu_readings_of(connection: Connection, metric: str) -> list[GpuReading]:
    """What a Prometheus says of the GPUs of its cluster's pods. Raises ClusterError."""
    target = checked_target(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    return gpu_readings(connection, target, metric)


def forget_gateways() -> None:
    """Close every kept client: a process ends its work."""
    with _lock:
        for each in _kept.values():
            each.gateway.close()
        _kept.clear()


def _memory(cluster: Cluster) -> ClusterGateway:
    return MemoryGateway(store_of(str(cluster.pk)))


def _kubernetes(cluster: Cluster) -> ClusterGateway:
    version = credential_version(cluster)
    key = str(cluster.pk)
    kept = _kept.get(key)
    if kept is not None and kept.version == version and not _moved(kept):
        return kept.gateway
    connection = connection_of(cluster)
    target = checked_target(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    with _lock:
        return _kept_now(key, version, connection, target, cluster.name)


def _kept_now(key: str, version: str, connection: Connection, target: Target, name: str) -> KubernetesGateway:
    """Another thread may have been faster: then its client is everybody's."""
    kept = _kept.get(key)
    if kept is not None and (kept.version, kept.target) == (version, target):
        return kept.gateway
    gateway = KubernetesGateway(connection, target, name=name)
    _kept[key] = _Kept(version, connection, target, gateway, time.monotonic())
    if kept is not None:
        kept.gateway.close()
    return gateway


def _moved(kept: _Kept) -> bool:
    """Another address stands behind the name. A name that does not resolve now leaves the client as it is."""
    now = time.monotonic()
    if now - kept.resolved_at < RESOLVED_FOR:
        return False
    kept.resolved_at = now
    try:
        target = checked_target(kept.connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    except ClusterUnreachable:
        return False
    return target != kept.target


def _after_fork() -> None:
    """Connections belong to the parent: a child drops them unused, and makes its own."""
    global _lock  # noqa: PLW0603 - the parent may have held it at the fork
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_after_fork)

BACKENDS: Final[Mapping[str, Callable[[Cluster], ClusterGateway]]] = {
    "memory": _memory,
    "sandbox": SandboxGateway,
    "kubernetes": _kubernetes,
}
