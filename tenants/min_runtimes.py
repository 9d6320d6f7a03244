"""How long runs are left alone: what each queue says of it, and what that means for the runs of a project.

A project may only shorten what its department guarantees: who is protected is served, who waits for the room pays. A
scheduler that keeps it asks the department alone when another department wants the room back, so that no project makes
strangers wait. One that reads it of pods knows one time for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Q

from clusters.flavours import flavour_for
from clusters.models import Cluster
from portal.core.display import duration_text
from tenants.models import MinRuntime, Project


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
        """What a project's runs get where somebody of that department wants their room."""
        if taker_department_id == department_id:
            return self.effective(project_id, department_id)
        return self.of_department(department_id) or 0

    def __bool__(self) -> bool:
        """Is anything guaranteed to anybody?"""
        return any((*self.departments.values(), *self.projects.values()))


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How long a project's runs are left alone inside their department, by other departments, and whose rule it is."""

    inside: timedelta
    across: timedelta
    rule_of: str

    def __str__(self) -> str:
        """How long, as the rest of a sentence about a run that is left alone."""
        if self.inside == self.across:
            return _lasting(self.inside)
        return f"{_lasting(self.inside)} by its own department and {_lasting(self.across)} by other departments"


def min_runtimes_of(cluster: Cluster) -> MinRuntimes:
    """Every rule of a cluster. One query."""
    return _read(Q(department__cluster=cluster) | Q(project__cluster=cluster))


def guarantee_of(project: Project) -> Guarantee | None:
    """What holds for the runs of a project; None: nothing is guaranteed."""
    rules = _rules_of(project)
    own, above = rules.of_project(project.pk, project.department_id), rules.of_department(project.department_id)
    inside = rules.effective(project.pk, project.department_id)
    across = inside if flavour_for(project.cluster.flavour).traits.spares_young == "pods" else above or 0
    if not inside and not across:
        return None
    whose = f"project {project.name}" if own is not None else f"department {project.department.name}"
    return Guarantee(timedelta(minutes=inside), timedelta(minutes=across), whose)


def minutes_for(project: Project) -> int:
    """What pods of the project carry that are made now, for a scheduler that reads it of them."""
    return _rules_of(project).effective(project.pk, project.department_id)


def _rules_of(project: Project) -> MinRuntimes:
    return _read(Q(project=project) | Q(department=project.department_id))


def _lasting(time: timedelta) -> str:
    return f"for {duration_text(time.total_seconds())}" if time else "for no time"


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
