"""Which limit holds for a run: the tighter of its project's and its department's. Two queries at most."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from tenants.models import Department, Limit, Project, TimeLimit

Key = tuple[int, str]
"""(project id, category)"""


@dataclass(frozen=True, slots=True, order=True)
class Allowance:
    """How long a run may last, how long before its end it is told, and whose rule says so."""

    lasts: timedelta
    notice: timedelta
    rule_of: str

    def ends(self, started: datetime) -> datetime:
        """When a run whose clock started then is stopped."""
        return started + self.lasts


def allowances(projects: Collection[Project], kind: type[Limit] = TimeLimit) -> Mapping[Key, Allowance]:
    """For each of these projects and every category that a rule names. No key: no limit."""
    departments = {project.department_id for project in projects}
    rows = kind._default_manager.filter(Q(project__in=projects) | Q(department__in=departments))
    by_owner: dict[Department | Project, list[Limit]] = defaultdict(list)
    for rule in rows.select_related("project", "department"):
        by_owner[rule.owner].append(rule)
    found: dict[Key, Allowance] = {}
    for project in projects:
        for rule in (*by_owner[project.department], *by_owner[project]):
            each, key = _allowance(rule), (project.pk, rule.category)
            found[key] = min(each, found.get(key, each))
    return found


def limits_of(project: Project, kind: type[Limit] = TimeLimit) -> list[tuple[str, Allowance]]:
    """Every category that is bounded in the project, with what holds there."""
    return sorted((category, found) for (_, category), found in allowances([project], kind).items())


def _allowance(rule: Limit) -> Allowance:
    return Allowance(timedelta(minutes=rule.minutes), timedelta(minutes=rule.notice_minutes), rule.whose)
