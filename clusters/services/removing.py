"""Delete from a cluster everything that carries Rung's label: asked for by an admin, done by workers, told as it goes.

The record of the work is a sync run of its own. While it lives no other run does, each object's outcome can be read,
and neither a lost message nor a dead worker loses anything: the sweep finds a removal that shows no life, and the next
worker goes on where the last one was. Its `generation` counts these turns: who finds another number there has lost it.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from clusters.abreast import abreast
from clusters.diff import Delete
from clusters.enqueue import wake_removal
from clusters.errors import ClusterError
from clusters.gateways import gateway_for
from clusters.kinds_core import ref_of
from clusters.models import Cluster, ClusterState, SyncRun, SyncState
from clusters.ports import ClusterGateway, Kind, Manifest, ObjectRef
from clusters.services import runs
from clusters.services.estate import pause
from clusters.services.leaving import forget, managed_objects, refuse_in_use
from clusters.services.runs import Journal, RunLost
from clusters.services.writing import threads_of
from portal.audit.denials import verb
from portal.audit.services import record
from portal.core.actors import SYSTEM, Actor
from portal.core.errors import Conflict

TRIGGER: Final = "removal"
SILENT: Final = timedelta(seconds=20)
"""How long a removal may show no life before another worker takes it."""
TURN: Final = 200.0
"""Seconds of one worker's turn; what is left then is the next one's."""
STUCK: Final = 120.0
"""Seconds without any object going after which what is still ending is left to end by itself."""
PAUSE: Final = 2.0
BEAT: Final = 1.0
NAMED: Final = 3


class Unpaused(Exception):
    """Somebody lets Rung work with the cluster again: nothing more is deleted."""


def request_removal(*, cluster: Cluster, actor: Actor) -> SyncRun:
    """Have a worker delete everything of Rung's there. Conflict unless it is paused, and while another run lives."""
    with verb(actor=actor, action="cluster.remove_traces", entity_type="cluster", entity_name=cluster.name):
        return _begin(Cluster.objects.select_for_update().get(pk=cluster.pk), actor)


def leave_cluster(*, cluster: Cluster, actor: Actor, force: bool = False) -> bool:
    """Forget the cluster if nothing of Rung's is left there, or by force; else pause it and have a worker delete that.

    True: it is forgotten. Conflict as above, and while departments, projects or records name it.
    """
    with verb(actor=actor, action="cluster.forget", entity_type="cluster", entity_name=cluster.name):
        row = Cluster.objects.select_for_update().get(pk=cluster.pk)
        if force or _is_emptied(row):
            forget(row, actor)
            return True
        refuse_in_use(row)
        pause(cluster=row, reason="It is being left.", actor=actor)
        removal = removal_of(row)
        if removal is None or removal.state != SyncState.RUNNING:
            _begin(row, actor)
        return False


def _is_emptied(row: Cluster) -> bool:
    """Did a removal succeed, and has Rung made nothing there since?"""
    latest = SyncRun.objects.filter(cluster=row, dry_run=False).first()
    emptied = latest is not None and latest.trigger == TRIGGER and latest.state == SyncState.SUCCEEDED
    return emptied and row.state == ClusterState.PAUSED


def _begin(row: Cluster, actor: Actor) -> SyncRun:
    if row.state != ClusterState.PAUSED:
        raise Conflict(f"Pause {row.name} first: Rung would make everything anew.", code="not_paused")
    run = runs.claim(row, trigger=TRIGGER, dry_run=False)
    if run is None:
        raise Conflict(f"A run is at work in {row.name}: ask again in a moment.", code="run_under_way")
    record(actor, "cluster.remove_traces", row, detail={"run": run.pk})
    wake_removal(row.pk)
    return run


def removal_of(cluster: Cluster) -> SyncRun | None:
    """The latest one, under way or ended."""
    return SyncRun.objects.filter(cluster=cluster, trigger=TRIGGER).first()


def silent_removals() -> list[str]:
    """Clusters whose removal waits for a worker."""
    waiting = _live().filter(heartbeat_at__lt=Now() - SILENT).values_list("cluster_id", flat=True)
    return [str(each) for each in waiting]


def carry_on(cluster: Cluster) -> SyncRun | None:
    """One worker's turn at the cluster's removal. None: there is none, or another worker is at it.

    1. take the turn
    2. delete what is there, kind after kind; then again, until nothing is left or what is left does not go
    3. close the run, or leave the rest to the next turn
    """
    run = _taken(cluster)
    if run is None:
        return None
    turn = _Turn(Journal(run), gateway_for(cluster))
    try:
        turn.work(until=time.monotonic() + TURN)
    except RunLost:
        pass  # somebody else's by now
    except Unpaused:
        turn.close("cluster_unpaused", "The cluster was let go on: what is still there stays.")
    except ClusterError as error:
        turn.close(error.code, error.message)
    except Exception as error:  # a fault of our own: the run must not stay open, and the fault must not stay hidden
        turn.close("unexpected", type(error).__name__)
        raise
    run.refresh_from_db()
    return run


