"""A dictionary and its types as values, and the changes an admin may make, presets included. Pure.

Rules: a name is a PriorityClass's for good, so a rename is a new entry that takes the old one's place and leaves it
behind as an alias, accepted in manifests and still synced. Values are unique among the offered entries. An alias
always has the value of its target. What is refused is a list of problems with the field's pointer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from portal.kit.errors import Problem
from scheduling.model.preemptibility import Preemptibility
from workloads.dictionary.rules import presets
from workloads.dictionary.rules.resolution import SYSTEM_PREFIX, Dictionary, PriorityEntry

LOWEST: Final = -2147483648
HIGHEST: Final = 1000000000
POLICIES: Final = ("PreemptLowerPriority", "Never")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """One dictionary entry."""

    name: str
    value: int
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""
    alias_of: str = ""
    source: str = ""
    retired: bool = False

    @property
    def offered(self) -> bool:
        """Shown in forms: neither an alias nor retired."""
        return not self.alias_of and not self.retired

    @property
    def priority(self) -> PriorityEntry:
        """As the scheduling model sees it."""
        return PriorityEntry(self.name, self.value, self.preemption_policy, self.alias_of or None)


@dataclass(frozen=True, slots=True)
class DraftType:
    """A workload type's defaults; empty texts are none."""

    name: str
    category: str = ""
    priority: str = ""
    preemptibility: str = ""
    fixed: bool = False
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """The whole dictionary: entries and types by name, and each category's priority."""

    entries: Mapping[str, DraftEntry]
    types: Mapping[str, DraftType]
    categories: Mapping[str, str]

    @property
    def dictionary(self) -> Dictionary:
        return Dictionary(entry.priority for entry in self.entries.values() if not entry.retired)

    @property
    def offered(self) -> list[DraftEntry]:
        """Weakest first."""
        return sorted((entry for entry in self.entries.values() if entry.offered), key=lambda entry: entry.value)

    def holder_of(self, value: int, *, besides: str = "") -> DraftEntry | None:
        """The offered entry with this value."""
        return next((entry for entry in self.offered if entry.value == value and entry.name != besides), None)

    def aliases_of(self, name: str) -> list[DraftEntry]:
        """Entries that stand for this one."""
        return [entry for entry in self.entries.values() if entry.alias_of == name]

    def with_entries(self, *entries: DraftEntry) -> "Draft":
        """The same with these entries added or replaced."""
        return replace(self, entries={**self.entries, **{entry.name: entry for entry in entries}})

    def with_types(self, *types: DraftType) -> "Draft":
        """The same with these types replaced."""
        return replace(self, types={**self.types, **{entry.name: entry for entry in types}})


Answer = Draft | list[Problem]


def add(draft: Draft, entry: DraftEntry) -> Answer:
    """A new entry; a retired one of the same name comes back with the new values."""
    problems = _name_problems(draft, entry.name) + _entry_problems(draft, entry)
    return problems or draft.with_entries(entry)


def change(
    draft: Draft,
    name: str,
    *,
    value: int | None = None,
    preemption_policy: str | None = None,
    description: str | None = None,
) -> Answer:
    """Value, preemption policy or description of an entry; None leaves a field. Aliases follow the value."""
    if (old := draft.entries.get(name)) is None:
        return [_unknown(draft, "/name", name)]
    if old.alias_of and (value, preemption_policy) != (None, None):
        message = f"{name} is an alias of {old.alias_of}: change {old.alias_of}."
        return [Problem("/name", "alias", message, (old.alias_of,))]
    entry = replace(
        old,
        value=old.value if value is None else value,
        preemption_policy=old.preemption_policy if preemption_policy is None else preemption_policy,
        description=old.description if description is None else description,
    )
    if problems := _entry_problems(draft, entry):
        return problems
    followers = [replace(alias, value=entry.value) for alias in draft.aliases_of(name)]
    return draft.with_entries(entry, *followers)


