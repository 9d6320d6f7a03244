"""Record differences between cluster and database; repair one, or adopt a foreign object."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Q

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.inventory.selectors import names_of
from clusters.inventory.services import dirty_owners, workload_hooks
from clusters.inventory.services.dirty_owners import notify_dry_run, notify_sync
from clusters.inventory.services.inventory import paused_conflict
from clusters.ports.flavour import PriorityClassSpec
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import is_managed, owner_of
from clusters.sync.models import Adoption, Drift, DriftKind
from clusters.sync.rules.changes import body_of, scheduling_changes
from clusters.sync.rules.diff import Change, Create, Delete, Fenced, NameConflict, Replace
from clusters.watch.models import ObservedPod
from portal.audit.services import record
from portal.kit.errors import Conflict as StateConflict
from portal.kit.security.actors import Actor

NAMED: Final = 20
"""How many pods are named in one sentence."""
LATER: Final = (
    "The cluster has a newer generation than the database, which may have been restored from a backup. Rung does "
    "not change this object until its own generation is newer."
)


@transaction.atomic(savepoint=False)
def record_drift(
    cluster: Cluster,
    changes: Iterable[Change],
    *,
    priorities: Sequence[PriorityClassSpec],
    at: datetime,
    refs: Collection[ObjectRef] | None = None,
) -> list[Drift]:
    """Rewrite the cluster's drift rows: what still differs, pods whose integer is not their class's any more, and
    workloads' objects whose scheduling fields are not those that were written.

    With `refs` only the rows of these objects.
    """
    rows = list(_rows(cluster, changes, at))
    if refs is None:
        rows += [*_stale(cluster, priorities, at), *_held_otherwise(cluster, at)]
    known = Drift.objects.filter(cluster=cluster)
    if refs is not None:
        places = {(ref.kind.key, ref.namespace, ref.name) for ref in refs}
        named = known.filter(name__in={ref.name for ref in refs}).exclude(category=DriftKind.STALE)
        rows_of = named.order_by().values_list("pk", "kind", "namespace", "name")
        known = Drift.objects.filter(pk__in=[pk for pk, *place in rows_of if tuple(place) in places])
    known.delete()
    return Drift.objects.bulk_create(rows, batch_size=500)


def keepers(
    cluster: Cluster, changes: Iterable[Change], *, priorities: Sequence[PriorityClassSpec]
) -> dict[ObjectRef, str]:
    """For every PriorityClass about to be replaced: which living pods keep the integer they were born with."""
    replaced = {change.ref.name: change.ref for change in changes if isinstance(change, Replace)}
    if not replaced:
        return {}
    pods: dict[str, list[ObservedPod]] = {}
    for pod, _value in stale_pods(cluster, [priority for priority in priorities if priority.name in replaced]):
        pods.setdefault(pod.priority_class, []).append(pod)
    names = names_of(pod.owner_id for found in pods.values() for pod in found)
    by_class = _by_class(cluster)
    return {
        ref: _kept_by(pods.get(name, []), names) + (by_class if name in pods else "") for name, ref in replaced.items()
    }


def _by_class(cluster: Cluster) -> str:
    """What is to be said of pods with an old number where their scheduler does not go by it."""
    flavour = flavour_for(cluster.flavour)
    return f" {flavour.title} uses the value of the class, not of the pods." if flavour.traits.counts_classes else ""


def _kept_by(pods: Sequence[ObservedPod], names: Mapping[str, str]) -> str:
    if not pods:
        return "No pods keep the old value."
    described = ", ".join(_called(pod, names) for pod in pods[:NAMED])
    more = f" and {len(pods) - NAMED} more" if len(pods) > NAMED else ""
    return f"{len(pods)} pods keep their old value until they are recreated: {described}{more}."


def _called(pod: ObservedPod, names: Mapping[str, str]) -> str:
    workload = names.get(pod.owner_id)
    return f"{pod.namespace}/{pod.name} ({workload}, {pod.priority})" if workload else f"{pod.namespace}/{pod.name}"


def stale_pods(cluster: Cluster, priorities: Sequence[PriorityClassSpec]) -> Iterator[tuple[ObservedPod, int]]:
    """Living pods whose priority differs from their class's value, with that value. They keep it until recreated."""
    values = {priority.name: priority.value for priority in priorities}
    differs = Q()
    for name, value in values.items():
        differs |= Q(priority_class=name) & ~Q(priority=value)
    if differs:
        pods = ObservedPod.objects.live().filter(differs, cluster=cluster)
        yield from ((pod, values[pod.priority_class]) for pod in pods.order_by("namespace", "name", "-created_at"))


def _stale(cluster: Cluster, priorities: Sequence[PriorityClassSpec], at: datetime) -> Iterator[Drift]:
    """Nothing where the scheduler reads the class: new pods would change nothing there."""
    if flavour_for(cluster.flavour).traits.counts_classes:
        return
    seen: set[tuple[str, str]] = set()
    found = list(stale_pods(cluster, priorities))
    names = names_of(pod.owner_id for pod, _ in found)
    for pod, value in found:
        workload = names.get(pod.owner_id)
        if (pod.namespace, pod.name) in seen:
            continue
        seen.add((pod.namespace, pod.name))
        yield Drift(
            cluster=cluster,
            category=DriftKind.STALE,
            kind="Pod",
            namespace=pod.namespace,
            name=pod.name,
            message=f"Runs with value {pod.priority}; class {pod.priority_class} is {value} for new pods."
            + (f" Workload: {workload}." if workload else ""),
            changes=[["/spec/priority", pod.priority, value]],
            seen_at=at,
        )