def _live() -> QuerySet[SyncRun]:
    return SyncRun.objects.filter(trigger=TRIGGER, state=SyncState.RUNNING)


def _taken(cluster: Cluster) -> SyncRun | None:
    free = _live().filter(cluster=cluster).filter(Q(generation=0) | Q(heartbeat_at__lt=Now() - SILENT))
    if not free.update(generation=F("generation") + 1, heartbeat_at=Now()):
        return None
    return _live().select_related("cluster").filter(cluster=cluster).first()


@dataclass(slots=True)
class _Turn:
    """What one worker does. Deletions run side by side; everything else is in the worker's own thread."""

    journal: Journal
    gateway: ClusterGateway
    deleted: Counter[str] = field(default_factory=Counter)
    refused: dict[ObjectRef, str] = field(default_factory=dict)
    _told: float = field(default_factory=time.monotonic)

    def work(self, *, until: float) -> None:
        """Rounds over everything there. Raises RunLost, Unpaused, ClusterError."""
        moved, before = time.monotonic(), -1
        while time.monotonic() < until:
            ending = self._round()
            self._tell()
            if not ending:
                return self.close()
            moved = moved if ending == before else time.monotonic()
            before = ending
            if time.monotonic() - moved > STUCK:
                return self.close("still_ending", f"{ending} objects are still ending: what holds them is not Rung's.")
            time.sleep(PAUSE)
        self._hand_over()
        return None

    def close(self, code: str = "", message: str = "") -> None:
        """The end of it, with one audit record of what went."""
        run = self.journal.run
        self.journal.flush()
        names = [f"{ref.kind.kind} {ref.namespace}/{ref.name}: {said}" for ref, said in self.refused.items()]
        if self.refused and not code:
            code, message = "refused", "; ".join(names[:NAMED])
        state = SyncState.SUCCEEDED if not code else SyncState.PARTIAL if run.written else SyncState.FAILED
        with transaction.atomic():
            ended = {"state": state, "finished_at": Now(), "error_code": code, "error": message[:2000]}
            if self._mine().update(**ended, **self._counts()):
                detail = {"deleted": dict(self.deleted), "refused": names[:NAMED], "code": code}
                record(SYSTEM, "cluster.traces_removed", run.cluster, detail=detail)

    def _round(self) -> int:
        """How many objects are still there and going, or were just told to."""
        ending = 0
        for kind, found in managed_objects(self.gateway, self.journal.run.cluster):
            going = [each for each in found if "deletionTimestamp" in each["metadata"]]
            fresh = [each for each in found if each not in going and ref_of(each) not in self.refused]
            ending += len(going) + self._delete(kind, fresh)
        return ending

    def _delete(self, kind: Kind, manifests: list[Manifest]) -> int:
        run, threads = self.journal.run, threads_of(self.gateway)
        run.listed += len(manifests)
        gone = 0
        for manifest, error in abreast(manifests, self._one, threads=threads, idle=self._keep_up):
            self.journal.note(Delete(ref_of(manifest), manifest), error)
            if error is None:
                run.written += 1
                gone += 1
                self.deleted[kind.kind] += 1
            else:
                run.failed += 1
                self.refused[ref_of(manifest)] = error.message[:300]
            self._keep_up()
        return gone

    def _one(self, manifest: Manifest) -> ClusterError | None:
        """In any thread."""
        self.journal.require_fresh()
        try:
            self.gateway.delete(ref_of(manifest), uid=manifest["metadata"]["uid"])
        except ClusterError as error:
            if error.transient:
                raise
            return error
        return None

    def _keep_up(self) -> None:
        if time.monotonic() - self._told >= BEAT:
            self._tell()

    def _tell(self) -> None:
        """Outcomes, counts and proof of life; and whether it is still wanted."""
        self.journal.show_life()
        if not self._mine().update(**self._counts()):
            raise RunLost
        if not Cluster.objects.filter(pk=self.journal.run.cluster_id, state=ClusterState.PAUSED).exists():
            raise Unpaused
        self._told = time.monotonic()

    def _hand_over(self) -> None:
        self._mine().update(heartbeat_at=Now() - SILENT, **self._counts())
        wake_removal(self.journal.run.cluster_id)

    def _mine(self) -> QuerySet[SyncRun]:
        return _live().filter(pk=self.journal.run.pk, generation=self.journal.run.generation)

    def _counts(self) -> dict[str, int]:
        run = self.journal.run
        return {"listed": run.listed, "written": run.written, "failed": run.failed}