def rename(draft: Draft, name: str, new_name: str) -> Answer:
    """A new entry takes over value, policy, description and every default; the old name stays as its alias."""
    if (old := draft.entries.get(name)) is None or not old.offered:
        return [_unknown(draft, "/name", name)]
    if problems := _name_problems(draft, new_name):
        return problems
    moved = [replace(alias, alias_of=new_name) for alias in (old, *draft.aliases_of(name))]
    types = [replace(each, priority=new_name) for each in draft.types.values() if each.priority == name]
    categories = {each: new_name if held == name else held for each, held in draft.categories.items()}
    renamed = draft.with_entries(replace(old, name=new_name), *moved).with_types(*types)
    return replace(renamed, categories=categories)


def retire(draft: Draft, name: str) -> Answer:
    """No longer offered nor accepted. Whether anything still uses it is the caller's to know."""
    if (old := draft.entries.get(name)) is None or old.retired:
        return [_unknown(draft, "/name", name)]
    return draft.with_entries(replace(old, retired=True))


def restore(
    draft: Draft, entries: Mapping[str, DraftEntry | None], types: Iterable[DraftType], categories: Mapping[str, str]
) -> Answer:
    """Entries, types and categories as they once were; None for an entry retires it. Others stay."""
    back = [old or replace(draft.entries[name], retired=True, alias_of="") for name, old in entries.items()]
    whole = replace(draft.with_entries(*back).with_types(*types), categories={**draft.categories, **categories})
    problems = [problem for entry in back if not entry.retired for problem in _entry_problems(whole, entry)]
    return problems or whole


def change_type(
    draft: Draft,
    name: str,
    *,
    priority: str | None = None,
    preemptibility: str | None = None,
    category: str | None = None,
) -> Answer:
    """A type's defaults; None leaves a field."""
    old = draft.types[name]
    if old.withdrawn:
        return [_withdrawn(old)]
    given = {"priority": priority, "preemptibility": preemptibility, "category": category}
    problems = [*_fixed(old), *_type_problems(draft, given)]
    return problems or draft.with_types(_with(old, given))


def withdraw_type(draft: Draft, name: str) -> Answer:
    """No more submissions of a type. It keeps its defaults, and its workloads everything."""
    old = draft.types[name]
    return [_withdrawn(old)] if old.withdrawn else draft.with_types(replace(old, withdrawn=True))


def offer_type(
    draft: Draft,
    name: str,
    *,
    priority: str | None = None,
    preemptibility: str | None = None,
    category: str | None = None,
) -> Answer:
    """A withdrawn type back with these defaults; None leaves what it had, if that is still there."""
    old = draft.types[name]
    wanted = _with(old, {"priority": priority, "preemptibility": preemptibility, "category": category})
    chosen = {"priority": wanted.priority, "preemptibility": wanted.preemptibility, "category": wanted.category}
    problems = _type_problems(draft, {field: value or None for field, value in chosen.items()})
    problems += _fixed(old) if wanted != old else []
    return problems or draft.with_types(replace(wanted, withdrawn=False))


def _with(old: DraftType, given: Mapping[str, str | None]) -> DraftType:
    named = {field: value for field, value in given.items() if value is not None}
    return replace(
        old,
        priority=named.get("priority", old.priority),
        preemptibility=named.get("preemptibility", old.preemptibility),
        category=named.get("category", old.category),
    )


def _withdrawn(old: DraftType) -> Problem:
    return Problem("", "type_withdrawn", f"{old.name} is disabled.")


def _fixed(old: DraftType) -> list[Problem]:
    message = f"{old.name} workloads have a fixed priority and preemptibility."
    return [Problem("", "priority_fixed", message)] if old.fixed else []


