"""Disconnect a cluster: delete Rung's objects there, then forget the cluster.

The record of the work is a sync run of its own. While it lives no other run does, each object's outcome can be read,
and neither a lost message nor a dead worker loses anything: the sweep finds a removal that shows no life, and the
next worker goes on where the last one was. Its `generation` counts these turns: who finds another number there has
lost it.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import F, ProtectedError, Q, QuerySet
from django.db.models.deletion import Collector
from django.db.models.functions import Now

from clusters.connection.services.gateways import gateway_for
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.services.dirty_owners import notify_removal
from clusters.inventory.services.inventory import pause
from clusters.ports.gateway import ClusterError, ClusterGateway, Kind, Manifest, NotServed, ObjectRef
from clusters.ports.objects import NAMESPACE, WORKLOAD_KINDS, ref_of
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.rules.diff import Delete
from clusters.sync.services import sync_runs
from clusters.sync.services.applier import thread_limit_of
from clusters.sync.services.scheduler_migration import retired_in
from clusters.sync.services.sync_runs import RunLost, RunRecorder
from portal.audit.services import audited_transaction, record
from portal.kit.errors import Conflict
from portal.kit.messaging.concurrency import map_concurrently
from portal.kit.security.actors import SYSTEM, Actor

MOST_REFERENCES: Final = 20


def managed_counts(cluster: Cluster) -> dict[str, int]:
    """How many objects of each kind Rung holds there, as the cluster says now. Raises ClusterError."""
    counts: dict[str, int] = {}
    for kind, found in managed_objects(gateway_for(cluster), cluster):
        if found:
            counts[kind.kind] = counts.get(kind.kind, 0) + len(found)
    return counts


def forget_cluster(*, cluster: Cluster, actor: Actor) -> None:
    """Drop the cluster with its credential and everything observed. What Rung made there stays as it is.

    Conflict, with the list, while departments, projects or records name it.
    """
    with audited_transaction(actor=actor, action="cluster.forget", entity_type="cluster", entity_name=cluster.name):
        forget(Cluster.objects.select_for_update().get(pk=cluster.pk), actor)


def forget(row: Cluster, actor: Actor) -> None:
    """The same for a cluster that the caller has locked, in its transaction."""
    record(actor, "cluster.forget", row, detail={"flavour": row.flavour, "backend": row.backend, "uid": row.uid})
    try:
        with transaction.atomic():
            row.delete()
    except ProtectedError as error:
        raise _in_use(row, _named(error)) from None


def check_not_in_use(cluster: Cluster) -> None:
    """Conflict, with the list, while departments, projects or records name it."""
    if names := references_to(cluster):
        raise _in_use(cluster, names)


def references_to(cluster: Cluster) -> list[str]:
    """What keeps the cluster from being forgotten, as people call it; cut to a few."""
    try:
        Collector(using=DEFAULT_DB_ALIAS).collect([cluster])
    except ProtectedError as error:
        return _named(error)
    return []


def _in_use(cluster: Cluster, names: list[str]) -> Conflict:
    return Conflict(f"{cluster.name} is still in use: {'; '.join(names)}.", code="cluster_in_use")


def _named(error: ProtectedError) -> list[str]:
    rows = sorted(error.protected_objects, key=lambda row: (str(row._meta.verbose_name), row.pk))
    # The name of a quota is that of its project and pool, a query each: only what is shown is named.
    shown = sorted(f"{row._meta.verbose_name} {row}" for row in rows[:MOST_REFERENCES])
    more = len(rows) - MOST_REFERENCES
    return [*shown, *([f"and {more} more"] if more > 0 else [])]


def managed_objects(gateway: ClusterGateway, cluster: Cluster) -> Iterator[tuple[Kind, list[Manifest]]]:
    """Every object with our label by kind, in the order in which they go. What a namespace takes along is not named."""
    present = [kind for kind in flavour_for(cluster.flavour).kinds() if kind != NAMESPACE]
    own = [*present, *retired_in(cluster).kinds]
    spaces: set[str] = set()
    for kind in (*WORKLOAD_KINDS, NAMESPACE, *own):
        found = _list(gateway, kind)
        if kind == NAMESPACE:
            spaces = {each["metadata"]["name"] for each in found}
        yield kind, [each for each in found if kind not in own or each["metadata"].get("namespace", "") not in spaces]


def _list(gateway: ClusterGateway, kind: Kind) -> list[Manifest]:
    """Empty for a kind that this cluster does not serve."""
    try:
        return gateway.list(kind)[0]
    except NotServed:
        return []


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
    """The disconnect was cancelled: nothing more is deleted."""


def request_removal(*, cluster: Cluster, actor: Actor) -> SyncRun:
    """Have a worker delete everything of Rung's there. Conflict unless it is paused, and while another run lives."""
    with audited_transaction(
        actor=actor, action="cluster.remove_traces", entity_type="cluster", entity_name=cluster.name
    ):
        return _begin(Cluster.objects.select_for_update().get(pk=cluster.pk), actor)


