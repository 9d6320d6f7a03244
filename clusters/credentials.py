"""From a cluster's row to the connection that reaches it, and back into the seal."""

from collections.abc import Mapping
from datetime import datetime

from django.conf import settings

from clusters.connections import Connection
from clusters.errors import CredentialUnreadable
from clusters.models import Cluster, ClusterCredential, CredentialKind, MetricsSource
from clusters.sealing import NoKey, SealBroken, Sealer


def sealer() -> Sealer:
    """The sealer of this installation. Raises NoKey when `RUNG_CREDENTIAL_KEYS` is empty."""
    return Sealer(settings.RUNG_CREDENTIAL_KEYS)


def connection_of(cluster: Cluster) -> Connection:
    """How the cluster is reached, secret included. Raises CredentialUnreadable: none is stored, or it does not open."""
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise CredentialUnreadable(f"No credential of {cluster.name} is stored: enter one.")
    return opened(row)


def opened(row: ClusterCredential) -> Connection:
    """The connection a row stands for. Raises CredentialUnreadable, also for an unchecked server."""
    if row.insecure and not settings.RUNG_ALLOW_INSECURE_CLUSTERS:
        raise CredentialUnreadable("Its server's certificate is not checked, which is not allowed: give its authority.")
    try:
        secret = sealer().open(row.sealed, bound_to=row.bound_to)
    except (SealBroken, NoKey) as error:
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


def put(row: ClusterCredential, connection: Connection, *, expires_at: datetime | None) -> None:
    """Write a connection into a row, its secret sealed; the caller saves. Raises NoKey."""
    row.server, row.tls_server_name = connection.server, connection.tls_server_name
    row.ca, row.insecure, row.expires_at = connection.ca, connection.insecure, expires_at
    row.kind = CredentialKind.TOKEN if connection.token else CredentialKind.CERTIFICATE
    keys = sealer()
    row.sealed, row.key_id = keys.seal(_secret(connection), bound_to=row.bound_to), keys.key_id


def _secret(connection: Connection) -> Mapping[str, str]:
    parts = {"token": connection.token, "certificate": connection.certificate, "key": connection.key}
    return {name: value for name, value in parts.items() if value}


def metrics_connection_of(source: MetricsSource) -> Connection:
    """How the cluster's Prometheus is reached. Raises CredentialUnreadable."""
    return Connection(source.server, ca=source.ca, token=_token_of(source))


def put_metrics(source: MetricsSource, connection: Connection) -> None:
    """Write a connection to a Prometheus into its row, a token sealed; the caller saves. Raises NoKey."""
    source.server, source.ca = connection.server, connection.ca
    source.sealed = source.key_id = ""
    if connection.token:
        keys = sealer()
        source.sealed = keys.seal({"token": connection.token}, bound_to=source.bound_to)
        source.key_id = keys.key_id


def _token_of(source: MetricsSource) -> str:
    if not source.sealed:
        return ""
    try:
        return sealer().open(source.sealed, bound_to=source.bound_to)["token"]
    except (SealBroken, NoKey) as error:
        raise CredentialUnreadable(f"{error} Enter the token again.") from error
