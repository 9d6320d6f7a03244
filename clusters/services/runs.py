"""Sync runs: who may write to a cluster now, proof of life while it does, and the record of how it ended."""

from datetime import timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now
from django.utils import timezone

from clusters.diff import Change, Conflict, Create, Delete, Fenced, Replace, Update
from clusters.enqueue import wake_sync
from clusters.errors import ClusterError
from clusters.models import Cluster, SyncOutcome, SyncRun, SyncState

DEAD_AFTER: Final = timedelta(seconds=60)
RESYNC: Final = timedelta(seconds=60)
RETRY: Final = timedelta(seconds=15)

ACTIONS: Final = {
    Create: "create",
    Update: "update",
    Replace: "replace",
    Delete: "delete",
    Conflict: "conflict",
    Fenced: "fenced",
}


class RunLost(Exception):
    """Another worker has taken the cluster over: whoever gets this stops writing at once."""


def claim(cluster: Cluster, *, trigger: str, dry_run: bool) -> SyncRun | None:
    """The one live run of the cluster, or None while somebody else has it. A dry run writes nothing and needs no claim.

    1. close a run whose worker has shown no life for 60 seconds by the database's clock
    2. insert; the unique constraint lets one of several through
    """
    dead = SyncRun.objects.filter(cluster=cluster, state=SyncState.RUNNING, heartbeat_at__lt=Now() - DEAD_AFTER)
    dead.update(
        state=SyncState.FAILED,
        finished_at=Now(),
        error_code="abandoned",
        error="Its worker ended or stopped; another one took over.",
    )
    now = timezone.now()
    try:
        with transaction.atomic():
            return SyncRun.objects.create(
                cluster=cluster, trigger=trigger, dry_run=dry_run, started_at=now, heartbeat_at=Now()
            )
    except IntegrityError:
        return None


def show_life(run: SyncRun) -> None:
    """Call before every write to the cluster. Raises RunLost when the run is no longer ours."""
    if not SyncRun.objects.filter(pk=run.pk, state=SyncState.RUNNING).update(heartbeat_at=Now()):
        raise RunLost


def note(run: SyncRun, change: Change, error: ClusterError | None) -> None:
    """What happened to one object, or would happen in a dry run."""
    SyncOutcome.objects.create(
        run=run,
        action=ACTIONS[type(change)],
        kind=change.ref.kind.key,
        namespace=change.ref.namespace,
        name=change.ref.name,
        ok=error is None,
        code=error.code if error else "",
        message=error.message[:2000] if error else "",
        changes=[each.as_row() for each in change.changes],
    )


@transaction.atomic
def finish(run: SyncRun, *, error_code: str = "", error: str = "") -> None:
    """Close the run and say when the next one is due. A run that was taken over is left as it stands.

    Synced means that every object is as this generation wants it; a newer generation is due at once.
    """
    run.state = _state_of(run, error_code)
    run.finished_at = timezone.now()
    run.error_code, run.error = error_code, error[:2000]
    closed = SyncRun.objects.filter(pk=run.pk, state=SyncState.RUNNING).update(
        **{name: getattr(run, name) for name in CLOSING}
    )
    if closed and not run.dry_run:
        _note_on_cluster(run)


CLOSING: Final = ("state", "finished_at", "error_code", "error", "generation", "listed", "written", "failed")


def _state_of(run: SyncRun, error_code: str) -> SyncState:
    if not run.failed and not error_code:
        return SyncState.SUCCEEDED
    return SyncState.PARTIAL if run.written else SyncState.FAILED


def _note_on_cluster(run: SyncRun) -> None:
    """Plan the next run. The generation is compared by the very update, so that a change in between is not lost."""
    clusters = Cluster.objects.filter(pk=run.cluster_id)
    if run.state == SyncState.SUCCEEDED:
        clusters.update(synced_generation=Greatest(F("synced_generation"), run.generation), synced_at=run.finished_at)
    now = timezone.now()
    wait = RESYNC if run.state == SyncState.SUCCEEDED else RETRY
    seen = clusters.filter(generation__lte=run.generation) if run.generation else clusters
    if not seen.update(sync_due_at=now + wait):
        clusters.update(sync_due_at=now)
        wake_sync(run.cluster_id)


def holder(cluster: Cluster) -> SyncRun:
    """The run that has the cluster now, or the last one if it has just ended."""
    return SyncRun.objects.filter(cluster=cluster, dry_run=False).latest("started_at")
