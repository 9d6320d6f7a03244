"""Changes of the dictionary, of types and by presets as kinds of plans: the draft they make, and how it is written."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from django.db.models import F
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from portal.kit.errors import Conflict, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.dictionary.rules.drafts import (
    Answer,
    Draft,
    DraftEntry,
    DraftType,
    add,
    change,
    change_type,
    load,
    offer_type,
    rename,
    restore,
    retire,
    withdraw_type,
)
from workloads.dictionary.rules.presets import PRESETS, Preset
from workloads.dictionary.selectors import current_draft, facts_of, plan_requests
from workloads.dictionary.services.plan_effects import effect_of, flip_of, flipping, with_new_value
from workloads.plans.models import Plan, PlanScope
from workloads.plans.selectors import Change, Effect, Facts, PlanKind
from workloads.plans.services.plans import plan_change
from workloads.policies.models import Policy
from workloads.state.models import EventType, Workload
from workloads.state.rules import LIVE
from workloads.state.services import lock, note, notify_apply

SHOWN: Final = 20


def check_unused(draft: Draft, name: str) -> None:
    """Conflict with the list: types, categories, aliases, policies, and workloads that may still have pods."""
    if uses := list(_uses(draft, name)):
        message = f"{name} is in use by {', '.join(uses[:SHOWN])}{' …' if len(uses) > SHOWN else ''}."
        raise Conflict(message, code="in_use", problems=[Problem("/name", "in_use", message, tuple(uses[:SHOWN]))])


def _uses(draft: Draft, name: str) -> Iterator[str]:
    yield from (f"category {category}" for category, held in draft.categories.items() if held == name)
    yield from (f"type {each.name}" for each in draft.types.values() if each.priority == name and not each.withdrawn)
    yield from (f"alias {alias.name}" for alias in draft.aliases_of(name) if not alias.retired)
    placed = Policy.objects.select_related("cluster", "department", "project")
    yield from (f"{row.kind} policy of {row.place.words}" for row in placed if name in row.priorities)
    live = Workload.objects.filter(priority__name=name, deleted_at__isnull=True, phase__in=LIVE)
    for workload in live.select_related("project")[: SHOWN + 1]:
        yield f"workload {workload.project.name}/{workload.name}"


AFTER_SYNC: Final = timedelta(seconds=15)


def flip_waiting(before: Draft, after: Draft) -> int:
    """Change them, and have their pods recreated once the clusters have the new value; return how many.

    Running workloads keep what they have: their pods carry the old integer and their people the old promise.
    """
    now, turned = timezone.now(), 0
    for workload, _after in flipping(before, after):
        lock(workload)
        follows = flip_of(workload, before, after)
        if follows is None:  # it runs, has ended or got another priority meanwhile
            continue
        entry = after.entries[workload.priority.name].priority
        turned += Workload.objects.filter(pk=workload.pk).update(
            preemptibility=follows,
            priority_value=entry.value,
            generation=F("generation") + 1,
            due_at=now + AFTER_SYNC,
            updated_at=now,
        )
        message = f"{entry.name} is now {entry.value}. This waiting workload became {follows}."
        note(workload=workload, at=now, type_=EventType.ACTION, reason="PreemptibilityChanged", message=message)
        notify_apply(workload.project.cluster_id)
    return turned


def store_new_values(before: Draft, after: Draft) -> None:
    """Every view shows and sorts by the value that the scheduler counts; the others keep that of their pods."""
    now = timezone.now()
    for name, entry in after.entries.items():
        if name in before.entries and entry.value != before.entries[name].value:
            with_new_value(name).update(priority_value=entry.value, updated_at=now)


def plan_priority_change(*, change: Change, actor: Actor) -> Plan:
    """Plan one change of the dictionary. `change["op"]` is add, change, rename or retire, with the fields of the verb.

    Refused with pointers where the result would not stand; Conflict with the list where a retired entry is in use.
    """
    return plan_change(kind="priority", change=change, actor=actor)


def plan_type_change(*, type: WorkloadType, change: Change, actor: Actor) -> Plan:  # noqa: A002 - the house's word
    """Plan other defaults for a type: priority, preemptibility, category by name; absent is unchanged.

    `change["op"]` may be withdraw, or offer with the defaults it comes back with.
    """
    return plan_change(kind="type", change={"op": "type", "name": type.name, **change}, actor=actor)


def plan_preset(*, preset: str, actor: Actor, preemptibilities: Mapping[str, str] | None = None) -> Plan:
    """Plan the import of a preset. `preemptibilities`: by category or type, where the preset asks for them."""
    wanted = {"op": "preset", "preset": preset, "preemptibilities": dict(preemptibilities or {})}
    return plan_change(kind="preset", change=wanted, actor=actor)


def _title(change: Change) -> str:
    words = {
        "add": "Add priority {name} {value}",
        "change": "Edit priority {name}",
        "rename": "Rename priority {name} to {new_name}",
        "retire": "Retire priority {name}",
        "type": "Edit defaults of {name}",
        "withdraw": "Disable {name}",
        "offer": "Enable {name}",
        "preset": "Load preset {preset}",
        "restore": "Restore priorities and types",
    }
    return words[change["op"]].format(**change)


def _facts(_change: Change) -> Facts:
    return facts_of(current_draft())


def _effect(change: Change, _actor: Actor) -> Effect:
    before = current_draft()
    return effect_of(before, draft_after(before, change))


def _apply(change: Change, actor: Actor) -> None:
    """Write the draft, change the waiting workloads that follow it, and let every cluster know."""
    before = current_draft()
    after = draft_after(before, change)
    flip_waiting(before, after)
    store_new_values(before, after)
    save_draft(before, after, by=actor.name)
    if before.entries != after.entries:
        for cluster in Cluster.objects.all():
            mark_dirty(cluster)


def _undo(change: Change) -> Change | None:
    """The entries, types and categories that the change touches, as they are now. None for an entry: there is none."""
    before = current_draft()
    after = draft_after(before, change)
    return {
        "op": "restore",
        "entries": _as_before(before.entries, after.entries),
        "types": _as_before(before.types, after.types),
        "categories": {name: held for name, held in before.categories.items() if after.categories[name] != held},
    }


def _as_before(before: Mapping[str, DraftEntry | DraftType], after: Mapping[str, object]) -> dict[str, Any]:
    touched = [name for name in after if after[name] != before.get(name)]
    return {name: asdict(before[name]) if name in before else None for name in touched}


def kind_for(page: str) -> PlanKind:
    """The kind of changes that are made on the page of this name."""
    return PlanKind(
        title=_title,
        scopes=lambda _change: [PlanScope(permission=Permission.MANAGE_DICTIONARY.value)],
        facts=_facts,
        effect=_effect,
        apply=_apply,
        undo=_undo,
        requests=plan_requests,
        page=page,
    )


KINDS: Final = {
    "priority": kind_for("workloads:priorities"),
    "type": kind_for("workloads:types"),
    "preset": kind_for("workloads:priorities"),
}


def draft_after(before: Draft, change: Change) -> Draft:
    """The draft after the change. Refused with every problem; Conflict where a retired entry is in use."""
    answer = OPERATIONS[change["op"]](before, change)
    if isinstance(answer, Draft):
        return answer
    raise ValidationFailed(answer[0].message, code=answer[0].code, problems=answer)


def _add(draft: Draft, wanted: Change) -> Answer:
    return add(
        draft,
        DraftEntry(
            name=wanted["name"],
            value=wanted["value"],
            preemption_policy=wanted.get("preemption_policy", "PreemptLowerPriority"),
            description=wanted.get("description", ""),
            alias_of=wanted.get("alias_of", ""),
        ),
    )


def _change(draft: Draft, wanted: Change) -> Answer:
    return change(
        draft,
        wanted["name"],
        value=wanted.get("value"),
        preemption_policy=wanted.get("preemption_policy"),
        description=wanted.get("description"),
    )


def _rename(draft: Draft, wanted: Change) -> Answer:
    return rename(draft, wanted["name"], wanted["new_name"])


def _retire(draft: Draft, wanted: Change) -> Answer:
    answer = retire(draft, wanted["name"])
    if isinstance(answer, Draft):
        check_unused(draft, wanted["name"])
    return answer


def _type(draft: Draft, wanted: Change) -> Answer:
    return change_type(draft, _known_type(draft, wanted), **_defaults(wanted))


def _withdraw(draft: Draft, wanted: Change) -> Answer:
    return withdraw_type(draft, _known_type(draft, wanted))


def _offer(draft: Draft, wanted: Change) -> Answer:
    name = _known_type(draft, wanted)
    if not draft.types[name].withdrawn:
        raise Conflict.at("/name", "type_offered", f"{name} is already enabled.")
    return offer_type(draft, name, **_defaults(wanted))


def _known_type(draft: Draft, wanted: Change) -> str:
    name: str = wanted["name"]
    if name not in draft.types:
        raise ValidationFailed.at("/name", "type_unknown", f"Unknown workload type {name[:63]!r}.", allowed=draft.types)
    return name


def _defaults(wanted: Change) -> dict[str, str | None]:
    """Those of a type; None leaves one."""
    return {field: wanted.get(field) for field in ("priority", "preemptibility", "category")}


def _preset(draft: Draft, wanted: Change) -> Answer:
    return load(draft, preset_named(wanted["preset"]), wanted["preemptibilities"])


def preset_named(name: str) -> Preset:
    """The preset; Refused naming those that exist."""
    if name not in PRESETS:
        raise ValidationFailed.at("/preset", "preset_unknown", f"Unknown preset {name[:63]!r}.", allowed=PRESETS)
    return PRESETS[name]


def _restore(draft: Draft, wanted: Change) -> Answer:
    entries = {name: DraftEntry(**old) if old else None for name, old in wanted["entries"].items()}
    types = [DraftType(**old) for old in wanted["types"].values()]
    answer = restore(draft, entries, types, wanted["categories"])
    if isinstance(answer, Draft):
        for name, old in entries.items():
            if old is None or (old.retired and not draft.entries[name].retired):
                check_unused(answer, name)
    return answer


OPERATIONS: Final[Mapping[str, Callable[[Draft, Change], Answer]]] = {
    "add": _add,
    "change": _change,
    "rename": _rename,
    "retire": _retire,
    "type": _type,
    "withdraw": _withdraw,
    "offer": _offer,
    "preset": _preset,
    "restore": _restore,
}


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


def _save_entry(entry: DraftEntry) -> None:
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


def _save_aliases(changed: list[DraftEntry]) -> None:
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