def _held_otherwise(cluster: Cluster, at: datetime) -> Iterator[Drift]:
    for each in workload_hooks.held_otherwise(cluster):
        changes = scheduling_changes(each.held, each.written)
        if changes:
            fields = ", ".join(change.path for change in changes[:5])
            yield Drift(
                cluster=cluster,
                category=DriftKind.CHANGED,
                kind=each.kind,
                namespace=each.namespace,
                name=each.name,
                owner=each.owner,
                message=f"Differs: {fields}. Workload: {each.workload}.",
                changes=[change.as_row() for change in changes],
                seen_at=at,
            )


def _rows(cluster: Cluster, changes: Iterable[Change], at: datetime) -> Iterator[Drift]:
    """One row per object, also where its update takes two steps."""
    rows: dict[ObjectRef, Drift] = {}
    for change in changes:
        if known := rows.get(change.ref):
            known.changes += [each.as_row() for each in change.changes]
        else:
            rows[change.ref] = _row(cluster, change, at)
    yield from rows.values()


def _row(cluster: Cluster, change: Change, at: datetime) -> Drift:
    category, message = _category(change)
    return Drift(
        cluster=cluster,
        category=category,
        kind=change.ref.kind.key,
        namespace=change.ref.namespace,
        name=change.ref.name,
        message=message,
        changes=[each.as_row() for each in change.changes],
        owner=owner_of(body_of(change)),
        object_uid=_foreign_uid(change),
        seen_at=at,
    )


def _foreign_uid(change: Change) -> str:
    """Names the very object that an admin may take over; empty where there is none."""
    observed = change.observed if isinstance(change, NameConflict) else None
    return "" if observed is None or is_managed(observed) else str(observed["metadata"]["uid"])


def _category(change: Change) -> tuple[DriftKind, str]:
    match change:
        case Create():
            return DriftKind.MISSING, "Missing in the cluster."
        case Delete():
            return DriftKind.EXTRA, "Has Rung's label but is not part of the desired configuration."
        case NameConflict(reason=reason):
            return DriftKind.CONFLICT, reason
        case Fenced():
            return DriftKind.CONFLICT, LATER
        case _:
            fields = ", ".join(each.path for each in change.changes[:5]) or "content written by an older version"
            return DriftKind.CHANGED, f"Differs: {fields}"


REPAIRABLE = (DriftKind.MISSING, DriftKind.CHANGED, DriftKind.EXTRA)


@transaction.atomic
def repair(*, drift: Drift, actor: Actor) -> None:
    """Make this object as it should be, now. Raises NameConflict where a reconcile cannot, or the cluster is paused."""
    if drift.category not in REPAIRABLE:
        raise StateConflict(f"Rung cannot repair {drift.kind} {drift.name}: {drift.message}", code="not_ours")
    if not workload_hooks.apply_again(drift.owner):
        _ask_for(drift)
    record(actor, "cluster.repair", drift.cluster, detail={**_named(drift), "changes": drift.changes})


@transaction.atomic
def adopt(*, drift: Drift, uid: str, actor: Actor) -> None:
    """Let Rung take over the foreign object that was shown, known by its uid, and make it as it should be.

    Conflict when nothing foreign is there, another object is there by now, or the cluster is paused.
    """
    if drift.category != DriftKind.CONFLICT or not drift.object_uid or drift.object_uid != uid:
        raise StateConflict(f"{drift.kind} {drift.name} was replaced since this page was loaded.", code="not_adoptable")
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
        raise paused_conflict(cluster)
    record(actor, "cluster.dry_run", cluster)
    notify_dry_run(cluster.pk)


def adopted_uids(cluster: Cluster) -> frozenset[str]:
    """Foreign objects that may become ours."""
    return frozenset(Adoption.objects.filter(cluster=cluster).values_list("uid", flat=True))


def forget_adoptions(cluster: Cluster, changes: Iterable[Change], remaining: Iterable[Change]) -> None:
    """Those that have been taken over, and those whose object has been replaced since."""
    left = {change.ref for change in remaining}
    gone = [change.ref for change in changes if change.ref not in left or isinstance(change, NameConflict)]
    for ref in gone:
        Adoption.objects.filter(cluster=cluster, kind=ref.kind.key, namespace=ref.namespace, name=ref.name).delete()


def _ask_for(drift: Drift) -> None:
    """The owner's objects are looked at next, without waiting for the time of everything."""
    if not Cluster.objects.filter(pk=drift.cluster_id, state=ClusterState.ACTIVE).exists():
        raise paused_conflict(drift.cluster)
    dirty_owners.enqueue(drift.cluster_id, [drift.owner])
    notify_sync(drift.cluster_id)


def _named(drift: Drift) -> dict[str, str]:
    return {"kind": drift.kind, "namespace": drift.namespace, "name": drift.name}
