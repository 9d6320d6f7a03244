"""Limits as Run:ai's clients set them: seconds, for interactive work (Build) and for training (Train)."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from portal.core.actors import Actor
from portal.core.errors import Problem, Refused
from tenants.models import Department, IdleLimit, Limit, Project, TimeLimit
from tenants.services.limits import lift_limit, set_limit
from tenants.services.rules import owned

Named = tuple[type[Limit], str]
"""A sort of limit and a category."""

RULES: Final[Mapping[str, Named]] = {
    "interactiveJobTimeLimitSeconds": (TimeLimit, "Build"),
    "interactiveJobMaxIdleDurationSeconds": (IdleLimit, "Build"),
    "trainingJobTimeLimitSeconds": (TimeLimit, "Train"),
    "trainingJobMaxIdleDurationSeconds": (IdleLimit, "Train"),
}
PREEMPT_IDLE: Final = "interactiveJobPreemptIdleDurationSeconds"
NOTICE: Final = 15
"""Minutes; Run:ai's rules have no notice of their own."""


def rules_json(minutes: Mapping[Named, int]) -> dict[str, int | None]:
    """Seconds per rule. Rung stops idle runs and does not make them preemptible, so that rule is null."""
    return {**{name: seconds_of(minutes.get(which)) for name, which in RULES.items()}, PREEMPT_IDLE: None}


def seconds_of(minutes: int | None) -> int | None:
    """As Run:ai counts."""
    return None if minutes is None else minutes * 60


@transaction.atomic
def set_scheduling_rules(*, owner: Department | Project, rules: Mapping[str, Any] | None, actor: Actor) -> None:
    """Set and lift limits; null lifts, an absent key keeps. Refused: the rule that Rung has not, parts of a minute."""
    said = dict.fromkeys(RULES) if rules is None else rules
    if problems := [*_unknown(said), *_unsupported(said)]:
        raise Refused(problems[0].message, code=problems[0].code, problems=problems)
    for name in RULES.keys() & said.keys():
        _set(owner, RULES[name], said[name], f"/schedulingRules/{name}", actor)


def _unknown(said: Mapping[str, Any]) -> list[Problem]:
    known = (*RULES, PREEMPT_IDLE)
    text = _("No such field here.")
    return [
        Problem(f"/schedulingRules/{name[:100]}", "unknown_field", text, allowed=known)
        for name in said
        if name not in known
    ]


def _unsupported(said: Mapping[str, Any]) -> list[Problem]:
    if said.get(PREEMPT_IDLE) is None:
        return []
    text = _("Rung stops what is idle for too long and does not make it preemptible; leave this empty.")
    return [Problem(f"/schedulingRules/{PREEMPT_IDLE}", "unsupported", text)]


def _set(owner: Department | Project, which: Named, seconds: object, pointer: str, actor: Actor) -> None:
    kind, category = which
    if seconds is None:
        if row := kind._default_manager.filter(category=category, **owned(owner)).first():
            lift_limit(limit=row, actor=actor)
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 60 or seconds % 60:
        raise Refused.at(pointer, "whole_minutes", _("Whole minutes, as seconds: 60, 120 and so on."))
    minutes = seconds // 60
    notice = min(NOTICE, minutes - 1)
    set_limit(kind, owner=owner, category=category, minutes=minutes, notice_minutes=notice, actor=actor)
