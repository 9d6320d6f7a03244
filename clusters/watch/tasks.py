"""Tasks that observe clusters, take samples and delete old rows."""

import structlog
from celery import shared_task

from clusters.connection.services.work_limits import try_slot
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.dirty_owners import notify_observe
from clusters.ports.gateway import ClusterError, TransientClusterError
from clusters.watch.services.informers import observe_cluster
from clusters.watch.services.observations import prune as prune_observed
from clusters.watch.services.observer import unwatched
from clusters.watch.services.usage import SAMPLING, measure_all, take_samples, tidy_samples
from portal.kit.messaging import tasks
from portal.kit.messaging.tasks import retry_transient

log = structlog.get_logger(__name__)


OBSERVE_SECONDS = 5


MEASURE_SECONDS = 60


TIDY_SECONDS = 3600


@shared_task(name="clusters.observe", soft_time_limit=50, time_limit=60, **retry_transient(TransientClusterError))
def observe(cluster_id: str) -> None:
    """Look at one cluster. Gone or paused: nothing to do."""
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None:
        log.info("observe.skipped", cluster=cluster_id)
        return
    with try_slot(cluster, "observe") as has_slot:
        if not has_slot:
            return
        try:
            observe_cluster(cluster)
        except TransientClusterError:
            raise
        except ClusterError as error:
            log.warning("observe.refused", cluster=cluster.name, code=error.code, message=error.message)


@shared_task(name="clusters.observe_all", soft_time_limit=25, time_limit=30)
def observe_all() -> None:
    """Wake a worker for each cluster that no observer holds, so that losing the observer only slows things down."""
    if tasks.claim_period("clusters.observe_all", every=OBSERVE_SECONDS):
        for cluster_id in unwatched():
            notify_observe(cluster_id)


@shared_task(name="clusters.prune", soft_time_limit=170, time_limit=180)
def prune() -> None:
    """Drop what was observed long ago, once an hour."""
    if tasks.claim_period("clusters.prune", every=TIDY_SECONDS):
        pods, events = prune_observed()
        log.info("prune.done", pods=pods, events=events)


@shared_task(name="clusters.sample", soft_time_limit=110, time_limit=120)
def sample() -> None:
    """Measure the next clusters of this minute; drop and average what was measured of those whose turn it is."""
    if tasks.claim_period("clusters.sample", every=SAMPLING):
        take_samples()
        tidy_samples()


@shared_task(name="clusters.measure_gpus", soft_time_limit=110, time_limit=120)
def measure_gpus() -> None:
    """Ask the Prometheus of every cluster that has one how busy its GPUs are, once a minute."""
    if tasks.claim_period("clusters.measure_gpus", every=MEASURE_SECONDS):
        measure_all()
