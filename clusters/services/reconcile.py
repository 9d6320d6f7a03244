"""Make one cluster equal to what the database says. Level-triggered: run it again at any time, from any worker."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NoReturn

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.diff import Change
from clusters.errors import ClusterChanged, ClusterError, ClusterRefused, TransientClusterError
from clusters.gateways import gateway_for
from clusters.models import Cluster, ClusterState, SyncRun
from clusters.order import body_of
from clusters.ownership import owner_of
from clusters.ports import ClusterGateway, ObjectRef
from clusters.services import circuit_breaker, former, runs
from clusters.services.configured import note_configured
from clusters.services.drift import keepers, record_drift
from clusters.services.estate import pause
from clusters.services.looking import Look, extras, look_at
from clusters.services.near import Glimpse, glimpse
from clusters.services.repairs import forget_adoptions
from clusters.services.runs import Journal
from clusters.services.served import note_served
from clusters.services.writing import Pen, foresee
from portal.core.actors import SYSTEM, Actor
from portal.core.errors import Conflict as StateConflict

log = structlog.get_logger(__name__)

LONGEST_UID: Final = 64
LONGEST_VERSION: Final = 40
CHANGED: Final = (
    "Another cluster answers at this address: its kube-system namespace has another uid. Adopt it to go on."
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
    run = runs.claim(cluster, trigger=trigger, dry_run=dry_run)
    if run is None:
        return runs.holder(cluster)
    log.info("reconcile.started", cluster=cluster.name, trigger=trigger, dry_run=dry_run, actor=actor.name)
    try:
        _attempt(Journal(run), gateway_for(cluster))
        circuit_breaker.reset(cluster)
    except runs.RunLost:
        log.warning("reconcile.lost", cluster=cluster.name)
        run.refresh_from_db()
    except ClusterError as error:
        circuit_breaker.record(cluster, error)
        runs.finish(run, error=error)
        if isinstance(error, TransientClusterError):
            raise
    except Exception as error:  # a fault of our own: the run must not stay open, and the fault must not stay hidden
        runs.finish(run, error_code="unexpected", message=type(error).__name__)
        raise
    return run


def _attempt(journal: Journal, gateway: ClusterGateway) -> None:
    try:
        _make_equal(journal, gateway)
    finally:
        journal.flush()


def _make_equal(journal: Journal, gateway: ClusterGateway) -> None:
    run, cluster = journal.run, journal.run.cluster
    seen = glimpse(journal, gateway)
    _recognize(cluster, seen)
    look = look_at(journal, gateway, seen)
    if look.owners is None:
        note_served(cluster, gateway)
        note_configured(cluster, gateway)
    run.generation, run.listed, run.scope = look.generation, look.listed, "\n".join(sorted(look.owners or ()))
    remarks = keepers(cluster, look.changes, levels=look.state.levels)
    late: Sequence[Change] = ()
    if run.dry_run:
        remaining = foresee(journal, gateway, look.changes, remarks, retired=look.retired)
    else:
        doubt = partial(_recognize, cluster, gateway)
        pen = Pen(journal, gateway, doubt, remarks, retired=look.retired)
        remaining = pen.write(look.changes)
        late = extras(journal, gateway, look)
        pen.write(late)
        if look.adopted:
            forget_adoptions(cluster, look.changes, remaining)
    if look.owners is None and not run.dry_run:
        journal.show_life()
        former.settle(cluster, left=look.left)
    _close(journal, look, remaining, refs=None if look.owners is None else look.asked | {each.ref for each in late})


@transaction.atomic
def _close(journal: Journal, look: Look, remaining: Sequence[Change], refs: Collection[ObjectRef] | None) -> None:
    """What was done, what still differs and when to look again are told together. Raises RunLost: nothing of it is."""
    run = journal.run
    if not runs.finish(run, owners=look.owners, left={owner_of(body_of(change)) for change in remaining}):
        raise runs.RunLost
    record_drift(run.cluster, remaining, levels=look.state.levels, at=timezone.now(), refs=refs)
    journal.flush()


def _recognize(cluster: Cluster, asked: ClusterGateway | Glimpse) -> None:
    """A cluster is known by the uid of its kube-system namespace. Another one at its address is never written to.

    A credential or right that the cluster does not accept now is tried again by itself: an API server that has just
    started refuses everybody, and an admin may be replacing a role.
    """
    try:
        uid, version = asked.identity()
    except ClusterRefused as error:
        if circuit_breaker.trips(error):
            raise
        pause(cluster=cluster, reason=f"The cluster refuses Rung: {error.message}"[:500], actor=SYSTEM)
        raise
    if cluster.uid and uid != cluster.uid:
        _leave_alone(cluster, CHANGED)
    if (cluster.uid, cluster.version) != (uid, version):
        _take(cluster, uid, version)


def _take(cluster: Cluster, uid: str, version: str) -> None:
    """Believe an identity only if it can be one, and if no other row is that cluster: two would write against each."""
    if not uid or len(uid) > LONGEST_UID:
        _leave_alone(cluster, "The uid of its kube-system namespace is none: no Kubernetes API server answers so.")
    version = version[:LONGEST_VERSION]
    try:
        with transaction.atomic():
            Cluster.objects.filter(pk=cluster.pk).update(uid=uid, version=version)
    except IntegrityError:
        known = Cluster.objects.filter(uid=uid).exclude(pk=cluster.pk).values_list("name", flat=True).first()
        _leave_alone(cluster, f"This is the cluster {known}, which is connected already. Leave one of the two.")
    cluster.uid, cluster.version = uid, version


def _leave_alone(cluster: Cluster, reason: str) -> NoReturn:
    pause(cluster=cluster, reason=reason, actor=SYSTEM)
    raise ClusterChanged(reason)
