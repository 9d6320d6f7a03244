"""Set, change and delete policies; resolve priority and preemptibility under them; check compliance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from portal.audit.services import audited_transaction, record
from portal.kit.errors import BadRequest, Conflict, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from tenants.organisation.models import Project
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.resolution import (
    EXPLICIT_PREEMPTIBILITY,
    EXPLICIT_PRIORITY,
    LABEL_PREEMPTIBILITY,
    LABEL_PRIORITY,
    NVCF_NAMESPACE,
    NVCF_PAIR,
    Effective,
    Level,
    Refusal,
    Request,
    Source,
    resolve,
)
from workloads.dictionary.selectors import current_dictionary, defaults_of, effective_as, type_named
from workloads.intake import WorkloadSpec
from workloads.policies.models import Owner, Policy
from workloads.policies.rules.documents import Document, patched, read_document, without
from workloads.policies.rules.merge import (
    PREEMPTIBILITY,
    PRIORITY,
    Merged,
    PolicyKind,
    Violation,
    defaults_in,
    violations,
)
from workloads.policies.selectors import columns_of, known_priorities, place_of, policy_for, require_scope
from workloads.state.models import Workload

POINTERS: Final = {PRIORITY: "/priority", PREEMPTIBILITY: "/preemptibility"}
_FIELDS: Final = {"priority": PRIORITY}
_CODE: Final = "policy_"


class NotCompliant(BadRequest):
    """Rules of policies are broken: 400 with `complianceIssues`, as Run:ai's clients read it."""

    code = "not_compliant"

    @property
    def beside(self) -> Mapping[str, Any]:
        return {"complianceIssues": [_issue(problem) for problem in self.problems if problem.code.startswith(_CODE)]}


def check_compliance(effective: Effective, type_: WorkloadType, merged: Merged) -> None:
    """Raise NotCompliant for every rule that the pair of a new workload of this type breaks."""
    if problems := [_problem(each) for each in broken_rules(effective, type_, merged)]:
        raise NotCompliant(problems[0].message, problems=problems)


def broken_rules(effective: Effective, type_: WorkloadType, merged: Merged) -> list[Violation]:
    """Every rule that the pair of a new workload of this type breaks."""
    if not merged:
        return []
    untouched = resolve(
        Request(), defaults=defaults_of(type_), dictionary=current_dictionary(), policy=defaults_in(merged)
    )
    return violations(effective, untouched if isinstance(untouched, Effective) else None, merged)


def check_new_priority(workload: Workload, level: Level) -> None:
    """The same for a priority that a submitted workload is to get: what may not be submitted is not reached later."""
    policy = policy_for(workload.type.name, workload.project)
    effective = effective_as(workload, level, Preemptibility(workload.preemptibility))
    merged = {name: found for name, found in policy.items() if name == PRIORITY}
    check_compliance(replace(effective, priority_source=Source.EXPLICIT), workload.type, merged)


def _problem(broken: Violation) -> Problem:
    of = {"policy": broken.place.words}
    return Problem(POINTERS[broken.field], f"{_CODE}{broken.rule}", broken.details, broken.allowed, numbers=of)


def _issue(problem: Problem) -> dict[str, str]:
    name = problem.pointer.rpartition("/")[2]
    rule = problem.code.removeprefix(_CODE)
    return {"field": f"spec.{_FIELDS.get(name, name)}", "details": problem.message, "rule": rule}


LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """Which policy: of this kind, for this owner; None is the installation."""

    kind: PolicyKind
    owner: Owner = None

    @property
    def where(self) -> dict[str, str | Owner]:
        return columns_of(self.owner)

    @property
    def title(self) -> str:
        """`training policy of department research`."""
        return f"{self.kind} policy of {place_of(self.owner).words}"

    @property
    def row(self) -> Policy | None:
        """The policy, locked until the end of the transaction; None where there is none."""
        return Policy.objects.select_for_update().filter(kind=str(self.kind), **self.where).first()


def set_policy(*, target: PolicyTarget, name: str, document: object, actor: Actor) -> Policy:
    """Make the policy, or put this one in its place. ValidationFailed names what would not be enforced."""
    with audited_transaction(actor=actor, action="policy.set", **_entity(target)):
        require_scope(actor, target.owner)
        kept = _checked(target.kind, name, document)
        return _keep(target, target.row, name, kept, actor)


def change_policy(
    *, target: PolicyTarget, document: object, actor: Actor, name: str | None = None, reset: Sequence[str] = ()
) -> Policy:
    """Clear the fields of `reset`, then merge the document in: absent stays, null takes away. Absent where none is."""
    with audited_transaction(actor=actor, action="policy.set", **_entity(target)):
        require_scope(actor, target.owner)
        if (row := target.row) is None:
            raise NotFound
        cleared, problems = without(target.kind, row.document, list(reset))
        _raise_problems(problems)
        wanted = row.name if name is None else name
        kept = _checked(target.kind, wanted, cleared if document is None else patched(cleared, document))
        return _keep(target, row, wanted, kept, actor)


