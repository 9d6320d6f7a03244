"""Take a real cluster into the estate, and change how it is reached. The cluster is asked before a transaction opens.

A stored secret only ever goes where it was entered for: another address, server name or trust needs it again.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.connections import Connection
from clusters.credentials import opened, put
from clusters.entered import FORM, Entered, connection_from, expiry_of
from clusters.errors import ClusterError, CredentialUnreadable
from clusters.flavours import FLAVOURS
from clusters.kubeconfig import PLACES, read_kubeconfig
from clusters.models import Cluster, ClusterCredential
from clusters.sealing import NoKey
from clusters.services.connection_test import ConnectionReport, Opens, identify, open_gateway, try_connection
from clusters.services.estate import create_cluster, pause, touch
from clusters.services.leases import forget_versions
from clusters.services.shards import shard_warnings
from clusters.services.stored_secrets import stored
from portal.audit.denials import recorded
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.attempts import outside
from portal.core.errors import Conflict, Refused

BACKEND: Final = "kubernetes"
Source = bytes | Entered
"""A kubeconfig as it was sent, or the parts of a form."""


def register_cluster(
    *, name: str, flavour: str, source: Source, actor: Actor, opens: Opens = open_gateway
) -> tuple[Cluster, ConnectionReport]:
    """Take a cluster in. Raises Refused or Conflict, which leave one audit record, and nothing else.

    1. read what was entered
    2. ask the cluster who it is and what Rung may do there
    3. store cluster and sealed credential; without every right it starts paused
    """
    with recorded(actor=actor, action="cluster.connect", entity_type="cluster", entity_name=name[:63]):
        connection = read(source)
        _refuse_flavour(flavour)
        report = outside(partial(try_connection, connection, flavour, opens=opens))
        _refuse_unknown(report, source)
        _refuse_unserved(report)
        with transaction.atomic():
            cluster = create_cluster(name=name, flavour=flavour, backend=BACKEND, actor=actor)
            _take(cluster, report.uid, report.version)
            row = ClusterCredential(cluster=cluster)
            _store(row, connection)
            if report.lacking:
                pause(cluster=cluster, reason="Its account lacks rights: apply them, then test again.", actor=actor)
            record(actor, "cluster.connect", cluster, detail=_as_audit(row))
    return cluster, report


def change_connection(
    *, cluster: Cluster, source: Source, actor: Actor, adopt: bool = False, opens: Opens = open_gateway
) -> ClusterCredential:
    """Reach the same cluster another way, or with another credential. Without a secret the stored one stays.

    `adopt`: a cluster that was made anew in the old one's place is taken for it, which must be said. Refused: a
    part is wrong, or the secret is needed again. Conflict: another cluster answers, or somebody else changed the
    connection meanwhile.
    """
    with recorded(actor=actor, action="cluster.reconnect", entity_type="cluster", entity_name=cluster.name):
        row = ClusterCredential.objects.get(cluster=cluster)
        connection = _with_secret(row, read(source, needs_secret=False))
        uid, version = _identify(connection, source, opens)
        if cluster.uid and uid != cluster.uid and not adopt:
            raise _another(uid)
        with transaction.atomic():
            now = ClusterCredential.objects.select_for_update().get(cluster=cluster)
            if now.version != row.version:
                raise Conflict("The connection was changed meanwhile: look at it again.", code="changed_meanwhile")
            before = _as_audit(now)
            now.version += 1
            _store(now, connection)
            detail = {"before": before, "after": _as_audit(now), "identity": [cluster.uid, uid]}
            if uid != cluster.uid:
                forget_versions(cluster)
            _take(cluster, uid, version)
            touch(cluster)
            record(actor, "cluster.reconnect", cluster, detail=detail)
    return now


def read(source: Source, *, needs_secret: bool = True) -> Connection:
    """What was entered as a connection. Raises Refused with a problem for every part that is wrong."""
    insecure, now = bool(settings.RUNG_ALLOW_INSECURE_CLUSTERS), timezone.now()
    if isinstance(source, Entered):
        return connection_from(source, now=now, allow_insecure=insecure, needs_secret=needs_secret)
    return read_kubeconfig(source, now=now, allow_insecure=insecure)


def try_entered(source: Source, flavour: str, *, opens: Opens = open_gateway) -> ConnectionReport:
    """Test what was entered without storing anything. Raises Refused where it cannot be read."""
    return try_connection(read(source), flavour, opens=opens)


def try_stored(cluster: Cluster, *, opens: Opens = open_gateway) -> ConnectionReport:
    """Test the stored connection of a cluster. Conflict for one that is reached without."""
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise no_connection(cluster)
    try:
        report = try_connection(opened(row), cluster.flavour, opens=opens)
    except CredentialUnreadable as error:
        return ConnectionReport(error=error.message, code=error.code)
    shards = () if report.error else shard_warnings(cluster, report.configured)
    return replace(report, warnings=(*report.warnings, *shards))


def no_connection(cluster: Cluster) -> Conflict:
    """Why nothing can be said of the connection of a cluster that has none."""
    return Conflict(f"{cluster.name} is simulated, and reached without a connection.", code="no_connection")


def _with_secret(row: ClusterCredential, connection: Connection) -> Connection:
    """The stored secret, where none was entered and it still goes to the same place."""
    if connection.token or connection.key:
        return connection
    asked = (connection.server, connection.tls_server_name, connection.insecure)
    same = asked == (row.server, row.tls_server_name, row.insecure)
    old = stored(partial(opened, row), same_place=same)
    return replace(connection, token=old.token, certificate=old.certificate, key=old.key)


def _identify(connection: Connection, source: Source, opens: Opens) -> tuple[str, str]:
    try:
        return outside(partial(identify, connection, opens=opens))
    except ClusterError as error:
        raise Refused.at(_place_of_server(source), error.code, error.message) from error


def _refuse_flavour(flavour: str) -> None:
    if flavour not in FLAVOURS:
        raise Refused.at("/flavour", "unknown", f"{flavour[:40]!r} is no scheduler.", allowed=sorted(FLAVOURS))


def _refuse_unknown(report: ConnectionReport, source: Source) -> None:
    place = _place_of_server(source)
    if report.error:
        raise Refused.at(place, report.code, report.error)
    if not report.uid:
        message = "The account may not read the namespace kube-system, by which a cluster is known: apply its rights."
        raise Refused.at(place, "identity_unknown", message)


def _refuse_unserved(report: ConnectionReport) -> None:
    if report.unserved:
        message = f"The cluster does not serve {', '.join(report.unserved)}: choose another scheduler, or switch it on."
        raise Refused.at("/flavour", "not_served", message, kinds=list(report.unserved))


def _place_of_server(source: Source) -> str:
    return (FORM if isinstance(source, Entered) else PLACES)["server"]


def _take(cluster: Cluster, uid: str, version: str) -> None:
    """One real cluster has one row: two would write against each other."""
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(uid=uid, version=version)
    except IntegrityError:
        raise _another(uid) from None
    cluster.uid, cluster.version = uid, version


def _another(uid: str) -> Conflict:
    known = Cluster.objects.filter(backend=BACKEND, uid=uid).values_list("name", flat=True).first()
    said = f"This is the cluster {known}, which is connected already." if known else "Another cluster answers there."
    return Conflict(said, code="cluster_known" if known else "another_cluster")


def _store(row: ClusterCredential, connection: Connection) -> None:
    try:
        put(row, connection, expires_at=expiry_of(connection))
    except (NoKey, ValueError):
        message = "There is no key to seal credentials with: the operator sets RUNG_CREDENTIAL_KEYS."
        raise Conflict(message, code="no_credential_key") from None
    row.save()


def _as_audit(row: ClusterCredential) -> dict[str, Any]:
    """What may be told of a connection."""
    return {
        "server": row.server,
        "tls_server_name": row.tls_server_name,
        "own_authority": bool(row.ca),
        "insecure": row.insecure,
        "kind": row.kind,
        "expires_at": row.expires_at,
        "version": row.version,
    }
