"""Where a cluster's Prometheus is: tried before it is kept, its token sealed and never shown."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from clusters.addresses import server_of
from clusters.connections import Connection
from clusters.credentials import metrics_connection_of, put_metrics
from clusters.entered import Entered, connection_from
from clusters.errors import ClusterError
from clusters.gateways import gpu_readings_of
from clusters.models import Cluster, MetricsSource
from clusters.models.gpu_use import METRIC, METRIC_NAME
from clusters.sealing import NoKey
from clusters.services.stored_secrets import stored
from portal.audit.denials import recorded
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.attempts import outside
from portal.core.errors import Refused

SENTENCE: Final = "It was asked and did not answer as a Prometheus does: %s"
SIMULATED: Final = "This cluster is simulated: its GPUs do no work that could be measured."


def set_metrics_source(
    *, cluster: Cluster, server: str, actor: Actor, ca: str = "", token: str = "", metric: str = METRIC
) -> MetricsSource:
    """Keep it, once it has answered. Without a token the stored one stays, for the same address only.

    Raises Refused with a problem per part: an address Rung may not connect to, a name that is no metric, no answer;
    and for a simulated cluster.
    """
    with recorded(actor=actor, action="cluster.metrics", entity_type="cluster", entity_name=cluster.name):
        if cluster.is_simulated:
            raise Refused.at("/server", "simulated", SIMULATED)
        source = MetricsSource.objects.filter(cluster=cluster).first() or MetricsSource(cluster=cluster)
        before, connection = _as_audit(source), _connection(source, Entered(server=server, ca=ca, token=token))
        source.metric = _metric(metric)
        _try(connection, source.metric)
        with transaction.atomic():
            try:
                put_metrics(source, connection)
            except NoKey as error:
                raise Refused.at("/token", "no_key", f"{error} Set RUNG_CREDENTIAL_KEYS.") from None
            source.error, source.read_at = "", timezone.now()
            source.save()
            record(actor, "cluster.metrics", cluster, detail={"before": before, "after": _as_audit(source)})
    return source


@transaction.atomic
def remove_metrics_source(*, cluster: Cluster, actor: Actor) -> None:
    """Ask it no more; idle limits do not act on this cluster from now on. Without one nothing happens."""
    if source := MetricsSource.objects.filter(cluster=cluster).first():
        record(actor, "cluster.metrics", cluster, detail={"before": _as_audit(source), "after": {}})
        source.delete()


def _connection(source: MetricsSource, entered: Entered) -> Connection:
    found = connection_from(entered, now=timezone.now(), needs_secret=False)
    if found.token or not source.sealed:
        return found
    old = stored(partial(metrics_connection_of, source), same_place=server_of(found.server).url == source.server)
    return Connection(found.server, ca=found.ca, token=old.token)


def _metric(name: str) -> str:
    try:
        METRIC_NAME(name)
    except ValidationError as error:
        raise Refused.at("/metric", "bad_metric", error.messages[0]) from None
    return name


def _try(connection: Connection, metric: str) -> None:
    try:
        outside(partial(gpu_readings_of, connection, metric))
    except ClusterError as error:
        raise Refused.at("/server", error.code, SENTENCE % error.message) from error


def _as_audit(source: MetricsSource) -> Mapping[str, object]:
    if not source.server:
        return {}
    return {"server": source.server, "metric": source.metric, "token": bool(source.sealed)}
