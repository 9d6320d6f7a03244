"""The only door to the backends: a cluster row in, its gateway out."""

from collections.abc import Callable, Mapping
from typing import Final

from clusters.backends.memory import MemoryGateway, store_of
from clusters.backends.sandbox import SandboxGateway
from clusters.models import Cluster
from clusters.ports import ClusterGateway


def _memory(cluster: Cluster) -> ClusterGateway:
    return MemoryGateway(store_of(str(cluster.pk)))


BACKENDS: Final[Mapping[str, Callable[[Cluster], ClusterGateway]]] = {"memory": _memory, "sandbox": SandboxGateway}


def gateway_for(cluster: Cluster) -> ClusterGateway:
    """The gateway of the cluster's backend. KeyError: no such backend; its service refuses one before it is stored."""
    return BACKENDS[cluster.backend](cluster)
