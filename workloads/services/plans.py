"""Plans: what an admin's change would do, shown before it is done. Refused if anything moved or the plan grew old."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from clusters.models import Cluster
from clusters.services.estate import touch
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from workloads.dictionary_rows import current_draft, facts_of, fingerprint_of, save_draft, what_moved
from workloads.drafts import (
    Answer,
    Draft,
    Entry,
    add,
    change,
    change_type,
    offer_type,
    rename,
    retire,
    withdraw_type,
)
from workloads.models import Plan, PlanState, WorkloadType
from workloads.permissions import require_dictionary
from workloads.preset_drafts import load
from workloads.presets import PRESETS, Preset
from workloads.services.denials import verb
from workloads.services.flips import flip_waiting
from workloads.services.plan_effects import effect_of
from workloads.services.uses import refuse_in_use

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
    with verb(actor=actor, action="plan.apply", entity_type="plan", entity_name=plan.title):
        require_dictionary(actor)
        row = Plan.objects.select_for_update().get(pk=plan.pk)
        before = current_draft()
        _refuse_unless_open(row)
        _refuse_if_moved(row, before)
        carry_out(row, before, after_of(before, row.change), actor)
        record(actor, "plan.apply", row, detail={"change": row.change, "sentence": row.effect["sentence"]})
    return row


def discard_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Lay the plan aside. Conflict unless it is open."""
    with verb(actor=actor, action="plan.discard", entity_type="plan", entity_name=plan.title):
        require_dictionary(actor)
        if Plan.objects.filter(pk=plan.pk, state=PlanState.OPEN).update(state=PlanState.DISCARDED) != 1:
            raise Conflict("This plan is not open any more.", code="plan_closed")
        plan.state = PlanState.DISCARDED
        record(actor, "plan.discard", plan)
    return plan


def draw(kind: str, change: Change, actor: Actor, before: Draft, after: Draft) -> Plan:
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


def carry_out(plan: Plan, before: Draft, after: Draft, actor: Actor) -> None:
    """Write the draft, turn the waiting workloads it turns, mark the plan and let every cluster know."""
    flip_waiting(before, after)
    save_draft(before, after, by=actor.name)
    plan.state, plan.applied_by, plan.applied_at = PlanState.APPLIED, actor.name, timezone.now()
    plan.save()
    if before.entries != after.entries:
        for cluster in Cluster.objects.all():
            touch(cluster)


def after_of(before: Draft, change: Change) -> Draft:
    """The draft after the change. Refused with every problem; Conflict where a retired entry is in use."""
    answer = OPERATIONS[change["op"]](before, change)
    if isinstance(answer, Draft):
        return answer
    raise Refused(answer[0].message, code=answer[0].code, problems=answer)


def title_of(change: Change) -> str:
    """What the plan is called."""
    words = {
        "add": "Add priority {name} {value}",
        "change": "Change priority {name}",
        "rename": "Rename priority {name} to {new_name}",
        "retire": "Retire priority {name}",
        "type": "Change the defaults of {name}",
        "withdraw": "Withdraw {name}",
        "offer": "Offer {name} again",
        "preset": "Load the preset {preset}",
    }
    return words[change["op"]].format(**change)[:254]


def _planned(kind: str, change: Change, actor: Actor) -> Plan:
    with verb(actor=actor, action="plan.create", entity_type="plan", entity_name=title_of(change)):
        require_dictionary(actor)
        before = current_draft()
        plan = draw(kind, change, actor, before, after_of(before, change))
        plan.save(force_insert=True)
        record(actor, "plan.create", plan, detail={"change": plan.change, "sentence": plan.effect["sentence"]})
    return plan


def _refuse_unless_open(plan: Plan) -> None:
    if plan.state != PlanState.OPEN:
        raise Conflict("This plan is not open any more.", code="plan_closed")
    if plan.expires_at <= timezone.now():
        raise Conflict("This plan has expired: plan it anew.", code="plan_expired")


def _refuse_if_moved(plan: Plan, before: Draft) -> None:
    facts = facts_of(before)
    if fingerprint_of(facts) != plan.based_on:
        moved = what_moved(plan.effect["basis"], facts)
        message = f"Something moved since this was planned: {'; '.join(moved[:5])}."
        error = Conflict.at("", "plan_moved", message, **{str(number): text for number, text in enumerate(moved[:20])})
        raise error


def _add(draft: Draft, wanted: Change) -> Answer:
    return add(
        draft,
        Entry(
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
        refuse_in_use(draft, wanted["name"])
    return answer


def _type(draft: Draft, wanted: Change) -> Answer:
    return change_type(draft, wanted["name"], **_defaults(wanted))


def _withdraw(draft: Draft, wanted: Change) -> Answer:
    return withdraw_type(draft, wanted["name"])


def _offer(draft: Draft, wanted: Change) -> Answer:
    if not draft.types[wanted["name"]].withdrawn:
        raise Conflict.at("/name", "type_offered", f"{wanted['name']} is offered already.")
    return offer_type(draft, wanted["name"], **_defaults(wanted))


def _defaults(wanted: Change) -> dict[str, str | None]:
    """Those of a type; None leaves one."""
    return {field: wanted.get(field) for field in ("priority", "preemptibility", "category")}


def _preset(draft: Draft, wanted: Change) -> Answer:
    return load(draft, preset_named(wanted["preset"]), wanted["preemptibilities"])


def preset_named(name: str) -> Preset:
    """The preset; Refused naming those that exist."""
    if name not in PRESETS:
        raise Refused.at("/preset", "preset_unknown", f"There is no preset {name[:63]!r}.", allowed=PRESETS)
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
