"""The dictionary's rows as a draft, what a draft was computed on, and a draft written back."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db.models import F
from django.utils import timezone

from workloads.drafts import Draft, Entry, TypeEntry
from workloads.models import Category, Priority, WorkloadType


def current_draft() -> Draft:
    """Everything as it stands, in three queries."""
    return Draft(
        entries={row.name: _entry(row) for row in Priority.objects.select_related("alias_of")},
        types={row.name: _type_entry(row) for row in WorkloadType.objects.select_related("category", "priority")},
        categories={row.name: row.priority.name for row in Category.objects.select_related("priority")},
    )


def _entry(row: Priority) -> Entry:
    return Entry(
        name=row.name,
        value=row.value,
        preemption_policy=row.preemption_policy,
        description=row.description,
        alias_of=row.alias_of.name if row.alias_of else "",
        source=row.source,
        retired=row.retired_at is not None,
    )


def _type_entry(row: WorkloadType) -> TypeEntry:
    return TypeEntry(
        name=row.name,
        category=row.category.name if row.category else "",
        priority=row.priority.name if row.priority else "",
        preemptibility=row.preemptibility,
        fixed=row.fixed,
        withdrawn=row.withdrawn_at is not None,
    )


def facts_of(draft: Draft) -> dict[str, str]:
    """One short text per entry and type: what a plan was computed on."""
    entries = {
        f"priority {each.name}": f"{each.value} {each.preemption_policy} alias={each.alias_of} retired={each.retired}"
        for each in draft.entries.values()
    }
    types = {
        f"type {each.name}": f"{each.category} {each.priority} {each.preemptibility}{' withdrawn' * each.withdrawn}"
        for each in draft.types.values()
    }
    return {**entries, **types, **{f"category {name}": held for name, held in draft.categories.items()}}


def fingerprint_of(facts: Mapping[str, str]) -> str:
    """SHA-256 of the facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def what_moved(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The facts that differ, in words."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name}: {before.get(name, 'absent')} → {now.get(name, 'absent')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def save_draft(before: Draft, after: Draft, *, by: str) -> None:
    """Write what differs. Freed values go first, so that uniqueness holds at every step."""
    changed = [entry for name, entry in after.entries.items() if before.entries.get(name) != entry]
    for entry in sorted(changed, key=lambda each: (each.name not in before.entries, each.offered)):
        _save_entry(entry)
    _save_aliases(changed)
    rows = {row.name: row for row in Priority.objects.all()}
    for name, priority in after.categories.items():
        if before.categories.get(name) != priority:
            Category.objects.filter(name=name).update(priority=rows[priority])
    _save_types(before, after, rows, by)


def _save_entry(entry: Entry) -> None:
    """Aliases are parked under no target first; `_save_aliases` ties them once every row is there."""
    now = timezone.now()
    values: dict[str, Any] = {
        "value": entry.value,
        "preemption_policy": entry.preemption_policy,
        "description": entry.description,
        "source": entry.source,
    }
    parked = {"retired_at": now if entry.retired or entry.alias_of else None}
    if Priority.objects.filter(name=entry.name).update(
        **values, **parked, alias_of=None, generation=F("generation") + 1, updated_at=now
    ):
        return
    Priority.objects.create(name=entry.name, **values, **parked)


def _save_aliases(changed: list[Entry]) -> None:
    rows = {row.name: row for row in Priority.objects.all()}
    for entry in changed:
        if entry.alias_of:
            retired_at = timezone.now() if entry.retired else None
            Priority.objects.filter(name=entry.name).update(alias_of=rows[entry.alias_of], retired_at=retired_at)


def _save_types(before: Draft, after: Draft, priorities: Mapping[str, Priority], by: str) -> None:
    categories = {row.name: row for row in Category.objects.all()}
    for name, each in after.types.items():
        old = before.types[name]
        if each == old:
            continue
        moved = {"withdrawn_at": timezone.now() if each.withdrawn else None} if each.withdrawn != old.withdrawn else {}
        WorkloadType.objects.filter(name=each.name).update(
            category=categories.get(each.category),
            priority=priorities.get(each.priority),
            preemptibility=each.preemptibility,
            updated_by=by,
            updated_at=timezone.now(),
            **moved,
        )
