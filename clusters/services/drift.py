"""What differs between cluster and database at the last look, one row per object. Differences are values until here."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from clusters.diff import Change, Conflict, Create, Delete, Fenced
from clusters.models import Cluster, Drift, DriftKind, ObservedPod
from clusters.ports import ObjectRef, PriorityLevel

LIVE_PHASES = ("Pending", "Running")


@transaction.atomic
def record_drift(
    cluster: Cluster, changes: Iterable[Change], *, levels: Sequence[PriorityLevel], at: datetime
) -> list[Drift]:
    """Rewrite the cluster's drift rows: what still differs, and pods whose integer is not their class's any more."""
    rows = [*_rows(cluster, changes, at), *_stale(cluster, levels, at)]
    Drift.objects.filter(cluster=cluster).delete()
    return Drift.objects.bulk_create(rows, batch_size=500)


def stale_pods(cluster: Cluster, levels: Sequence[PriorityLevel]) -> Iterator[tuple[ObservedPod, int]]:
    """Living pods whose priority differs from their class's value, with that value. They keep it until recreated."""
    values = {level.name: level.value for level in levels}
    differs = Q()
    for name, value in values.items():
        differs |= Q(priority_class=name) & ~Q(priority=value)
    if differs:
        pods = ObservedPod.objects.filter(differs, cluster=cluster, gone_at=None, phase__in=LIVE_PHASES)
        yield from ((pod, values[pod.priority_class]) for pod in pods.order_by("namespace", "name", "-created_at"))


def _stale(cluster: Cluster, levels: Sequence[PriorityLevel], at: datetime) -> Iterator[Drift]:
    seen: set[tuple[str, str]] = set()
    for pod, value in stale_pods(cluster, levels):
        if (pod.namespace, pod.name) in seen:
            continue
        seen.add((pod.namespace, pod.name))
        yield Drift(
            cluster=cluster,
            category=DriftKind.STALE,
            kind="Pod",
            namespace=pod.namespace,
            name=pod.name,
            message=f"Runs with {pod.priority} of class {pod.priority_class}, which is {value} for new pods.",
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
        seen_at=at,
    )


def _category(change: Change) -> tuple[DriftKind, str]:
    match change:
        case Create():
            return DriftKind.MISSING, "Missing in the cluster."
        case Delete():
            return DriftKind.EXTRA, "Carries our label, but nothing wants it."
        case Conflict(reason=reason):
            return DriftKind.CONFLICT, reason
        case Fenced():
            return DriftKind.CONFLICT, "The cluster holds a later generation than the database."
        case _:
            fields = ", ".join(each.path for each in change.changes[:5]) or "content written by an older version"
            return DriftKind.CHANGED, f"Differs: {fields}"
