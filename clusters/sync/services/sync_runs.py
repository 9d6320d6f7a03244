"""Sync runs: who may write to a cluster now, proof of life while it does, and the record of how it ended."""

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from random import uniform
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import notify_sync
from clusters.ports.gateway import ClusterError
from clusters.ports.objects import owner_of
from clusters.sync.models import SyncOutcome, SyncRun, SyncState
from clusters.sync.rules.changes import body_of
from clusters.sync.rules.diff import Change, Create, Delete, Fenced, NameConflict, Replace, Update

DEAD_AFTER: Final = timedelta(seconds=60)
RESYNC: Final = timedelta(seconds=60)
RETRY: Final = timedelta(seconds=15)
LONGEST_RETRY: Final = timedelta(minutes=5)
BEAT: Final = 1.0
"""Seconds between two proofs of life."""
FRESH: Final = 30.0
"""How old (seconds, this machine's monotonic clock) proof of life may be for a write: half of DEAD_AFTER."""
BATCH: Final = 500
ABANDONED: Final = "abandoned"

ACTIONS: Final = {
    Create: "create",
    Update: "update",
    Replace: "replace",
    Delete: "delete",
    NameConflict: "conflict",
    Fenced: "fenced",
}


class RunLost(Exception):
    """Another worker has taken the cluster over; stop writing at once."""


def claim(cluster: Cluster, *, trigger: str, dry_run: bool) -> SyncRun | None:
    """The one live run of the cluster, or None while another has it. A dry run writes nothing and needs no claim.

    1. insert; the unique constraint lets one of several through
    2. if another run is there, or one that claims nothing may be: close what is dead, and try again
    """
    run = SyncRun(cluster=cluster, trigger=trigger, dry_run=dry_run, started_at=timezone.now(), heartbeat_at=Now())
    if not dry_run and _begins(run):
        return run
    close_dead_runs(SyncRun.objects.filter(cluster=cluster))
    return run if _begins(run) else None


def _begins(run: SyncRun) -> bool:
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def close_dead_runs(runs: QuerySet[SyncRun]) -> None:
    """Those whose worker has shown no life for 60 seconds by the database's clock; after one, everything is looked at.

    The cluster's row comes first, as in `finish`.
    """
    dead = runs.filter(state=SyncState.RUNNING, heartbeat_at__lt=Now() - DEAD_AFTER)
    Cluster.objects.filter(pk__in=dead.values("cluster")).update(resync_due_at=None)
    dead.update(
        state=SyncState.FAILED,
        finished_at=Now(),
        error_code=ABANDONED,
        error="The worker stopped before the run finished.",
    )


def follows_abandoned_run(run: SyncRun) -> bool:
    """The run before it was abandoned: its worker may still be there, about to write what it read."""
    earlier = SyncRun.objects.filter(cluster=run.cluster_id, dry_run=False, pk__lt=run.pk).order_by("-pk")
    return earlier.values_list("error_code", flat=True).first() == ABANDONED


class RunRecorder:
    """What a run has done, written in batches, and its proof of life. Only `require_fresh` is for other threads."""

    def __init__(self, run: SyncRun) -> None:
        self.run = run
        self._rows: list[SyncOutcome] = []
        self._shown = time.monotonic()

    def show_life(self) -> None:
        """Store a heartbeat with every outcome so far. Raises RunLost when the run is no longer ours."""
        self.flush()
        requested = time.monotonic()
        if not SyncRun.objects.filter(pk=self.run.pk, state=SyncState.RUNNING).update(heartbeat_at=Now()):
            raise RunLost
        self._shown = requested

    def keep_up(self) -> None:
        """The same when it is due."""
        if time.monotonic() - self._shown >= BEAT:
            self.show_life()
        elif len(self._rows) >= BATCH:
            self.flush()

    def require_fresh(self) -> None:
        """Call right before a write: a worker that was stopped past its claim wakes up here. Raises RunLost."""
        if time.monotonic() - self._shown > FRESH:
            raise RunLost

    def note(self, change: Change, error: ClusterError | None, message: str = "") -> None:
        """What happened to one object, or would happen in a dry run."""
        self._rows.append(
            SyncOutcome(
                run=self.run,
                action=ACTIONS[type(change)],
                kind=change.ref.kind.key,
                namespace=change.ref.namespace,
                name=change.ref.name,
                owner=owner_of(body_of(change)),
                ok=error is None,
                code=error.code if error else "",
                message=(error.message if error else message)[:2000],
                changes=[each.as_row() for each in change.changes],
            )
        )

    def flush(self) -> None:
        """Write the outcomes noted since the last time."""
        rows, self._rows = self._rows, []
        SyncOutcome.objects.bulk_create(rows)


