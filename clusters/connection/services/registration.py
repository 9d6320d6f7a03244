"""Register a cluster and change how it or its Prometheus is reached. The cluster is tested first.

A stored secret only ever goes where it was entered for: another address, server name or authority needs it again.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.connection.models import METRIC, METRIC_NAME, ClusterCredential, MetricsSource
from clusters.connection.rules.connection_form_data import FORM, ConnectionFormData, connection_from, expiry_of
from clusters.connection.rules.kubeconfig import PLACES, read_kubeconfig
from clusters.connection.services.connection_test import (
    ConnectionReport,
    OpensGateway,
    identify,
    open_gateway,
    try_connection,
)
from clusters.connection.services.gateways import (
    BACKENDS,
    decrypted_connection,
    encrypt_connection,
    encrypt_metrics_connection,
    gpu_readings_of,
    metrics_connection_of,
    reuse_stored_secret,
)
from clusters.connection.services.scheduler_config import shard_warnings
from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster
from clusters.inventory.services.dirty_owners import notify_sync
from clusters.inventory.services.inventory import (
    DNS_LABEL,
    check_choice,
    check_match,
    forget_versions,
    mark_dirty,
    pause,
)
from clusters.ports.connection import Connection, parse_server_url
from clusters.ports.gateway import ClusterError, CredentialUnreadable
from portal.audit.services import record, record_refusals
from portal.kit.db.transactions import external_call
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.encryption import NoEncryptionKey

BACKEND: Final = "kubernetes"
ConnectionSource = bytes | ConnectionFormData
"""A kubeconfig as it was sent, or the parts of a form."""


def register_cluster(
    *, name: str, flavour: str, source: ConnectionSource, actor: Actor, opens: OpensGateway = open_gateway
) -> tuple[Cluster, ConnectionReport]:
    """Take a cluster in. Raises Refused or Conflict, which leave one audit record, and nothing else.

    1. read what was entered
    2. ask the cluster who it is and what Rung may do there
    3. store cluster and sealed credential; without every right it starts paused
    """
    with record_refusals(actor=actor, action="cluster.connect", entity_type="cluster", entity_name=name[:63]):
        connection = read(source)
        _check_flavour(flavour)
        report = external_call(partial(try_connection, connection, flavour, opens=opens))
        _check_identity(report, source)
        _check_served(report)
        with transaction.atomic():
            cluster = create_cluster(name=name, flavour=flavour, backend=BACKEND, actor=actor)
            _store_identity(cluster, report.uid, report.version)
            row = ClusterCredential(cluster=cluster)
            _store(row, connection)
            if report.lacking:
                pause(
                    cluster=cluster, reason="Its account lacks permissions. Apply them, then test again.", actor=actor
                )
            record(actor, "cluster.connect", cluster, detail=_as_audit(row))
    return cluster, report


def change_connection(
    *, cluster: Cluster, source: ConnectionSource, actor: Actor, adopt: bool = False, opens: OpensGateway = open_gateway
) -> ClusterCredential:
    """Reach the same cluster another way, or with another credential. Without a secret the stored one stays.

    `adopt`: accept a rebuilt cluster in place of the old one; must be explicit. Refused: a
    part is wrong, or the secret is needed again. Conflict: another cluster answers, or another user changed the
    connection meanwhile.
    """
    with record_refusals(actor=actor, action="cluster.reconnect", entity_type="cluster", entity_name=cluster.name):
        row = ClusterCredential.objects.get(cluster=cluster)
        connection = _with_secret(row, read(source, needs_secret=False))
        uid, version = _identify(connection, source, opens)
        if cluster.uid and uid != cluster.uid and not adopt:
            raise _identity_conflict(uid)
        with transaction.atomic():
            now = ClusterCredential.objects.select_for_update().get(cluster=cluster)
            if now.version != row.version:
                raise Conflict("Another user changed the connection. Reload the page.", code="changed_meanwhile")
            before = _as_audit(now)
            now.version += 1
            _store(now, connection)
            detail = {"before": before, "after": _as_audit(now), "identity": [cluster.uid, uid]}
            if uid != cluster.uid:
                forget_versions(cluster)
            _store_identity(cluster, uid, version)
            mark_dirty(cluster)
            record(actor, "cluster.reconnect", cluster, detail=detail)
    return now


def read(source: ConnectionSource, *, needs_secret: bool = True) -> Connection:
    """What was entered as a connection. Raises ValidationFailed with a problem for every part that is wrong."""
    insecure, now = bool(settings.RUNG_ALLOW_INSECURE_CLUSTERS), timezone.now()
    if isinstance(source, ConnectionFormData):
        return connection_from(source, now=now, allow_insecure=insecure, needs_secret=needs_secret)
    return read_kubeconfig(source, now=now, allow_insecure=insecure)


def try_entered(source: ConnectionSource, flavour: str, *, opens: OpensGateway = open_gateway) -> ConnectionReport:
    """Test what was entered without storing anything. Raises ValidationFailed where it cannot be read."""
    return try_connection(read(source), flavour, opens=opens)


def try_stored(cluster: Cluster, *, opens: OpensGateway = open_gateway) -> ConnectionReport:
    """Test the stored connection of a cluster. Conflict for one that is reached without."""
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise no_connection(cluster)
    try:
        report = try_connection(decrypted_connection(row), cluster.flavour, opens=opens)
    except CredentialUnreadable as error:
        return ConnectionReport(error=error.message, code=error.code)
    shards = () if report.error else shard_warnings(cluster, report.configured)
    return replace(report, warnings=(*report.warnings, *shards))


def no_connection(cluster: Cluster) -> Conflict:
    """Why nothing can be said of the connection of a cluster that has none."""
    return Conflict(f"{cluster.name} is simulated and has no connection.", code="no_connection")


def _with_secret(row: ClusterCredential, connection: Connection) -> Connection:
    """The stored secret, where none was entered and it still goes to the same place."""
    if connection.token or connection.key:
        return connection
    requested = (connection.server, connection.tls_server_name, connection.ca, connection.insecure)
    same = requested == (row.server, row.tls_server_name, row.ca, row.insecure)
    old = reuse_stored_secret(partial(decrypted_connection, row), same_place=same)
    return replace(connection, token=old.token, certificate=old.certificate, key=old.key)


def _identify(connection: Connection, source: ConnectionSource, opens: OpensGateway) -> tuple[str, str]:
    try:
        return external_call(partial(identify, connection, opens=opens))
    except ClusterError as error:
        raise ValidationFailed.at(_place_of_server(source), error.code, error.message) from error


def _check_flavour(flavour: str) -> None:
    if flavour not in FLAVOURS:
        raise ValidationFailed.at(
            "/flavour", "unknown", f"{flavour[:40]!r} is not a scheduler.", allowed=sorted(FLAVOURS)
        )


def _check_identity(report: ConnectionReport, source: ConnectionSource) -> None:
    place = _place_of_server(source)
    if report.error:
        raise ValidationFailed.at(place, report.code, report.error)
    if not report.uid:
        message = (
            "The account may not read the namespace kube-system, whose UID identifies the cluster. "
            "Apply the permissions."
        )
        raise ValidationFailed.at(place, "identity_unknown", message)


def _check_served(report: ConnectionReport) -> None:
    if report.unserved:
        message = (
            f"The cluster does not serve {', '.join(report.unserved)}. Choose another scheduler or enable the feature."
        )
        raise ValidationFailed.at("/flavour", "not_served", message, kinds=list(report.unserved))


def _place_of_server(source: ConnectionSource) -> str:
    return (FORM if isinstance(source, ConnectionFormData) else PLACES)["server"]


def _store_identity(cluster: Cluster, uid: str, version: str) -> None:
    """One real cluster has one row: two would write against each other."""
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(uid=uid, version=version)
    except IntegrityError:
        raise _identity_conflict(uid) from None
    cluster.uid, cluster.version = uid, version


def _identity_conflict(uid: str) -> Conflict:
    known = Cluster.objects.filter(backend=BACKEND, uid=uid).values_list("name", flat=True).first()
    message = (
        f"This cluster is already connected as {known}." if known else ("A different cluster responds at this address.")
    )
    return Conflict(message, code="cluster_known" if known else "another_cluster")


def _store(row: ClusterCredential, connection: Connection) -> None:
    try:
        encrypt_connection(row, connection, expires_at=expiry_of(connection))
    except (NoEncryptionKey, ValueError):
        message = "No encryption key for credentials. The operator must set RUNG_CREDENTIAL_KEYS."
        raise Conflict(message, code="no_credential_key") from None
    row.save()


def _as_audit(row: ClusterCredential) -> dict[str, Any]:
    """The parts of a connection that may be shown."""
    return {
        "server": row.server,
        "tls_server_name": row.tls_server_name,
        "own_authority": bool(row.ca),
        "insecure": row.insecure,
        "kind": row.kind,
        "expires_at": row.expires_at,
        "version": row.version,
    }


SENTENCE: Final = "The test failed: %s"
SIMULATED: Final = "This cluster is simulated and has no GPU metrics."


def set_metrics_source(
    *, cluster: Cluster, server: str, actor: Actor, ca: str = "", token: str = "", metric: str = METRIC
) -> MetricsSource:
    """Keep it, once it has answered. Without a token the stored one stays, for the same address only.

    Raises Refused with a problem per part: an address Rung may not connect to, a name that is no metric, no answer;
    and for a simulated cluster.
    """
    with record_refusals(actor=actor, action="cluster.metrics", entity_type="cluster", entity_name=cluster.name):
        if cluster.is_simulated:
            raise ValidationFailed.at("/server", "simulated", SIMULATED)
        source = MetricsSource.objects.filter(cluster=cluster).first() or MetricsSource(cluster=cluster)
        before, connection = (
            _metrics_as_audit(source),
            _connection(source, ConnectionFormData(server=server, ca=ca, token=token)),
        )
        source.metric = _metric(metric)
        _try(connection, source.metric)
        with transaction.atomic():
            try:
                encrypt_metrics_connection(source, connection)
            except NoEncryptionKey as error:
                raise ValidationFailed.at("/token", "no_key", f"{error} Set RUNG_CREDENTIAL_KEYS.") from None
            source.error, source.read_at = "", timezone.now()
            source.save()
            record(actor, "cluster.metrics", cluster, detail={"before": before, "after": _metrics_as_audit(source)})
    return source


@transaction.atomic
def remove_metrics_source(*, cluster: Cluster, actor: Actor) -> None:
    """Ask it no more; idle limits do not act on this cluster from now on. Without one nothing happens."""
    if source := MetricsSource.objects.filter(cluster=cluster).first():
        record(actor, "cluster.metrics", cluster, detail={"before": _metrics_as_audit(source), "after": {}})
        source.delete()


def _connection(source: MetricsSource, entered: ConnectionFormData) -> Connection:
    found = connection_from(entered, now=timezone.now(), needs_secret=False)
    if found.token or not source.sealed:
        return found
    same = (parse_server_url(found.server).url, found.ca) == (source.server, source.ca)
    old = reuse_stored_secret(partial(metrics_connection_of, source), same_place=same)
    return Connection(found.server, ca=found.ca, token=old.token)


def _metric(name: str) -> str:
    try:
        METRIC_NAME(name)
    except ValidationError as error:
        raise ValidationFailed.at("/metric", "bad_metric", error.messages[0]) from None
    return name


def _try(connection: Connection, metric: str) -> None:
    try:
        external_call(partial(gpu_readings_of, connection, metric))
    except ClusterError as error:
        raise ValidationFailed.at("/server", error.code, SENTENCE % error.message) from error


def _metrics_as_audit(source: MetricsSource) -> Mapping[str, object]:
    if not source.server:
        return {}
    return {"server": source.server, "metric": source.metric, "token": bool(source.sealed)}


@transaction.atomic
def create_cluster(*, name: str, flavour: str, backend: str = "sandbox", actor: Actor) -> Cluster:
    """Take a cluster into the estate; its first reconcile is due at once. Raises Refused or Conflict."""
    check_match("/name", name, DNS_LABEL, "lower-case letters, digits and inner dashes, at most 63")
    check_choice("/flavour", flavour, FLAVOURS)
    check_choice("/backend", backend, BACKENDS)
    if Cluster.objects.filter(name=name).exists():
        raise Conflict.at("/name", "name_taken", f"A cluster named {name} already exists.")
    cluster = Cluster.objects.create(name=name, flavour=flavour, backend=backend, sync_due_at=timezone.now())
    record(actor, "cluster.create", cluster, detail={"flavour": flavour, "backend": backend})
    notify_sync(cluster.pk)
    return cluster