def delete_policy(*, target: PolicyTarget, actor: Actor) -> None:
    """Take the policy away; those of wider scopes go on holding. Absent where there is none."""
    with audited_transaction(actor=actor, action="policy.lift", **_entity(target)):
        require_scope(actor, target.owner)
        if (row := target.row) is None:
            raise NotFound
        record(actor, "policy.lift", row, detail={"before": row.document}, **_entity(target))
        row.delete()


def _checked(kind: PolicyKind, name: str, document: object) -> Document:
    kept, problems = read_document(kind, document, known_priorities())
    if not 0 < len(name.strip()) <= LONGEST_NAME:
        problems.insert(0, Problem("/meta/name", "bad_name", f"A name must have 1 to {LONGEST_NAME} characters."))
    _raise_problems(problems)
    return kept


def _raise_problems(problems: list[Problem]) -> None:
    if problems:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)


def _keep(target: PolicyTarget, row: Policy | None, name: str, document: Document, actor: Actor) -> Policy:
    now = timezone.now()
    before = row.document if row else None
    row = row or Policy(kind=str(target.kind), **target.where, created_by=actor.name, created_at=now)
    row.name, row.document, row.updated_by, row.updated_at = name.strip(), document, actor.name, now
    _store(row, target)
    record(actor, "policy.set", row, detail={"name": row.name, "before": before, "after": document}, **_entity(target))
    return row


def _store(row: Policy, target: PolicyTarget) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise Conflict(f"Another user just created the {target.title}. Reload the page.", code="moved_on") from None


def _entity(target: PolicyTarget) -> dict[str, str]:
    project = str(target.owner.pk) if isinstance(target.owner, Project) else ""
    return {"entity_type": "policy", "entity_name": target.title, "project_id": project}


def check_enforceable(effective: Effective, project: Project) -> None:
    """A preemptibility that the cluster's scheduler has no words for is refused with its name."""
    flavour = flavour_for(project.cluster.flavour)
    if effective.preemptibility not in flavour.preemptibilities:
        raise ValidationFailed.at(
            "/preemptibility",
            "preemptibility_unsupported",
            f"{flavour.title} on {project.cluster.name} does not support {effective.preemptibility}.",
            allowed=flavour.preemptibilities,
            flavour=flavour.name,
        )


RESOLUTION_POINTERS: Final = {
    EXPLICIT_PRIORITY: "/priority",
    EXPLICIT_PREEMPTIBILITY: "/preemptibility",
    LABEL_PRIORITY: "/metadata/labels/priorityClassName",
    LABEL_PREEMPTIBILITY: "/metadata/labels/kai.scheduler~1preemptibility",
}


def type_of(spec: WorkloadSpec) -> WorkloadType:
    """The type's row with its category and priority."""
    return type_named(spec.type_name)


def resolve_for(spec: WorkloadSpec, project: Project) -> Effective:
    """The effective pair for this spec, with sources. ValidationFailed where nothing may be resolved."""
    effective = resolve_pair(spec.request, type_of(spec), project)
    check_enforceable(effective, project)
    return effective


def resolve_pair(request: Request, type_: WorkloadType, project: Project) -> Effective:
    """Policies fill in before the type's defaults do; their rules are checked against what came out."""
    answer = effective_pair(request, type_, project)
    check_compliance(answer, type_, _policy_of(type_, project))
    return answer


def _policy_of(type_: WorkloadType, project: Project) -> Merged:
    return {} if project.namespace == NVCF_NAMESPACE else policy_for(type_.name, project)


def effective_pair(request: Request, type_: WorkloadType, project: Project) -> Effective:
    """The same without the rules of policies."""
    _check_offered(type_)
    nvcf, policy = project.namespace == NVCF_NAMESPACE, _policy_of(type_, project)
    defaults = NVCF_PAIR if nvcf else defaults_of(type_)
    answer = resolve(request, defaults=defaults, dictionary=current_dictionary(), policy=defaults_in(policy))
    if isinstance(answer, Refusal):
        pointer = RESOLUTION_POINTERS.get(answer.field, answer.field)
        raise ValidationFailed.at(pointer, answer.code, answer.message, allowed=answer.allowed)
    if type_.fixed:
        raise ValidationFailed.at("/kind", "not_submittable", f"{type_.title} workloads cannot be submitted.")
    return answer


def _check_offered(type_: WorkloadType) -> None:
    if type_.withdrawn_at is not None:
        text = f"{type_.title} workloads ({type_.name}) cannot be submitted: the type is disabled."
        raise ValidationFailed.at("/kind", "type_withdrawn", text)
