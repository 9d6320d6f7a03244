"""What differs between cluster and database at the last look, one row per object. Differences are values until here."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Q

from clusters.diff import Change, Conflict, Create, Delete, Fenced, Replace
from clusters.flavours import flavour_for
from clusters.models import Cluster, Drift, DriftKind, ObservedPod
from clusters.naming import names_of
from clusters.order import body_of
from clusters.ownership import is_managed, owner_of
from clusters.ports import ObjectRef, PriorityLevel

NAMED: Final = 20
"""How many pods are named in one sentence."""
LATER: Final = (
    "The cluster holds a later generation than the database, which may have been put back to an older state: "
    "Rung does not write this object until its own generation has passed that one."
)


@transaction.atomic(savepoint=False)
def record_drift(
    cluster: Cluster,
    changes: Iterable[Change],
    *,
    levels: Sequence[PriorityLevel],
    at: datetime,
    refs: Collection[ObjectRef] | None = None,
) -> list[Drift]:
    """Rewrite the cluster's drift rows: what still differs, and pods whose integer is not their class's any more.

    With `refs` only the rows of these objects.
    """
    rows = [*_rows(cluster, changes, at), *(_stale(cluster, levels, at) if refs is None else ())]
    known = Drift.objects.filter(cluster=cluster)
    if refs is not None:
        places = {(ref.kind.key, ref.namespace, ref.name) for ref in refs}
        named = known.filter(name__in={ref.name for ref in refs}).exclude(category=DriftKind.STALE)
        rows_of = named.order_by().values_list("pk", "kind", "namespace", "name")
        known = Drift.objects.filter(pk__in=[pk for pk, *place in rows_of if tuple(place) in places])
    known.delete()
    return Drift.objects.bulk_create(rows, batch_size=500)


def keepers(cluster: Cluster, changes: Iterable[Change], *, levels: Sequence[PriorityLevel]) -> dict[ObjectRef, str]:
    """For every PriorityClass about to be replaced: which living pods keep the integer they were born with."""
    replaced = {change.ref.name: change.ref for change in changes if isinstance(change, Replace)}
    if not replaced:
        return {}
    pods: dict[str, list[ObservedPod]] = {}
    for pod, _value in stale_pods(cluster, [level for level in levels if level.name in replaced]):
        pods.setdefault(pod.priority_class, []).append(pod)
    names = names_of(pod.owner_id for found in pods.values() for pod in found)
    said = _by_class(cluster)
    return {ref: _kept_by(pods.get(name, []), names) + (said if name in pods else "") for name, ref in replaced.items()}


def _by_class(cluster: Cluster) -> str:
    """What is to be said of pods with an old number where their scheduler does not go by it."""
    flavour = flavour_for(cluster.flavour)
    return f" {flavour.title} goes by the class, whatever its pods carry." if flavour.traits.counts_classes else ""


def _kept_by(pods: Sequence[ObservedPod], names: Mapping[str, str]) -> str:
    if not pods:
        return "No living pod keeps the old integer."
    told = ", ".join(_called(pod, names) for pod in pods[:NAMED])
    more = f" and {len(pods) - NAMED} more" if len(pods) > NAMED else ""
    return f"{len(pods)} living pods keep the integer they have until they are made anew: {told}{more}."


def _called(pod: ObservedPod, names: Mapping[str, str]) -> str:
    workload = names.get(pod.owner_id)
    return f"{pod.namespace}/{pod.name} ({workload}, {pod.priority})" if workload else f"{pod.namespace}/{pod.name}"


def stale_pods(cluster: Cluster, levels: Sequence[PriorityLevel]) -> Iterator[tuple[ObservedPod, int]]:
    """Living pods whose priority differs from their class's value, with that value. They keep it until recreated."""
    values = {level.name: level.value for level in levels}
    differs = Q()
    for name, value in values.items():
        differs |= Q(priority_class=name) & ~Q(priority=value)
    if differs:
        pods = ObservedPod.objects.live().filter(differs, cluster=cluster)
        yield from ((pod, values[pod.priority_class]) for pod in pods.order_by("namespace", "name", "-created_at"))


def _stale(cluster: Cluster, levels: Sequence[PriorityLevel], at: datetime) -> Iterator[Drift]:
    seen: set[tuple[str, str]] = set()
    found = list(stale_pods(cluster, levels))
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
            message=f"Runs with {pod.priority} of class {pod.priority_class}, which is {value} for new pods."
            + (f" Workload: {workload}." if workload else "")
            + _by_class(cluster),
            changes=[["/spec/priority", pod.priority, value]],
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
    observed = change.observed if isinstance(change, Conflict) else None
    return "" if observed is None or is_managed(observed) else str(observed["metadata"]["uid"])


def _category(change: Change) -> tuple[DriftKind, str]:
    match change:
        case Create():
            return DriftKind.MISSING, "Missing in the cluster."
        case Delete():
            return DriftKind.EXTRA, "Carries our label, but nothing wants it."
        case Conflict(reason=reason):
            return DriftKind.CONFLICT, reason
        case Fenced():
            return DriftKind.CONFLICT, LATER
        case _:
            fields = ", ".join(each.path for each in change.changes[:5]) or "content written by an older version"
            return DriftKind.CHANGED, f"Differs: {fields}"
