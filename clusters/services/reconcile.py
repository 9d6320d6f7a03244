"""Make one cluster equal to what the database says. Level-triggered: run it again at any time, from any worker."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog
from django.utils import timezone

from clusters.diff import Change, diff
from clusters.errors import ClusterChanged, ClusterError, ClusterRefused, TransientClusterError
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import NAMESPACE, ref_of
from clusters.models import Cluster, ClusterState, SyncRun
from clusters.order import in_safe_order
from clusters.ports import ClusterGateway, DesiredState, Manifest
from clusters.services import runs
from clusters.services.drift import record_drift
from clusters.services.estate import pause
from clusters.services.writing import foresee, write
from clusters.sources import desired_state
from portal.core.actors import SYSTEM, Actor
from portal.core.errors import Conflict as StateConflict

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster found: the changes in safe order, and the state they lead to."""

    state: DesiredState
    generation: int
    listed: int
    changes: list[Change]


def reconcile(cluster: Cluster, *, actor: Actor = SYSTEM, trigger: str = "sweep", dry_run: bool = False) -> SyncRun:
    """One attempt; returns its run. While another worker is at it, returns that worker's run and does nothing.

    1. claim the cluster's single live run
    2. make sure that it is still the same cluster behind the address
    3. list what is ours, then ask the sources what should be there, and compare
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
        _attempt(run, gateway_for(cluster))
    except runs.RunLost:
        log.warning("reconcile.lost", cluster=cluster.name)
    except ClusterError as error:
        runs.finish(run, error_code=error.code, error=error.message)
        if isinstance(error, TransientClusterError):
            raise
    except Exception as error:
        runs.finish(run, error_code="unexpected", error=f"{type(error).__name__}")
        raise
    run.refresh_from_db()
    return run


def _attempt(run: SyncRun, gateway: ClusterGateway) -> None:
    _recognize(run.cluster, gateway)
    look = _look(run, gateway)
    run.generation, run.listed = look.generation, look.listed
    remaining = (foresee if run.dry_run else write)(run, gateway, look.changes)
    runs.show_life(run)
    record_drift(run.cluster, remaining, levels=look.state.levels, at=timezone.now())
    runs.finish(run)


def _recognize(cluster: Cluster, gateway: ClusterGateway) -> None:
    """A cluster is known by the uid of its kube-system namespace. Another one at its address is never written to."""
    try:
        uid, version = gateway.identity()
    except ClusterRefused as error:
        pause(cluster=cluster, reason=f"The cluster refuses Rung: {error.message}"[:500], actor=SYSTEM)
        raise
    if cluster.uid and uid != cluster.uid:
        reason = (
            "Another cluster answers at this address: its kube-system namespace has another uid. Adopt it to go on."
        )
        pause(cluster=cluster, reason=reason, actor=SYSTEM)
        raise ClusterChanged(reason)
    if (cluster.uid, cluster.version) != (uid, version):
        Cluster.objects.filter(pk=cluster.pk).update(uid=uid, version=version)
        cluster.uid, cluster.version = uid, version


def _look(run: SyncRun, gateway: ClusterGateway) -> Look:
    """Observed before desired: what a later generation has just made is then always wanted, never extra."""
    flavour = flavour_for(run.cluster.flavour)
    observed: list[Manifest] = []
    for kind in flavour.kinds():
        runs.show_life(run)
        observed += gateway.list(kind)[0]
    generation = Cluster.objects.values_list("generation", flat=True).get(pk=run.cluster_id)
    state = desired_state(run.cluster)
    wanted = list(flavour.objects_for(state))
    foreign = list(_in_the_way(gateway, observed, wanted))
    return Look(state, generation, len(observed), in_safe_order(diff([*observed, *foreign], wanted)))


def _in_the_way(
    gateway: ClusterGateway, observed: Iterable[Manifest], wanted: Iterable[Manifest]
) -> Iterator[Manifest]:
    """Foreign objects that hold a wanted name. What would stand in a namespace that is not there cannot exist."""
    ours = {ref_of(manifest) for manifest in observed}
    spaces = {ref.name for ref in ours if ref.kind == NAMESPACE}
    for ref in map(ref_of, wanted):
        if ref not in ours and ref.namespace in {"", *spaces} and (found := gateway.get(ref)):
            yield found
