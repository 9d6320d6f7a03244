"""Time limits as Run:ai's clients set them: seconds, for interactive work (Build) and for training (Train)."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from portal.core.actors import Actor
from portal.core.errors import Problem, Refused
from tenants.models import Department, Project, TimeLimit
from tenants.services.rules import owned
from tenants.services.time_limits import lift_time_limit, set_time_limit

CATEGORIES: Final = {"interactiveJobTimeLimitSeconds": "Build", "trainingJobTimeLimitSeconds": "Train"}
IDLE: Final = (
    "interactiveJobMaxIdleDurationSeconds",
    "interactiveJobPreemptIdleDurationSeconds",
    "trainingJobMaxIdleDurationSeconds",
)
NOTICE: Final = 15
"""Minutes; Run:ai's rules have no notice of their own."""


def rules_json(limits: Mapping[str, int]) -> dict[str, int | None]:
    """`limits`: minutes per category. Rung measures no idleness, so those rules are null."""
    minutes = {name: limits.get(category) for name, category in CATEGORIES.items()}
    return {**{name: found and found * 60 for name, found in minutes.items()}, **dict.fromkeys(IDLE)}


@transaction.atomic
def set_scheduling_rules(*, owner: Department | Project, rules: Mapping[str, Any] | None, actor: Actor) -> None:
    """Set and lift time limits; null lifts, an absent key keeps. Refused: idle rules, and parts of a minute."""
    said = dict.fromkeys(CATEGORIES) if rules is None else rules
    if problems := [*_unknown(said), *_unsupported(said)]:
        raise Refused(problems[0].message, code=problems[0].code, problems=problems)
    for name in CATEGORIES.keys() & said.keys():
        _set(owner, CATEGORIES[name], said[name], f"/schedulingRules/{name}", actor)


def _unknown(said: Mapping[str, Any]) -> list[Problem]:
    known = (*CATEGORIES, *IDLE)
    text = _("No such field here.")
    return [
        Problem(f"/schedulingRules/{name[:100]}", "unknown_field", text, allowed=known)
        for name in said
        if name not in known
    ]


def _unsupported(said: Mapping[str, Any]) -> list[Problem]:
    text = _("Rung does not measure idleness; leave this empty.")
    return [Problem(f"/schedulingRules/{name}", "unsupported", text) for name in IDLE if said.get(name) is not None]


def _set(owner: Department | Project, category: str, seconds: object, pointer: str, actor: Actor) -> None:
    if seconds is None:
        if row := TimeLimit.objects.filter(category=category, **owned(owner)).first():
            lift_time_limit(limit=row, actor=actor)
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 60 or seconds % 60:
        raise Refused.at(pointer, "whole_minutes", _("Whole minutes, as seconds: 60, 120 and so on."))
    minutes = seconds // 60
    notice = min(NOTICE, minutes - 1)
    set_time_limit(owner=owner, category=category, minutes=minutes, notice_minutes=notice, actor=actor)
