"""What the dictionary wants of every cluster: a PriorityClass per entry, also aliases and retired ones in use."""

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Q

from clusters.models import Cluster
from clusters.naming import Home
from clusters.ports import DesiredState, PriorityLevel
from clusters.sources import EVERYBODY
from workloads.drafts import Entry
from workloads.models import Priority, Workload
from workloads.owners import workload_id, workload_ids

CHUNK = 1000  # ids in one query
HOME = ("pk", "project__cluster_id", "project__namespace")


def desired_state(_cluster: Cluster, *, owner: str = EVERYBODY) -> DesiredState:
    """The same levels on every cluster, weakest first; all of them for any owner, whose quotas name classes."""
    live = Workload.objects.filter(deleted_at__isnull=True).values("priority")
    rows = Priority.objects.filter(Q(retired_at__isnull=True) | Q(pk__in=live))
    return DesiredState(levels=tuple(_level(row) for row in rows))


def names_of(owner_ids: frozenset[str]) -> dict[str, str]:
    """Names of the workloads among these ids."""
    known = {text for text in owner_ids if _is_uuid(text)}
    rows = Workload.objects.filter(pk__in=known).values_list("pk", "name")
    return {str(key): name for key, name in rows}


def homes_of(owner_ids: frozenset[str]) -> dict[str, Home]:
    """Where the objects of the workloads among these ids belong, deleted ones too."""
    keys = workload_ids(owner_ids)
    parts = (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))
    rows = (Workload.objects.filter(pk__in=part).values_list(*HOME) for part in parts)
    homes = {key: (cluster, namespace) for part in rows for key, cluster, namespace in part}
    return {text: homes[key] for text in owner_ids if (key := workload_id(text)) in homes}


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _level(row: Priority) -> PriorityLevel:
    return PriorityLevel(
        name=row.name,
        value=row.value,
        preemption_policy=row.preemption_policy,
        description=row.description,
        owner=f"priority.{row.pk}",
        generation=row.generation,
    )


def levels_of(entries: Iterable[Entry], known: Iterable[PriorityLevel]) -> tuple[PriorityLevel, ...]:
    """A draft's entries as levels, with owner and generation of the rows that are there already: for what-ifs."""
    rows = {level.name: level for level in known}
    return tuple(
        PriorityLevel(
            name=entry.name,
            value=entry.value,
            preemption_policy=entry.preemption_policy,
            description=entry.description,
            owner=rows[entry.name].owner if entry.name in rows else "priority.new",
            generation=rows[entry.name].generation if entry.name in rows else 1,
        )
        for entry in entries
        if not entry.retired or entry.name in rows
    )
