"""Sync runs: who may write to a cluster now, proof of life while it does, and the record of how it ended."""

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from random import uniform
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from clusters.diff import Change, Conflict, Create, Delete, Fenced, Replace, Update
from clusters.enqueue import wake_sync
from clusters.errors import ClusterError
from clusters.models import Cluster, SyncOutcome, SyncRun, SyncState
from clusters.services import touches
from portal.core.inserting import insert_many

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
        error_code=ABANDONED,
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


def follows_a_lost_one(run: SyncRun) -> bool:
    """The run before it was abandoned: its worker may still be there, about to write what it read."""
    earlier = SyncRun.objects.filter(cluster=run.cluster_id, dry_run=False, pk__lt=run.pk).order_by("-pk")
    return earlier.values_list("error_code", flat=True).first() == ABANDONED


class Journal:
    """What a run has done, written in batches, and its proof of life. Only `require_fresh` is for other threads."""

    def __init__(self, run: SyncRun) -> None:
        self.run = run
        self._rows: list[tuple[Any, ...]] = []
        self._shown = time.monotonic()

    def show_life(self) -> None:
        """Tell the database, with every outcome so far. Raises RunLost when the run is no longer ours."""
        self.flush()
        asked = time.monotonic()
        if not SyncRun.objects.filter(pk=self.run.pk, state=SyncState.RUNNING).update(heartbeat_at=Now()):
            raise RunLost
        self._shown = asked

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
        ref, said = change.ref, (error.message if error else message)[:2000]
        action, code = ACTIONS[type(change)], error.code if error else ""
        changes = [each.as_row() for each in change.changes]
        self._rows.append(
            (self.run.pk, action, ref.kind.key, ref.namespace, ref.name, error is None, code, said, changes)
        )

    def flush(self) -> None:
        """Write the outcomes noted since the last time."""
        rows, self._rows = self._rows, []
        insert_many(SyncOutcome, rows)


@transaction.atomic
def finish(
    run: SyncRun,
    *,
    error: ClusterError | None = None,
    error_code: str = "",
    message: str = "",
    owners: frozenset[str] | None = None,
    left: Iterable[str] = (),
) -> None:
    """Close the run and say when the next one is due. A run that was taken over is left as it stands.

    `owners`: what the run was about (None: everything); `left`: owners of what still differs. A cluster is synced to
    the generation before the first that an owner still waits for; a newer generation is due at once.

    The cluster's row is locked first, as by whoever changes what it should hold or forgets it: two that took it and
    its touches in opposite orders would wait for each other, and one of them, perhaps the admin's, would fail.
    """
    Cluster.objects.select_for_update().filter(pk=run.cluster_id).values_list("pk").first()
    code = error.code if error else error_code
    run.state = _state_of(run, code)
    run.finished_at = timezone.now()
    run.error_code, run.error = code, (error.message if error else message)[:2000]
    closed = SyncRun.objects.filter(pk=run.pk, state=SyncState.RUNNING).update(
        **{name: getattr(run, name) for name in CLOSING}
    )
    if not closed or run.dry_run:
        return
    if not code:
        touches.settle(run.cluster_id, run.generation, owners=owners, left=left)
    _plan_next(run, whole=owners is None, pause=error.retry_after if error else None)


CLOSING: Final = ("state", "finished_at", "error_code", "error", "generation", "listed", "written", "failed", "scope")


def _state_of(run: SyncRun, error_code: str) -> SyncState:
    if not run.failed and not error_code:
        return SyncState.SUCCEEDED
    return SyncState.PARTIAL if run.written else SyncState.FAILED


def _plan_next(run: SyncRun, *, whole: bool, pause: int | None) -> None:
    """The generation is compared by the very update, so that a change in between is not lost."""
    clusters = Cluster.objects.filter(pk=run.cluster_id)
    now = timezone.now()
    good = run.state == SyncState.SUCCEEDED
    failures = 0 if good else clusters.values_list("failures", flat=True).get() + 1
    if not run.error_code and whole:
        clusters.update(resync_due_at=now + RESYNC)
    if good and whole:
        clusters.update(synced_at=now)
    clusters.update(failures=min(failures, 1000))
    seen = clusters.filter(generation__lte=run.generation) if run.generation else clusters
    due = _due(now, failures, ended=bool(run.error_code), pause=pause)
    resync = clusters.values_list("resync_due_at", flat=True).get()
    if not seen.update(sync_due_at=min(due, resync) if resync and good else due):
        clusters.update(sync_due_at=now)
        wake_sync(run.cluster_id)


def _due(now: datetime, failures: int, *, ended: bool, pause: int | None) -> datetime:
    """Further and further apart while it fails, up to minutes where the whole cluster does; with jitter."""
    if not failures:
        return now + RESYNC
    longest = LONGEST_RETRY if ended else RESYNC
    doublings: int = 1 << min(failures - 1, 10)
    wait = min(RETRY * doublings, longest) * uniform(0.8, 1.2)  # noqa: S311 - jitter, no secret
    return now + max(wait, timedelta(seconds=min(pause or 0, LONGEST_RETRY.total_seconds())))


def holder(cluster: Cluster) -> SyncRun:
    """The run that has the cluster now, or the last one if it has just ended."""
    return SyncRun.objects.filter(cluster=cluster, dry_run=False).latest("started_at")
