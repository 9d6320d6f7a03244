"""The dictionary and a type's defaults as values for the pure resolution in `scheduling.priority`."""

from scheduling.priority import Dictionary, Effective, Level, Preemptibility, Source, TypeDefaults
from workloads.models import Priority, Workload, WorkloadType


def level_of(priority: Priority) -> Level:
    """One entry as a value."""
    alias = priority.alias_of.name if priority.alias_of else None
    return Level(priority.name, priority.value, priority.preemption_policy, alias)


def current_dictionary() -> Dictionary:
    """Every entry that may be named: retired ones may not."""
    rows = Priority.objects.filter(retired_at__isnull=True).select_related("alias_of")
    return Dictionary(level_of(row) for row in rows)


def defaults_of(type_: WorkloadType) -> TypeDefaults:
    """What the type brings along. An empty preemptibility is none."""
    given = Preemptibility(type_.preemptibility) if type_.preemptibility else None
    return TypeDefaults(type_.name, type_.priority.name if type_.priority else None, given, type_.fixed)


def effective_as(workload: Workload, level: Level, preemptibility: Preemptibility) -> Effective:
    """A stored workload's pair as it would be with another level: for what-ifs."""
    return Effective(level, Source(workload.priority_source), preemptibility, Source.THRESHOLD)
