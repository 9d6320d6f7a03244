"""Which time limit holds for a run: the tighter of its project's and its department's. Two queries at most."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from tenants.models import Project, RunLimit

Key = tuple[int, str]
"""(project id, category)"""


@dataclass(frozen=True, slots=True, order=True)
class Allowance:
    """How long a run may last, how long before its end it is told, and whose rule says so."""

    lasts: timedelta
    notice: timedelta
    rule_of: str

    def ends(self, started: datetime) -> datetime:
        """When a run that began then is stopped."""
        return started + self.lasts


def allowances(projects: Collection[Project]) -> Mapping[Key, Allowance]:
    """For each of these projects and every category that a rule names. No key: no limit."""
    departments = {project.department_id for project in projects}
    rules = RunLimit.objects.filter(Q(project__in=projects) | Q(department__in=departments))
    by_department: dict[Key, RunLimit] = {}
    by_project: dict[Key, RunLimit] = {}
    for rule in rules.select_related("project", "department"):
        if rule.project_id is not None:
            by_project[rule.project_id, rule.category] = rule
        elif rule.department_id is not None:
            by_department[rule.department_id, rule.category] = rule
    found: dict[Key, Allowance] = {}
    for project in projects:
        above = [rule for (owner, _), rule in by_department.items() if owner == project.department_id]
        own = [rule for (owner, _), rule in by_project.items() if owner == project.pk]
        for rule in sorted((*above, *own), key=lambda each: each.minutes, reverse=True):
            found[project.pk, rule.category] = _allowance(rule)
    return found


def limits_of(project: Project) -> list[tuple[str, Allowance]]:
    """Every category that is bounded in the project, with what holds there."""
    return sorted((category, found) for (_, category), found in allowances([project]).items())


def _allowance(rule: RunLimit) -> Allowance:
    kind = "project" if rule.project_id is not None else "department"
    return Allowance(
        timedelta(minutes=rule.minutes), timedelta(minutes=rule.notice_minutes), f"{kind} {rule.owner.name}"
    )
