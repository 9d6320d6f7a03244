"""The dictionary and a type's defaults as values for the pure resolution in `scheduling.priority`."""

from collections.abc import Mapping
from typing import Final

from portal.core.marks import Kept
from scheduling.priority import Dictionary, Effective, Level, Preemptibility, Source, TypeDefaults
from workloads.models import Priority, Workload, WorkloadType


def level_of(priority: Priority) -> Level:
    """One entry as a value."""
    alias = priority.alias_of.name if priority.alias_of else None
    return Level(priority.name, priority.value, priority.preemption_policy, alias)


_rows: Final = Kept[Mapping[str, Priority]]("rules")


def current_rows() -> Mapping[str, Priority]:
    """Every entry that may be named, by name: retired ones may not."""
    return _rows.of("", _read_rows)


def _read_rows() -> Mapping[str, Priority]:
    rows = {row.pk: row for row in Priority.objects.order_by()}
    for row in rows.values():
        if row.alias_of_id is not None:
            row.alias_of = rows[row.alias_of_id]
    return {row.name: row for row in rows.values() if row.retired_at is None}


_dictionary: Final = Kept[Dictionary]("rules")


def current_dictionary() -> Dictionary:
    """Every entry that may be named, as values."""
    return _dictionary.of("", lambda: Dictionary(level_of(row) for row in current_rows().values()))


def defaults_of(type_: WorkloadType) -> TypeDefaults:
    """What the type brings along. An empty preemptibility is none."""
    given = Preemptibility(type_.preemptibility) if type_.preemptibility else None
    return TypeDefaults(type_.name, type_.priority.name if type_.priority else None, given, type_.fixed)


def effective_as(workload: Workload, level: Level, preemptibility: Preemptibility) -> Effective:
    """A stored workload's pair as it would be with another level: for what-ifs."""
    return Effective(level, Source(workload.priority_source), preemptibility, Source.THRESHOLD)
