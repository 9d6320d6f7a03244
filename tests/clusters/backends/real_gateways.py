"""Gateways to a real API server, as the product makes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.ports.connection import Connection, checked_address
from tests.support.lab import LabCluster

HERE = [ip_network("127.0.0.0/8")]


def gateway_of(connection: Connection, **options: Any) -> KubernetesGateway:
    """A gateway that the caller closes."""
    return KubernetesGateway(connection, checked_address(connection.server, allowed=HERE), name="lab", **options)


@contextmanager
def gateway_to_lab(lab: LabCluster, **options: Any) -> Iterator[KubernetesGateway]:
    """The lab's cluster under Rung's own account."""
    gateway = gateway_of(Connection(lab.server, ca=lab.ca, token=lab.token), **options)
    try:
        yield gateway
    finally:
        gateway.close()