def _type_problems(draft: Draft, given: Mapping[str, str | None]) -> list[Problem]:
    names = draft.dictionary.names
    allowed = {"priority": names, "preemptibility": tuple(Preemptibility), "category": tuple(draft.categories)}
    return [
        Problem(f"/{field}", f"{field}_unknown", f"{value[:80]!r} is not a valid {field}.", allowed[field])
        for field, value in given.items()
        if value is not None and value not in allowed[field]
    ]


def _name_problems(draft: Draft, name: str) -> list[Problem]:
    if name.startswith(SYSTEM_PREFIX):
        return [Problem("/name", "system_prefix", f"Names that start with {SYSTEM_PREFIX} are reserved by Kubernetes.")]
    if not _NAME.fullmatch(name):
        message = "A name is 1 to 63 lower-case letters, digits and inner dashes."
        return [Problem("/name", "bad_name", message)]
    if name in draft.entries and not draft.entries[name].retired:
        return [Problem("/name", "name_taken", f"{name} already exists.")]
    return []


def _entry_problems(draft: Draft, entry: DraftEntry) -> list[Problem]:
    problems = []
    if not LOWEST <= entry.value <= HIGHEST:
        message = f"{entry.value} is not between {LOWEST} and {HIGHEST}."
        problems.append(Problem("/value", "out_of_range", message))
    if entry.preemption_policy not in POLICIES:
        message = f"{entry.preemption_policy[:80]!r} is not a preemption policy."
        problems.append(Problem("/preemptionPolicy", "policy_unknown", message, POLICIES))
    return problems + _value_problems(draft, entry)


def _value_problems(draft: Draft, entry: DraftEntry) -> list[Problem]:
    if entry.alias_of:
        target = draft.entries.get(entry.alias_of)
        if target is None or not target.offered:
            return [_unknown(draft, "/aliasOf", entry.alias_of)]
        if target.value != entry.value:
            message = f"An alias must have the value of its target: {target.value}."
            return [Problem("/value", "alias_value", message, (str(target.value),))]
        return []
    if holder := draft.holder_of(entry.value, besides=entry.name):
        message = (
            f"{entry.value} is already used by {holder.name}. Choose another value, or make it an alias "
            f"of {holder.name}."
        )
        return [Problem("/value", "value_taken", message, numbers={"holder": holder.name})]
    return []


def _unknown(draft: Draft, pointer: str, name: str) -> Problem:
    names = tuple(entry.name for entry in draft.offered)
    return Problem(pointer, "priority_unknown", f"Priority {name[:80]!r} is not known.", names)


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
            return [replace(each, pointer="", message=f"{entry.name}: {each.message}") for each in answer]
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


def _bring_in(draft: Draft, entry: presets.PresetEntry, source: str) -> Answer:
    known = draft.entries.get(entry.name)
    holder = draft.holder_of(entry.value, besides=entry.name)
    wanted = DraftEntry(
        entry.name, entry.value, entry.preemption_policy, entry.description, holder.name if holder else "", source
    )
    if known is None or known.retired:
        return add(draft, wanted)
    if known.value == entry.value and known.preemption_policy == entry.preemption_policy:
        return draft
    return change(draft, entry.name, value=entry.value, preemption_policy=entry.preemption_policy)


def _missing(draft: Draft, preset: presets.Preset, given: Mapping[str, str]) -> list[Problem]:
    """Every mapped type needs an answer, for itself or for its category: one problem for each key of the preset."""
    allowed = tuple(Preemptibility)
    unknown = [
        Problem(
            f"/preemptibilities/{name}", "preemptibility_unknown", f"{value[:80]!r} is not a preemptibility.", allowed
        )
        for name, value in given.items()
        if value not in allowed
    ]
    if not preset.asks_preemptibility:
        return unknown
    unanswered = [name for name in mapped_types(draft, preset) if _chosen(draft, name, given) is None]
    keys = dict.fromkeys(name if name in preset.types else draft.types[name].category for name in unanswered)
    return unknown + [
        Problem(f"/preemptibilities/{key}", "preemptibility_required", f"Choose whether {key} may be evicted.", allowed)
        for key in keys
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
