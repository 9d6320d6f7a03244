"""Change plans: created with their effect, then applied or discarded; refused once old or outdated."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from django.db.models import F, Q
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from portal.audit.services import audited_transaction, record
from portal.kit.errors import Conflict, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from workloads.dictionary.models import Category, Plan, PlanState, Priority, WorkloadType
from workloads.dictionary.rules.drafts import (
    Answer,
    Draft,
    DraftEntry,
    add,
    change,
    change_type,
    load,
    offer_type,
    rename,
    retire,
    withdraw_type,
)
from workloads.dictionary.rules.presets import PRESETS, Preset
from workloads.dictionary.selectors import current_draft, facts_of, fingerprint_of, require_dictionary, what_moved
from workloads.dictionary.services.plan_effects import effect_of, flip_of, flipping
from workloads.policies.models import Policy
from workloads.state.models import EventType, Workload
from workloads.state.rules import ENDED
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
    live = Workload.objects.filter(priority__name=name, deleted_at__isnull=True).exclude(Q(phase__in=ENDED))
    for workload in live.select_related("project")[: SHOWN + 1]:
        yield f"workload {workload.project.name}/{workload.name}"


AFTER_SYNC: Final = timedelta(seconds=15)


def flip_waiting(before: Draft, after: Draft) -> int:
    """Turn them, and have their pods made anew once the clusters hold the new value; answers how many.

    Running workloads keep what they have: their pods carry the old integer and their people the old promise.
    """
    now, turned = timezone.now(), 0
    for workload, _foreseen in flipping(before, after):
        lock(workload)
        follows = flip_of(workload, before, after)
        if follows is None:  # it runs, has ended or got another priority meanwhile
            continue
        level = after.entries[workload.priority.name].level
        turned += Workload.objects.filter(pk=workload.pk).update(
            preemptibility=follows,
            priority_value=level.value,
            generation=F("generation") + 1,
            due_at=now + AFTER_SYNC,
            updated_at=now,
        )
        message = f"{level.name} is now {level.value}. This waiting workload became {follows}."
        note(workload=workload, at=now, type_=EventType.ACTION, reason="PreemptibilityChanged", message=message)
        notify_apply(workload.project.cluster_id)
    return turned


LIFETIME: Final = timedelta(hours=1)
Change = Mapping[str, Any]


def plan_priority_change(*, change: Change, actor: Actor) -> Plan:
    """Plan one change of the dictionary. `change["op"]` is add, change, rename or retire, with the fields of the verb.

    Refused with pointers where the result would not stand; Conflict with the list where a retired entry is in use.
    """
    return _planned("priority", change, actor)


def plan_type_change(*, type: WorkloadType, change: Change, actor: Actor) -> Plan:  # noqa: A002 - the house's word
    """Plan other defaults for a type: priority, preemptibility, category by name; absent is unchanged.

    `change["op"]` may be withdraw, or offer with the defaults it comes back with.
    """
    return _planned("type", {"op": "type", "name": type.name, **change}, actor)


def plan_preset(*, preset: str, actor: Actor, preemptibilities: Mapping[str, str] | None = None) -> Plan:
    """Plan the import of a preset. `preemptibilities`: by category or type, where the preset asks for them."""
    wanted = {"op": "preset", "preset": preset, "preemptibilities": dict(preemptibilities or {})}
    return _planned("preset", wanted, actor)


def apply_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Do what the plan shows. Conflict when it is old, done or discarded, or when something moved since."""
    with audited_transaction(actor=actor, action="plan.apply", entity_type="plan", entity_name=plan.title):
        require_dictionary(actor)
        row = Plan.objects.select_for_update().get(pk=plan.pk)
        before = current_draft()
        _check_open(row)
        _check_basis(row, before)
        execute_plan(row, before, draft_after(before, row.change), actor)
        record(actor, "plan.apply", row, detail={"change": row.change, "sentence": row.effect["sentence"]})
    return row