def disconnect_cluster(*, cluster: Cluster, actor: Actor, force: bool = False) -> bool:
    """Forget the cluster if nothing of Rung's is left there, or by force; else pause it and have a worker delete that.

    True: it is forgotten. Conflict as above, and while departments, projects or records name it.
    """
    with audited_transaction(actor=actor, action="cluster.forget", entity_type="cluster", entity_name=cluster.name):
        row = Cluster.objects.select_for_update().get(pk=cluster.pk)
        if force or _is_emptied(row):
            forget(row, actor)
            return True
        check_not_in_use(row)
        pause(cluster=row, reason="Being removed.", actor=actor)
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
        raise Conflict(f"Pause {row.name} first. Otherwise Rung recreates the objects.", code="not_paused")
    run = sync_runs.claim(row, trigger=TRIGGER, dry_run=False)
    if run is None:
        raise Conflict(f"A sync run is active on {row.name}. Try again in a moment.", code="run_under_way")
    record(actor, "cluster.remove_traces", row, detail={"run": run.pk})
    notify_removal(row.pk)
    return run


def removal_of(cluster: Cluster) -> SyncRun | None:
    """The latest one, under way or ended."""
    return SyncRun.objects.filter(cluster=cluster, trigger=TRIGGER).first()


def waiting_removals() -> list[str]:
    """Clusters whose removal waits for a worker."""
    waiting = _live().filter(heartbeat_at__lt=Now() - SILENT).values_list("cluster_id", flat=True)
    return [str(each) for each in waiting]


def continue_removal(cluster: Cluster) -> SyncRun | None:
    """One worker's turn at the cluster's removal. None: there is none, or another worker is at it.

    1. take the turn
    2. delete what is there, kind after kind; then again, until nothing is left or what is left does not go
    3. close the run, or leave the rest to the next turn
    """
    run = _taken(cluster)
    if run is None:
        return None
    turn = _RemovalTurn(RunRecorder(run), gateway_for(cluster))
    try:
        turn.work(until=time.monotonic() + TURN)
    except RunLost:
        pass  # owned by another writer by now
    except Unpaused:
        turn.close("cluster_unpaused", "The cluster was resumed. The remaining objects stay.")
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
class _RemovalTurn:
    """What one worker does. Deletions run side by side; everything else is in the worker's own thread."""

    journal: RunRecorder
    gateway: ClusterGateway
    deleted: Counter[str] = field(default_factory=Counter)
    refused: dict[ObjectRef, str] = field(default_factory=dict)
    _reported: float = field(default_factory=time.monotonic)

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
                return self.close(
                    "still_ending", f"{ending} objects are still terminating, blocked by finalizers of others."
                )
            time.sleep(PAUSE)
        self._hand_over()
        return None

    def close(self, code: str = "", message: str = "") -> None:
        """The end of it, with one audit record of what went."""
        run = self.journal.run
        self.journal.flush()
        names = [f"{ref.kind.kind} {ref.namespace}/{ref.name}: {why}" for ref, why in self.refused.items()]
        if self.refused and not code:
            code, message = "refused", "; ".join(names[:NAMED])
        state = SyncState.SUCCEEDED if not code else SyncState.PARTIAL if run.written else SyncState.FAILED
        with transaction.atomic():
            ended = {"state": state, "finished_at": Now(), "error_code": code, "error": message[:2000]}
            if self._mine().update(**ended, **self._counts()):
                detail = {"deleted": dict(self.deleted), "refused": names[:NAMED], "code": code}
                record(SYSTEM, "cluster.traces_removed", run.cluster, detail=detail)

    def _round(self) -> int:
        """Number of objects whose deletion has been requested and that still exist."""
        ending = 0
        for kind, found in managed_objects(self.gateway, self.journal.run.cluster):
            going = [each for each in found if "deletionTimestamp" in each["metadata"]]
            fresh = [each for each in found if each not in going and ref_of(each) not in self.refused]
            ending += len(going) + self._delete(kind, fresh)
        return ending

    def _delete(self, kind: Kind, manifests: list[Manifest]) -> int:
        run, threads = self.journal.run, thread_limit_of(self.gateway)
        run.listed += len(manifests)
        gone = 0
        for manifest, error in map_concurrently(manifests, self._one, threads=threads, idle=self._keep_up):
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
        if time.monotonic() - self._reported >= BEAT:
            self._tell()

    def _tell(self) -> None:
        """Outcomes, counts and proof of life; and whether it is still wanted."""
        self.journal.show_life()
        if not self._mine().update(**self._counts()):
            raise RunLost
        if not Cluster.objects.filter(pk=self.journal.run.cluster_id, state=ClusterState.PAUSED).exists():
            raise Unpaused
        self._reported = time.monotonic()

    def _hand_over(self) -> None:
        self._mine().update(heartbeat_at=Now() - SILENT, **self._counts())
        notify_removal(self.journal.run.cluster_id)

    def _mine(self) -> QuerySet[SyncRun]:
        return _live().filter(pk=self.journal.run.pk, generation=self.journal.run.generation)

    def _counts(self) -> dict[str, int]:
        run = self.journal.run
        return {"listed": run.listed, "written": run.written, "failed": run.failed}
