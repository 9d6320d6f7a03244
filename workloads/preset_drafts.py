"""What loading a preset makes of a dictionary. Pure."""

from collections.abc import Mapping

from portal.core.errors import Problem
from scheduling.priority import Preemptibility
from workloads import presets
from workloads.drafts import Answer, Draft, Entry, add, change, change_type


def load(draft: Draft, preset: presets.Preset, preemptibilities: Mapping[str, str]) -> Answer:
    """Bring the preset's entries in, then its types' defaults.

    1. an entry of the same name takes the preset's value; one whose value is taken becomes an alias
    2. where the preset maps types, each gets its priority and the preemptibility the admin chose
    """
    if problems := _missing(draft, preset, preemptibilities):
        return problems
    for entry in preset.entries:
        answer = _bring_in(draft, entry, preset.source)
        if isinstance(answer, list):
            return answer
        draft = answer
    return _map_types(draft, preset, preemptibilities)


def mapped_types(draft: Draft, preset: presets.Preset) -> dict[str, str]:
    """Type name to priority: a type's own line beats its category's. Fixed and withdrawn types are left alone."""
    found = {}
    for type_ in draft.types.values():
        priority = preset.types.get(type_.name) or preset.types.get(type_.category)
        if priority and not type_.fixed and not type_.withdrawn:
            found[type_.name] = priority
    return found


def _bring_in(draft: Draft, entry: presets.Entry, source: str) -> Answer:
    known = draft.entries.get(entry.name)
    holder = draft.holder_of(entry.value, besides=entry.name)
    wanted = Entry(
        entry.name, entry.value, entry.preemption_policy, entry.description, holder.name if holder else "", source
    )
    if known is None or known.retired:
        return add(draft, wanted)
    if known.value == entry.value and known.preemption_policy == entry.preemption_policy:
        return draft
    return change(draft, entry.name, value=entry.value, preemption_policy=entry.preemption_policy)


def _missing(draft: Draft, preset: presets.Preset, given: Mapping[str, str]) -> list[Problem]:
    """Every mapped type needs an answer, for itself or for its category."""
    allowed = tuple(Preemptibility)
    unknown = [
        Problem(f"/preemptibilities/{name}", "preemptibility_unknown", f"{value[:80]!r} is no preemptibility.", allowed)
        for name, value in given.items()
        if value not in allowed
    ]
    if not preset.asks_preemptibility:
        return unknown
    return unknown + [
        Problem(f"/preemptibilities/{name}", "preemptibility_required", f"Say whether {name} may be evicted.", allowed)
        for name in mapped_types(draft, preset)
        if _chosen(draft, name, given) is None
    ]


def _chosen(draft: Draft, name: str, given: Mapping[str, str]) -> str | None:
    return given.get(name) or given.get(draft.types[name].category)


def _map_types(draft: Draft, preset: presets.Preset, given: Mapping[str, str]) -> Answer:
    for name, priority in mapped_types(draft, preset).items():
        answer = change_type(draft, name, priority=priority, preemptibility=_chosen(draft, name, given))
        if isinstance(answer, list):
            return answer
        draft = answer
    return draft