@transaction.atomic(savepoint=False)
def finish(
    run: SyncRun,
    *,
    error: ClusterError | None = None,
    error_code: str = "",
    message: str = "",
    owners: frozenset[str] | None = None,
    left: Iterable[str] = (),
) -> bool:
    """Close the run and say when the next one is due. False: it was taken over and stays unchanged.

    `owners`: what the run was about (None: everything); `left`: owners of what still differs. A cluster is synced to
    the generation before the first that an owner still waits for; a newer generation is due at once.

    The cluster's row is locked first, as by every writer of its desired state or its removal: two that took it and
    its touches in opposite orders would wait for each other, and one of them, perhaps the admin's, would fail.
    """
    cluster = Cluster.objects.select_for_update().only("generation", *PLANNED).filter(pk=run.cluster_id).first()
    code = error.code if error else error_code
    run.state = _state_of(run, code)
    run.finished_at = timezone.now()
    run.error_code, run.error = code, (error.message if error else message)[:2000]
    closed = SyncRun.objects.filter(pk=run.pk, state=SyncState.RUNNING).update(
        **{name: getattr(run, name) for name in CLOSING}
    )
    if cluster is None or not closed:
        return False
    if not run.dry_run:
        if not code:
            reached = dirty_owners.mark_synced(cluster.pk, run.generation, owners=owners, left=left)
            cluster.synced_generation = max(cluster.synced_generation, reached)
        _plan_next(run, cluster, whole=owners is None, pause=error.retry_after if error else None)
    return True


CLOSING: Final = ("state", "finished_at", "error_code", "error", "generation", "listed", "written", "failed", "scope")
PLANNED: Final = ("synced_generation", "failures", "resync_due_at", "sync_due_at")


def _state_of(run: SyncRun, error_code: str) -> SyncState:
    if not run.failed and not error_code:
        return SyncState.SUCCEEDED
    return SyncState.PARTIAL if run.written else SyncState.FAILED


def _plan_next(run: SyncRun, cluster: Cluster, *, whole: bool, pause: int | None) -> None:
    """The row is locked, so no change of the generation in between is lost."""
    now = timezone.now()
    good = run.state == SyncState.SUCCEEDED
    fields = [*PLANNED]
    cluster.failures = 0 if good else min(cluster.failures + 1, 1000)
    if not run.error_code and whole:
        cluster.resync_due_at = now + RESYNC
    if good and whole:
        cluster.synced_at = now
        fields.append("synced_at")
    due = _next_sync_at(now, cluster.failures, ended=bool(run.error_code), pause=pause)
    cluster.sync_due_at = min(due, cluster.resync_due_at) if cluster.resync_due_at and good else due
    if 0 < run.generation < cluster.generation:
        cluster.sync_due_at = now
        notify_sync(cluster.pk)
    cluster.save(update_fields=fields)


def _next_sync_at(now: datetime, failures: int, *, ended: bool, pause: int | None) -> datetime:
    """Time of the next sync: exponential back-off with jitter after failures.

    ended: the run could not go on, and the pauses grow to LONGEST_RETRY. pause: seconds that the API server asked for.
    """
    if not failures:
        return now + RESYNC
    longest = LONGEST_RETRY if ended else RESYNC
    doublings: int = 1 << min(failures - 1, 10)
    wait = min(RETRY * doublings, longest) * uniform(0.8, 1.2)  # noqa: S311 - jitter, no secret
    return now + max(wait, timedelta(seconds=min(pause or 0, LONGEST_RETRY.total_seconds())))


def current_run_of(cluster: Cluster) -> SyncRun:
    """The run that has the cluster now, or the last one if it has just ended."""
    return SyncRun.objects.filter(cluster=cluster, dry_run=False).latest("started_at")
