"""Does a workload keep to the policies of its project? Refused with every broken rule and whose it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from portal.core.errors import BadRequest, Problem
from scheduling.priority import Effective, Level, Preemptibility, Request, Source, resolve
from workloads.models import Workload, WorkloadType
from workloads.policies import policy_for
from workloads.policy_rules import PREEMPTIBILITY, PRIORITY, Merged, Violation, defaults_in, violations
from workloads.resolution import current_dictionary, defaults_of, effective_as

POINTERS: Final = {PRIORITY: "/priority", PREEMPTIBILITY: "/preemptibility"}
_FIELDS: Final = {"priority": PRIORITY}
_CODE: Final = "policy_"


class Noncompliant(BadRequest):
    """Rules of policies are broken: 400 with `complianceIssues`, as Run:ai's clients read it."""

    code = "not_compliant"

    @property
    def beside(self) -> Mapping[str, Any]:
        """Run:ai's list, beside the problems."""
        return {"complianceIssues": [_issue(problem) for problem in self.problems if problem.code.startswith(_CODE)]}


def refuse_noncompliant(effective: Effective, type_: WorkloadType, merged: Merged) -> None:
    """Raise Noncompliant for every rule that the pair of a new workload of this type breaks."""
    if problems := [_problem(each) for each in broken_rules(effective, type_, merged)]:
        raise Noncompliant(problems[0].message, problems=problems)


def broken_rules(effective: Effective, type_: WorkloadType, merged: Merged) -> list[Violation]:
    """Every rule that the pair of a new workload of this type breaks."""
    if not merged:
        return []
    untouched = resolve(
        Request(), defaults=defaults_of(type_), dictionary=current_dictionary(), policy=defaults_in(merged)
    )
    return violations(effective, untouched if isinstance(untouched, Effective) else None, merged)


def refuse_new_priority(workload: Workload, level: Level) -> None:
    """The same for a priority that a submitted workload is to get: what may not be submitted is not reached later."""
    policy = policy_for(workload.type.name, workload.project)
    effective = effective_as(workload, level, Preemptibility(workload.preemptibility))
    merged = {name: found for name, found in policy.items() if name == PRIORITY}
    refuse_noncompliant(replace(effective, priority_source=Source.EXPLICIT), workload.type, merged)


def _problem(broken: Violation) -> Problem:
    of = {"policy": broken.place.words}
    return Problem(POINTERS[broken.field], f"{_CODE}{broken.rule}", broken.details, broken.allowed, numbers=of)


def _issue(problem: Problem) -> dict[str, str]:
    name = problem.pointer.rpartition("/")[2]
    rule = problem.code.removeprefix(_CODE)
    return {"field": f"spec.{_FIELDS.get(name, name)}", "details": problem.message, "rule": rule}
