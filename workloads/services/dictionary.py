"""The dictionary's verbs in one step: each plans, applies, and returns the applied plan. Pages plan and apply apart."""

from collections.abc import Mapping

from portal.core.actors import Actor
from workloads.models import Plan, PreemptionPolicy
from workloads.services.plans import apply_plan, plan_preset, plan_priority_change


def add_priority(
    *,
    name: str,
    value: int,
    actor: Actor,
    preemption_policy: str = PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    description: str = "",
    alias_of: str = "",
) -> Plan:
    """Add an entry. Refused: a name or value that is taken or out of range, `system-`, an unknown policy."""
    change = {
        "op": "add",
        "name": name,
        "value": value,
        "preemption_policy": str(preemption_policy),
        "description": description,
        "alias_of": alias_of,
    }
    return _at_once(change, actor)


def change_priority_entry(
    *,
    name: str,
    actor: Actor,
    value: int | None = None,
    preemption_policy: str | None = None,
    description: str | None = None,
) -> Plan:
    """Change an entry; None leaves a field. Pods keep the old number, which KAI does not go by."""
    change = {
        "op": "change",
        "name": name,
        "value": value,
        "preemption_policy": preemption_policy,
        "description": description,
    }
    return _at_once(change, actor)


def rename_priority(*, name: str, new_name: str, actor: Actor) -> Plan:
    """A PriorityClass keeps its name for good: a new entry takes over, the old name stays behind as its alias."""
    return _at_once({"op": "rename", "name": name, "new_name": new_name}, actor)


def retire_priority(*, name: str, actor: Actor) -> Plan:
    """Take an entry out of use. Conflict with the list while anything uses it."""
    return _at_once({"op": "retire", "name": name}, actor)


def load_preset(*, preset: str, actor: Actor, preemptibilities: Mapping[str, str] | None = None) -> Plan:
    """Load a preset at once."""
    return apply_plan(plan=plan_preset(preset=preset, actor=actor, preemptibilities=preemptibilities), actor=actor)


def _at_once(change: Mapping[str, object], actor: Actor) -> Plan:
    return apply_plan(plan=plan_priority_change(change=change, actor=actor), actor=actor)
