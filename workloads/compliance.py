"""Does a resolved workload keep to the policies of its project? Refused with every broken rule and whose it is."""

from collections.abc import Mapping
from typing import Any, Final

from portal.core.errors import BadRequest, Problem
from scheduling.priority import Effective
from workloads.policy_rules import PREEMPTIBILITY, PRIORITY, Merged, Violation, violations

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


def refuse_noncompliant(effective: Effective, untouched: Effective | None, merged: Merged) -> None:
    """Raise Noncompliant for every rule the effective pair breaks; `untouched` is the pair without anybody's wish."""
    if problems := [_problem(each) for each in violations(effective, untouched, merged)]:
        raise Noncompliant(problems[0].message, problems=problems)


def _problem(broken: Violation) -> Problem:
    of = {"policy": broken.place.words}
    return Problem(POINTERS[broken.field], f"{_CODE}{broken.rule}", broken.details, broken.allowed, numbers=of)


def _issue(problem: Problem) -> dict[str, str]:
    name = problem.pointer.rpartition("/")[2]
    rule = problem.code.removeprefix(_CODE)
    return {"field": f"spec.{_FIELDS.get(name, name)}", "details": problem.message, "rule": rule}
