"""From a cluster's row to its gateway: credentials, key rotation, one client per process and credential."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.db import transaction

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.backends.memory import MemoryGateway, store_of
from clusters.backends.prometheus import gpu_readings
from clusters.connection.models import ClusterCredential, CredentialKind, MetricsSource
from clusters.inventory.models import Cluster
from clusters.ports.connection import CheckedAddress, Connection, checked_address
from clusters.ports.gateway import ClusterGateway, ClusterUnreachable, CredentialUnreadable, GpuUtilization
from clusters.sandbox.services.simulation import SandboxGateway
from portal.audit.services import record
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.encryption import DecryptionFailed, NoEncryptionKey, SecretBox


def secret_box() -> SecretBox:
    """The sealer of this installation. Raises NoKey when `RUNG_CREDENTIAL_KEYS` is empty."""
    return SecretBox(settings.RUNG_CREDENTIAL_KEYS)


def connection_of(cluster: Cluster) -> Connection:
    """How the cluster is reached, secret included. Raises CredentialUnreadable: none is stored, or it does not open."""
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise CredentialUnreadable(f"No credential for {cluster.name}. Enter one.")
    return decrypted_connection(row)


def decrypted_connection(row: ClusterCredential) -> Connection:
    """The connection described by a row. Raises CredentialUnreadable, also for an unchecked server."""
    if row.insecure and not settings.RUNG_ALLOW_INSECURE_CLUSTERS:
        raise CredentialUnreadable("Unverified certificates are not allowed. Add the certificate authority.")
    try:
        secret = secret_box().open(row.sealed, bound_to=row.bound_to)
    except (DecryptionFailed, NoEncryptionKey) as error:
        raise CredentialUnreadable(f"{error} Enter the credential again.") from error
    return Connection(
        row.server,
        ca=row.ca,
        token=secret.get("token", ""),
        certificate=secret.get("certificate", ""),
        key=secret.get("key", ""),
        tls_server_name=row.tls_server_name,
        insecure=row.insecure,
    )


def credential_version(cluster: Cluster) -> str:
    """Changes when anything of the connection changes; empty without one. A sealing under a newer key is no change."""
    row = ClusterCredential.objects.filter(cluster=cluster).values_list("version", "changed_at").first()
    return f"{row[0]}-{row[1].timestamp()}" if row else ""


def encrypt_connection(row: ClusterCredential, connection: Connection, *, expires_at: datetime | None) -> None:
    """Write a connection into a row, its secret sealed; the caller saves. Raises NoKey."""
    row.server, row.tls_server_name = connection.server, connection.tls_server_name
    row.ca, row.insecure, row.expires_at = connection.ca, connection.insecure, expires_at
    row.kind = CredentialKind.TOKEN if connection.token else CredentialKind.CERTIFICATE
    keys = secret_box()
    row.sealed, row.key_id = keys.seal(_secret(connection), bound_to=row.bound_to), keys.key_id


def _secret(connection: Connection) -> Mapping[str, str]:
    parts = {"token": connection.token, "certificate": connection.certificate, "key": connection.key}
    return {name: value for name, value in parts.items() if value}


def metrics_connection_of(source: MetricsSource) -> Connection:
    """How the cluster's Prometheus is reached. Raises CredentialUnreadable."""
    return Connection(source.server, ca=source.ca, token=_token_of(source))


def encrypt_metrics_connection(source: MetricsSource, connection: Connection) -> None:
    """Write a connection to a Prometheus into its row, a token sealed; the caller saves. Raises NoKey."""
    source.server, source.ca = connection.server, connection.ca
    source.sealed = source.key_id = ""
    if connection.token:
        keys = secret_box()
        source.sealed = keys.seal({"token": connection.token}, bound_to=source.bound_to)
        source.key_id = keys.key_id


def _token_of(source: MetricsSource) -> str:
    if not source.sealed:
        return ""
    try:
        return secret_box().open(source.sealed, bound_to=source.bound_to)["token"]
    except (DecryptionFailed, NoEncryptionKey) as error:
        raise CredentialUnreadable(f"{error} Enter the token again.") from error


@dataclass(frozen=True, slots=True)
class Rotation:
    """Number of rows that were re-encrypted, were current already, or do not open with any key."""

    renewed: int
    current: int
    broken: int


@transaction.atomic
def rotate_credentials(*, actor: Actor) -> Rotation:
    """Seal every credential under the first of `RUNG_CREDENTIAL_KEYS`. Raises NoKey without one.

    A row that changes during the run is encrypted with the newest key by that change.
    """
    keys = secret_box()
    renewed = current = broken = 0
    for model in encrypted_models():
        rows = model._default_manager.exclude(sealed="")
        current += rows.filter(key_id=keys.key_id).count()
        for row in rows.select_for_update().exclude(key_id=keys.key_id):
            try:
                sealed = keys.renewed(str(row.sealed))
            except DecryptionFailed:
                broken += 1
                continue
            renewed += rows.filter(pk=row.pk).update(sealed=sealed, key_id=keys.key_id)
    if renewed:
        record(actor, "cluster.rotate_credentials", None, detail={"renewed": renewed, "broken": broken})
    return Rotation(renewed, current, broken)


