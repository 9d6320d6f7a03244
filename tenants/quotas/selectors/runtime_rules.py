"""Which time limit, idle limit and minimum runtime applies to the workloads of a project.

A project may only shorten what its department guarantees: who is protected is served, who waits for the room pays. A
scheduler that keeps it asks the department alone when another department wants the room back, so that no project
makes strangers wait. One that reads it of pods knows one time for both.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.kit.pages.formatting import duration_text
from tenants.organisation.models import Department, Project
from tenants.quotas.models import MinRuntime, RuntimeLimit, TimeLimit

Key = tuple[int, str]
"""(project id, category)"""


@dataclass(frozen=True, slots=True, order=True)
class Allowance:
    """How long a run may last, how long before its end its owner is notified, and whose rule it is."""

    lasts: timedelta
    notice: timedelta
    rule_of: str

    def ends(self, started: datetime) -> datetime:
        """When a run whose clock started then is stopped."""
        return started + self.lasts


def allowances(projects: Collection[Project], kind: type[RuntimeLimit] = TimeLimit) -> Mapping[Key, Allowance]:
    """For each of these projects and every category that a rule names. No key: no limit."""
    departments = {project.department_id for project in projects}
    rows = kind._default_manager.filter(Q(project__in=projects) | Q(department__in=departments))
    by_owner: dict[Department | Project, list[RuntimeLimit]] = defaultdict(list)
    for rule in rows.select_related("project", "department"):
        by_owner[rule.owner].append(rule)
    found: dict[Key, Allowance] = {}
    for project in projects:
        for rule in (*by_owner[project.department], *by_owner[project]):
            each, key = _allowance(rule), (project.pk, rule.category)
            found[key] = min(each, found.get(key, each))
    return found


def limits_of(project: Project, kind: type[RuntimeLimit] = TimeLimit) -> list[tuple[str, Allowance]]:
    """Every category that is bounded in the project, with what holds there."""
    return sorted((category, found) for (_, category), found in allowances([project], kind).items())


def _allowance(rule: RuntimeLimit) -> Allowance:
    return Allowance(timedelta(minutes=rule.minutes), timedelta(minutes=rule.notice_minutes), rule.whose)


@dataclass(frozen=True, slots=True)
class MinRuntimes:
    """Minutes by department id and by project id, as they were set."""

    departments: Mapping[int, int] = field(default_factory=dict)
    projects: Mapping[int, int] = field(default_factory=dict)

    def of_department(self, department_id: int) -> int | None:
        """What a department's queues say; None: nothing."""
        return self.departments.get(department_id)

    def of_project(self, project_id: int, department_id: int) -> int | None:
        """What a project's queues say, at most its department's; None: what the department's say holds."""
        own, above = self.projects.get(project_id), self.departments.get(department_id)
        return own if own is None or above is None else min(own, above)

    def effective(self, project_id: int, department_id: int) -> int:
        """What a project's runs get inside their department: its own or, without one, its department's."""
        own, above = self.of_project(project_id, department_id), self.of_department(department_id)
        return own if own is not None else above or 0

    def against(self, taker_department_id: int, project_id: int, department_id: int) -> int:
        """The minimum runtime of a project's runs against preemptors of that department."""
        if taker_department_id == department_id:
            return self.effective(project_id, department_id)
        return self.of_department(department_id) or 0

    def __bool__(self) -> bool:
        return any((*self.departments.values(), *self.projects.values()))


@dataclass(frozen=True, slots=True)
class MinRuntimeGuarantee:
    """How long a project's runs are left alone inside their department, by other departments, and whose rule it is."""

    inside: timedelta
    across: timedelta
    rule_of: str

    def __str__(self) -> str:
        """How long, as the rest of a sentence about a run that is left alone."""
        if self.inside == self.across:
            return _lasting(self.inside)
        return f"{_lasting(self.inside)} within its department and {_lasting(self.across)} from other departments"


def min_runtimes_of(cluster: Cluster) -> MinRuntimes:
    """Every rule of a cluster. One query."""
    return _read(Q(department__cluster=cluster) | Q(project__cluster=cluster))


def guarantee_of(project: Project) -> MinRuntimeGuarantee | None:
    """What holds for the runs of a project; None: nothing is guaranteed."""
    rules = _rules_of(project)
    own, above = rules.of_project(project.pk, project.department_id), rules.of_department(project.department_id)
    inside = rules.effective(project.pk, project.department_id)
    across = inside if flavour_for(project.cluster.flavour).traits.protects_minimum_runtime == "pods" else above or 0
    if not inside and not across:
        return None
    whose = f"project {project.name}" if own is not None else f"department {project.department.name}"
    return MinRuntimeGuarantee(timedelta(minutes=inside), timedelta(minutes=across), whose)


def minutes_for(project: Project) -> int:
    """What pods of the project carry that are made now, for a scheduler that reads it of them."""
    return _rules_of(project).effective(project.pk, project.department_id)


def _rules_of(project: Project) -> MinRuntimes:
    return _read(Q(project=project) | Q(department=project.department_id))


def _lasting(time: timedelta) -> str:
    return f"for {duration_text(time)}" if time else "for no time"


def _read(which: Q) -> MinRuntimes:
    departments: dict[int, int] = {}
    projects: dict[int, int] = {}
    rows = MinRuntime.objects.filter(which).order_by()
    for department, project, minutes in rows.values_list("department", "project", "minutes"):
        if project is not None:
            projects[project] = minutes
        elif department is not None:
            departments[department] = minutes
    return MinRuntimes(departments, projects)
