"""Make a cluster equal to the database, and find clusters whose reconcile is due. Level-triggered."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NoReturn

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from clusters.connection.services import work_limits
from clusters.connection.services.gateways import gateway_for
from clusters.connection.services.scheduler_config import refresh_scheduler_config, refresh_served_kinds
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.dirty_owners import notify_removal, notify_sync
from clusters.inventory.services.inventory import pause
from clusters.ports.gateway import (
    ClusterChanged,
    ClusterError,
    ClusterGateway,
    ClusterRefused,
    ObjectRef,
    TransientClusterError,
)
from clusters.ports.objects import owner_of
from clusters.sync.models import SyncRun
from clusters.sync.rules.changes import body_of
from clusters.sync.rules.diff import Change
from clusters.sync.services import scheduler_migration, sync_runs
from clusters.sync.services.applier import Applier, dry_run_changes
from clusters.sync.services.disconnect import waiting_removals
from clusters.sync.services.drift import forget_adoptions, keepers, record_drift
from clusters.sync.services.object_reads import Preflight, preflight
from clusters.sync.services.observed_state import ObservedState, extras, read_observed_state
from clusters.sync.services.sync_runs import RunRecorder, close_dead_runs
from portal.kit.errors import Conflict as StateConflict
from portal.kit.security.actors import SYSTEM, Actor

log = structlog.get_logger(__name__)

LONGEST_UID: Final = 64
LONGEST_VERSION: Final = 40
CHANGED: Final = (
    "A different cluster responds at this address: its kube-system namespace has another UID. Adopt it to continue."
)


def reconcile(cluster: Cluster, *, actor: Actor = SYSTEM, trigger: str = "sweep", dry_run: bool = False) -> SyncRun:
    """One attempt; returns its run. While another worker is at it, returns that worker's run and does nothing.

    1. claim the cluster's single live run
    2. make sure that it is still the same cluster behind the address
    3. look: at what was touched if that is all there is to do, else at everything that is ours
    4. write in a safe order, one outcome per changed object; a dry run only records what it would do
    5. rewrite the drift rows and close the run

    Raises TransientClusterError when a retry may help (the failed run is recorded), Conflict when it is paused.
    """
    if cluster.state == ClusterState.PAUSED:
        raise StateConflict(f"{cluster.name} is paused: {cluster.paused_reason}", code="cluster_paused")
    run = sync_runs.claim(cluster, trigger=trigger, dry_run=dry_run)
    if run is None:
        return sync_runs.current_run_of(cluster)
    log.info("reconcile.started", cluster=cluster.name, trigger=trigger, dry_run=dry_run, actor=actor.name)
    try:
        _attempt(RunRecorder(run), gateway_for(cluster))
        work_limits.close_breaker(cluster)
    except sync_runs.RunLost:
        log.warning("reconcile.lost", cluster=cluster.name)
        run.refresh_from_db()
    except ClusterError as error:
        work_limits.record_result(cluster, error)
        sync_runs.finish(run, error=error)
        if isinstance(error, TransientClusterError):
            raise
    except Exception as error:  # a fault of our own: the run must not stay open, and the fault must not stay hidden
        sync_runs.finish(run, error_code="unexpected", message=type(error).__name__)
        raise
    return run


def _attempt(journal: RunRecorder, gateway: ClusterGateway) -> None:
    try:
        _make_equal(journal, gateway)
    finally:
        journal.flush()


def _make_equal(journal: RunRecorder, gateway: ClusterGateway) -> None:
    run, cluster = journal.run, journal.run.cluster
    seen = preflight(journal, gateway)
    _recognize(cluster, seen)
    look = read_observed_state(journal, gateway, seen)
    if look.owners is None:
        refresh_served_kinds(cluster, gateway)
        refresh_scheduler_config(cluster, gateway)
    run.generation, run.listed, run.scope = look.generation, look.listed, "\n".join(sorted(look.owners or ()))
    remarks = keepers(cluster, look.changes, priorities=look.state.priorities)
    late: Sequence[Change] = ()
    if run.dry_run:
        remaining = dry_run_changes(journal, gateway, look.changes, remarks, retired=look.retired)
    else:
        verify_identity = partial(_recognize, cluster, gateway)
        applier = Applier(journal, gateway, verify_identity, remarks, retired=look.retired)
        remaining = applier.write(look.changes)
        late = extras(journal, gateway, look)
        applier.write(late)
        if look.adopted:
            forget_adoptions(cluster, look.changes, remaining)
    if look.owners is None and not run.dry_run:
        journal.show_life()
        scheduler_migration.settle_migration(cluster, left=look.left)
    _close(journal, look, remaining, refs=None if look.owners is None else look.requested | {each.ref for each in late})


@transaction.atomic
def _close(
    journal: RunRecorder, look: ObservedState, remaining: Sequence[Change], refs: Collection[ObjectRef] | None
) -> None:
    """Store outcomes, drift and the time of the next run in one transaction. Raises RunLost: nothing is stored."""
    run = journal.run
    if not sync_runs.finish(run, owners=look.owners, left={owner_of(body_of(change)) for change in remaining}):
        raise sync_runs.RunLost
    record_drift(run.cluster, remaining, priorities=look.state.priorities, at=timezone.now(), refs=refs)
    journal.flush()


def _recognize(cluster: Cluster, requested: ClusterGateway | Preflight) -> None:
    """A cluster is known by the uid of its kube-system namespace. Another one at its address is never written to.

    A credential or right that the cluster does not accept now is tried again by itself: an API server that has just
    started refuses everybody, and an admin may be replacing a role.
    """
    try:
        uid, version = requested.identity()
    except ClusterRefused as error:
        if work_limits.is_cluster_failure(error):
            raise
        pause(cluster=cluster, reason=f"The cluster rejected the request: {error.message}"[:500], actor=SYSTEM)
        raise
    if cluster.uid and uid != cluster.uid:
        _leave_alone(cluster, CHANGED)
    if (cluster.uid, cluster.version) != (uid, version):
        _take(cluster, uid, version)


def _take(cluster: Cluster, uid: str, version: str) -> None:
    """Believe an identity only if it can be one, and if no other row is that cluster: two would write against each."""
    if not uid or len(uid) > LONGEST_UID:
        _leave_alone(cluster, "Invalid UID of the kube-system namespace: not a Kubernetes API server.")
    version = version[:LONGEST_VERSION]
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(uid=uid, version=version)
    except IntegrityError:
        known = Cluster.objects.filter(uid=uid).exclude(pk=cluster.pk).values_list("name", flat=True).first()
        _leave_alone(cluster, f"This cluster is already connected as {known}. Leave one of the two.")
    cluster.uid, cluster.version = uid, version


def _leave_alone(cluster: Cluster, reason: str) -> NoReturn:
    pause(cluster=cluster, reason=reason, actor=SYSTEM)
    raise ClusterChanged(reason)


AGAIN: Final = timedelta(seconds=30)
"""When a cluster is due once more, should the message that woke its worker be lost."""
KEPT: Final = timedelta(days=30)
QUIET_KEPT: Final = timedelta(days=1)
"""How long runs are kept that wrote nothing and failed at nothing."""


def sweep() -> int:
    """Wake a worker for each due cluster, each for one of several sweeps only. Answers how many.

    Dry runs are closed here if their worker has died: no later run is in their way, so none would notice.
    """
    close_dead_runs(SyncRun.objects.filter(dry_run=True))
    now = timezone.now()
    claimed = [cluster for cluster in Cluster.objects.due(now) if Cluster.objects.claim_due(cluster, now, now + AGAIN)]
    for cluster in claimed:
        notify_sync(cluster.pk)
    for cluster_id in waiting_removals():
        notify_removal(cluster_id)
    return len(claimed)


def forget_old_runs() -> int:
    """Drop ended runs past their time with their outcomes; answers how many. The newest of a cluster always stays."""
    now = timezone.now()
    old = Q(finished_at__lt=now - KEPT) | Q(finished_at__lt=now - QUIET_KEPT, written=0, failed=0, error_code="")
    newest = [
        SyncRun.objects.filter(cluster=cluster).latest("started_at").pk
        for cluster in Cluster.objects.filter(sync_runs__isnull=False).distinct()
    ]
    _, by_model = SyncRun.objects.filter(old).exclude(pk__in=newest).delete()
    return by_model.get("clusters.SyncRun", 0)
