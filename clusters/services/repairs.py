"""What an admin asks for one difference: repair it now, or take a foreign object over. A worker then does it."""

from collections.abc import Iterable

from django.db import transaction

from clusters.diff import Change, Conflict
from clusters.enqueue import wake_dry_run, wake_sync
from clusters.models import Adoption, Cluster, ClusterState, Drift, DriftKind
from clusters.services import touches
from clusters.services.estate import refusal_while_paused
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict as StateConflict

REPAIRABLE = (DriftKind.MISSING, DriftKind.CHANGED, DriftKind.EXTRA)


@transaction.atomic
def repair(*, drift: Drift, actor: Actor) -> None:
    """Make this object as it should be, now. Conflict where a reconcile cannot, or the cluster is paused."""
    if drift.category not in REPAIRABLE:
        raise StateConflict(f"{drift.kind} {drift.name} is not Rung's to repair: {drift.message}", code="not_ours")
    _ask_for(drift)
    record(actor, "cluster.repair", drift.cluster, detail={**_named(drift), "changes": drift.changes})


@transaction.atomic
def adopt(*, drift: Drift, uid: str, actor: Actor) -> None:
    """Let Rung take over the foreign object that was shown, known by its uid, and make it as it should be.

    Conflict when nothing foreign is there, another object is there by now, or the cluster is paused.
    """
    if drift.category != DriftKind.CONFLICT or not drift.object_uid or drift.object_uid != uid:
        raise StateConflict(f"{drift.kind} {drift.name} is not the object that was shown.", code="not_adoptable")
    _ask_for(drift)
    Adoption.objects.get_or_create(
        cluster=drift.cluster,
        uid=uid,
        defaults={
            "kind": drift.kind,
            "namespace": drift.namespace,
            "name": drift.name,
            "created_by": actor.name,
        },
    )
    record(actor, "cluster.adopt", drift.cluster, detail={**_named(drift), "uid": uid, "changes": drift.changes})


@transaction.atomic
def request_dry_run(*, cluster: Cluster, actor: Actor) -> None:
    """Ask what a reconcile would do; its run says so per object, and nothing is written. Conflict when paused."""
    if cluster.state != ClusterState.ACTIVE:
        raise refusal_while_paused(cluster)
    record(actor, "cluster.dry_run", cluster)
    wake_dry_run(cluster.pk)


def adopted_uids(cluster: Cluster) -> frozenset[str]:
    """Foreign objects that may become ours."""
    return frozenset(Adoption.objects.filter(cluster=cluster).values_list("uid", flat=True))


def forget_adoptions(cluster: Cluster, changes: Iterable[Change], remaining: Iterable[Change]) -> None:
    """Those that have been taken over, and those whose object has been replaced by another one meanwhile."""
    left = {change.ref for change in remaining}
    gone = [change.ref for change in changes if change.ref not in left or isinstance(change, Conflict)]
    for ref in gone:
        Adoption.objects.filter(cluster=cluster, kind=ref.kind.key, namespace=ref.namespace, name=ref.name).delete()


def _ask_for(drift: Drift) -> None:
    """The owner's objects are looked at next, without waiting for the time of everything."""
    if not Cluster.objects.filter(pk=drift.cluster_id, state=ClusterState.ACTIVE).exists():
        raise refusal_while_paused(drift.cluster)
    touches.call_for(drift.cluster_id, [drift.owner])
    wake_sync(drift.cluster_id)


def _named(drift: Drift) -> dict[str, str]:
    return {"kind": drift.kind, "namespace": drift.namespace, "name": drift.name}