def discard_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Lay the plan aside. Conflict unless it is open."""
    with audited_transaction(actor=actor, action="plan.discard", entity_type="plan", entity_name=plan.title):
        require_dictionary(actor)
        if Plan.objects.filter(pk=plan.pk, state=PlanState.OPEN).update(state=PlanState.DISCARDED) != 1:
            raise Conflict("This plan is already applied or discarded.", code="plan_closed")
        plan.state = PlanState.DISCARDED
        record(actor, "plan.discard", plan)
    return plan


def draft_plan(kind: str, change: Change, actor: Actor, before: Draft, after: Draft) -> Plan:
    """An unsaved plan with its effect."""
    now = timezone.now()
    return Plan(
        kind=kind,
        title=title_of(change),
        change=dict(change),
        effect=effect_of(before, after),
        based_on=fingerprint_of(facts_of(before)),
        created_by=actor.name,
        created_at=now,
        expires_at=now + LIFETIME,
    )


def execute_plan(plan: Plan, before: Draft, after: Draft, actor: Actor) -> None:
    """Write the draft, turn the waiting workloads it turns, mark the plan and let every cluster know."""
    flip_waiting(before, after)
    save_draft(before, after, by=actor.name)
    plan.state, plan.applied_by, plan.applied_at = PlanState.APPLIED, actor.name, timezone.now()
    plan.save()
    if before.entries != after.entries:
        for cluster in Cluster.objects.all():
            mark_dirty(cluster)


def draft_after(before: Draft, change: Change) -> Draft:
    """The draft after the change. Refused with every problem; Conflict where a retired entry is in use."""
    answer = OPERATIONS[change["op"]](before, change)
    if isinstance(answer, Draft):
        return answer
    raise ValidationFailed(answer[0].message, code=answer[0].code, problems=answer)


def title_of(change: Change) -> str:
    words = {
        "add": "Add priority {name} {value}",
        "change": "Edit priority {name}",
        "rename": "Rename priority {name} to {new_name}",
        "retire": "Retire priority {name}",
        "type": "Edit defaults of {name}",
        "withdraw": "Disable {name}",
        "offer": "Enable {name}",
        "preset": "Load preset {preset}",
    }
    return words[change["op"]].format(**change)[:254]


def _planned(kind: str, change: Change, actor: Actor) -> Plan:
    with audited_transaction(actor=actor, action="plan.create", entity_type="plan", entity_name=title_of(change)):
        require_dictionary(actor)
        before = current_draft()
        plan = draft_plan(kind, change, actor, before, draft_after(before, change))
        plan.save(force_insert=True)
        record(actor, "plan.create", plan, detail={"change": plan.change, "sentence": plan.effect["sentence"]})
    return plan


def _check_open(plan: Plan) -> None:
    if plan.state != PlanState.OPEN:
        raise Conflict("This plan is already applied or discarded.", code="plan_closed")
    if plan.expires_at <= timezone.now():
        raise Conflict("This plan has expired. Create a new one.", code="plan_expired")


def _check_basis(plan: Plan, before: Draft) -> None:
    facts = facts_of(before)
    if fingerprint_of(facts) != plan.based_on:
        moved = what_moved(plan.effect["basis"], facts)
        message = f"The configuration changed after this plan was created: {'; '.join(moved[:5])}."
        error = Conflict.at("", "plan_moved", message, **{str(number): text for number, text in enumerate(moved[:20])})
        raise error


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
    return change_type(draft, wanted["name"], **_defaults(wanted))


def _withdraw(draft: Draft, wanted: Change) -> Answer:
    return withdraw_type(draft, wanted["name"])


def _offer(draft: Draft, wanted: Change) -> Answer:
    if not draft.types[wanted["name"]].withdrawn:
        raise Conflict.at("/name", "type_offered", f"{wanted['name']} is already enabled.")
    return offer_type(draft, wanted["name"], **_defaults(wanted))


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


OPERATIONS: Final[Mapping[str, Callable[[Draft, Change], Answer]]] = {
    "add": _add,
    "change": _change,
    "rename": _rename,
    "retire": _retire,
    "type": _type,
    "withdraw": _withdraw,
    "offer": _offer,
    "preset": _preset,
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