def encrypted_models() -> list[Any]:
    """Every model of any app that keeps a sealed secret: by its columns `sealed` and `key_id`."""
    named = ((model, {field.name for field in model._meta.get_fields()}) for model in apps.get_models())
    return [model for model, names in named if {"sealed", "key_id"} <= names]


def reuse_stored_secret(opens: Callable[[], Connection], *, same_place: bool) -> Connection:
    """The stored connection. ValidationFailed at the token where the secret would go elsewhere or is unreadable."""
    if not same_place:
        text = (
            "Enter the credential again: a stored credential is never sent to a new address, and not under another "
            "certificate authority."
        )
        raise ValidationFailed.at("/token", "secret_needed", text)
    try:
        return opens()
    except CredentialUnreadable as error:
        raise ValidationFailed.at("/token", error.code, error.message) from error


RESOLVED_FOR: Final = 300.0
"""Seconds after which a server's name is resolved and checked again."""


@dataclass(slots=True)
class _CachedGateway:
    """A client that is shared by the threads of this process."""

    version: str
    connection: Connection
    target: CheckedAddress
    gateway: KubernetesGateway
    resolved_at: float


_gateways: Final[dict[str, _CachedGateway]] = {}
_lock = threading.Lock()


def gateway_for(cluster: Cluster) -> ClusterGateway:
    """The gateway of the cluster's backend. KeyError: no such backend; its service refuses one before it is stored.

    Of a real cluster there is one per process and credential: a new credential, or another address behind the name,
    makes a new one. Raises ClusterError when there is no credential or no address to connect to.
    """
    return BACKENDS[cluster.backend](cluster)


def gateway_to(connection: Connection, *, name: str) -> KubernetesGateway:
    """A gateway of its own, for a connection that is not stored yet. The caller closes it. Raises ClusterError."""
    target = checked_address(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    return KubernetesGateway(connection, target, name=name)


def gpu_readings_of(connection: Connection, metric: str) -> list[GpuUtilization]:
    """What a Prometheus says of the GPUs of its cluster's pods. Raises ClusterError."""
    target = checked_address(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    return gpu_readings(connection, target, metric)


def forget_gateways() -> None:
    """Close every kept client: a process ends its work."""
    with _lock:
        for each in _gateways.values():
            each.gateway.close()
        _gateways.clear()


def _memory(cluster: Cluster) -> ClusterGateway:
    return MemoryGateway(store_of(str(cluster.pk)))


def _kubernetes(cluster: Cluster) -> ClusterGateway:
    version = credential_version(cluster)
    key = str(cluster.pk)
    cached = _gateways.get(key)
    if cached is not None and cached.version == version and not _moved(cached):
        return cached.gateway
    connection = connection_of(cluster)
    target = checked_address(connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    with _lock:
        return _kept_now(key, version, connection, target, cluster.name)


def _kept_now(key: str, version: str, connection: Connection, target: CheckedAddress, name: str) -> KubernetesGateway:
    """Another thread may have been faster: then its client is everybody's."""
    cached = _gateways.get(key)
    if cached is not None and (cached.version, cached.target) == (version, target):
        return cached.gateway
    gateway = KubernetesGateway(connection, target, name=name)
    _gateways[key] = _CachedGateway(version, connection, target, gateway, time.monotonic())
    if cached is not None:
        cached.gateway.close()
    return gateway


def _moved(cached: _CachedGateway) -> bool:
    """The name resolves to another address. A name that does not resolve now leaves the client as it is."""
    now = time.monotonic()
    if now - cached.resolved_at < RESOLVED_FOR:
        return False
    cached.resolved_at = now
    try:
        target = checked_address(cached.connection.server, allowed=settings.RUNG_CLUSTER_ADDRESSES)
    except ClusterUnreachable:
        return False
    return target != cached.target


def _after_fork() -> None:
    """Connections belong to the parent: a child drops them unused, and makes its own."""
    global _lock  # noqa: PLW0603 - the parent may have held it at the fork
    _lock = threading.Lock()
    _gateways.clear()


os.register_at_fork(after_in_child=_after_fork)

BACKENDS: Final[Mapping[str, Callable[[Cluster], ClusterGateway]]] = {
    "memory": _memory,
    "sandbox": SandboxGateway,
    "kubernetes": _kubernetes,
}
