"""Tasks of the cluster mechanism: ids in, one service each, safe to run twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from celery import shared_task
from django.utils import timezone

from clusters.enqueue import wake_observe
from clusters.errors import ClusterError, TransientClusterError
from clusters.models import Cluster, ClusterState
from clusters.sandbox.tick import tick
from clusters.services.gpu_use import measure_all
from clusters.services.leases import unwatched
from clusters.services.observe import observe_cluster
from clusters.services.pruning import prune as prune_observed
from clusters.services.reconcile import reconcile
from clusters.services.removing import carry_on
from clusters.services.sampling import average, take_samples, thin
from clusters.services.sweep import forget_old_runs
from clusters.services.sweep import sweep as sweep_clusters
from clusters.services.worker_slots import taken
from portal.core import periods
from portal.core.retries import transient

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 10
TIDY_SECONDS = 3600
TICK_SECONDS = 1
OBSERVE_SECONDS = 5
SAMPLE_SECONDS = 60
THIN_SECONDS = 600
SANDBOX = "sandbox"


@shared_task(name="clusters.reconcile_cluster", soft_time_limit=280, time_limit=300)
def reconcile_cluster(cluster_id: str) -> None:
    """Bring one cluster to its desired state. Gone or paused: nothing to do.

    Never tried again by the queue: a run that fails says when the next is due, further and further apart.
    """
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None:
        log.info("reconcile.skipped", cluster=cluster_id)
        return
    with _its_share(cluster, "reconcile") as has_slot:
        if has_slot:
            _reconcile(cluster, trigger="wake-up", dry_run=False)


@shared_task(name="clusters.dry_run", soft_time_limit=280, time_limit=300)
def dry_run(cluster_id: str) -> None:
    """Find out what a reconcile would do. Gone or paused: nothing to do.

    An admin waits for it and no sweep would ask for it again, so it needs no slot of the cluster.
    """
    if cluster := Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first():
        _reconcile(cluster, trigger="dry-run", dry_run=True)


@shared_task(name="clusters.remove_traces", soft_time_limit=280, time_limit=300)
def remove_traces(cluster_id: str) -> None:
    """One turn at a removal that was asked for. None asked for, or another worker at it: nothing to do."""
    if cluster := Cluster.objects.filter(pk=cluster_id, state=ClusterState.PAUSED).first():
        with _its_share(cluster, "remove_traces") as has_slot:
            if has_slot:
                carry_on(cluster)


def _reconcile(cluster: Cluster, *, trigger: str, dry_run: bool) -> None:
    try:
        reconcile(cluster, trigger=trigger, dry_run=dry_run)
    except TransientClusterError as error:
        log.warning("reconcile.failed", cluster=cluster.name, code=error.code, message=error.message)


@contextmanager
def _its_share(cluster: Cluster, work: str) -> Iterator[bool]:
    """False while the cluster holds its share of the workers: a sweep asks for the work again."""
    with taken(cluster) as slot:
        if slot is None:
            log.info("cluster.busy", cluster=cluster.name, work=work)
        yield slot is not None


@shared_task(name="clusters.sweep", soft_time_limit=25, time_limit=30)
def sweep() -> None:
    """Wake workers for the clusters that are due; once an hour forget old runs."""
    if periods.claim("clusters.sweep", every=SWEEP_SECONDS):
        sweep_clusters()
    if periods.claim("clusters.forget_old_runs", every=TIDY_SECONDS):
        forget_old_runs()


@shared_task(name="clusters.prune", soft_time_limit=170, time_limit=180)
def prune() -> None:
    """Drop what was observed long ago, once an hour."""
    if periods.claim("clusters.prune", every=TIDY_SECONDS):
        pods, events = prune_observed()
        log.info("prune.done", pods=pods, events=events)


@shared_task(name="clusters.sample", soft_time_limit=110, time_limit=120)
def sample() -> None:
    """Measure every cluster once a minute; every ten minutes drop and average what was measured."""
    if periods.claim("clusters.sample", every=SAMPLE_SECONDS):
        take_samples()
    if periods.claim("clusters.thin_samples", every=THIN_SECONDS):
        thin()
        average()


@shared_task(name="clusters.measure_gpus", soft_time_limit=110, time_limit=120)
def measure_gpus() -> None:
    """Ask the Prometheus of every cluster that has one how busy its GPUs are, once a minute."""
    if periods.claim("clusters.measure_gpus", every=SAMPLE_SECONDS):
        measure_all()


@shared_task(name="clusters.tick_sandbox", soft_time_limit=25, time_limit=30)
def tick_sandbox(cluster_id: str) -> None:
    """Move one sandbox's time. Gone or no sandbox: nothing to do."""
    if cluster := Cluster.objects.filter(pk=cluster_id, backend=SANDBOX).first():
        tick(cluster, now=timezone.now())


@shared_task(name="clusters.tick_sandboxes", soft_time_limit=25, time_limit=30)
def tick_sandboxes() -> None:
    """Move every sandbox's time, once a second. Also paused ones: their pods run on by themselves."""
    if not periods.claim("clusters.tick_sandboxes", every=TICK_SECONDS):
        return
    for cluster in Cluster.objects.filter(backend=SANDBOX):
        try:
            tick(cluster, now=timezone.now())
        except Exception:  # one broken sandbox must not stop the others; its transaction is rolled back
            log.exception("sandbox.tick_failed", cluster=cluster.name)


@shared_task(name="clusters.observe", soft_time_limit=50, time_limit=60, **transient(TransientClusterError))
def observe(cluster_id: str) -> None:
    """Look at one cluster. Gone or paused: nothing to do."""
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None:
        log.info("observe.skipped", cluster=cluster_id)
        return
    with _its_share(cluster, "observe") as has_slot:
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
    if periods.claim("clusters.observe_all", every=OBSERVE_SECONDS):
        for cluster_id in unwatched():
            wake_observe(cluster_id)
