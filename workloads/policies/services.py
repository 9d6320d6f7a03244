"""Set, change and delete policies; resolve priority and preemptibility under them; check compliance."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from portal.audit.services import audited_transaction, record
from portal.kit.errors import BadRequest, Conflict, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change
from scheduling.model.preemptibility import Preemptibility
from tenants.access.rules import Permission
from tenants.organisation.models import Department, Project
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.resolution import (
    EXPLICIT_PREEMPTIBILITY,
    EXPLICIT_PRIORITY,
    LABEL_PREEMPTIBILITY,
    LABEL_PRIORITY,
    NVCF_NAMESPACE,
    NVCF_PAIR,
    Effective,
    PriorityEntry,
    Refusal,
    Request,
    Source,
    resolve,
)
from workloads.dictionary.selectors import current_dictionary, defaults_of, effective_as, type_named
from workloads.intake import WorkloadSpec
from workloads.plans.models import PlanScope
from workloads.plans.selectors import Change, Facts
from workloads.plans.services.setting_plans import Groups, Reach, SettingPlan
from workloads.policies.models import Owner, Policy
from workloads.policies.rules.documents import Document, patched, read_document, without
from workloads.policies.rules.merge import (
    KIND_OF_TYPE,
    PREEMPTIBILITY,
    PRIORITY,
    Merged,
    PolicyKind,
    Violation,
    contradiction,
    defaults_in,
    violations,
)
from workloads.policies.selectors import (
    columns_of,
    department_of,
    effective_policy_at,
    known_priorities,
    needed_permission,
    owner_names,
    place_of,
    policies_reaching,
    policy_for,
    policy_sentences,
    require_scope,
)
from workloads.state.models import Workload
from workloads.state.selectors.usage import live

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


def check_new_priority(workload: Workload, entry: PriorityEntry) -> None:
    """The same for a priority that a submitted workload is to get: what may not be submitted is not reached later."""
    policy = policy_for(workload.type.name, workload.project)
    effective = effective_as(workload, entry, Preemptibility(workload.preemptibility))
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
        checked = _checked(target.kind, name, document)
        return _keep(target, target.row, name, checked, actor)


def change_policy(
    *, target: PolicyTarget, document: object, actor: Actor, name: str | None = None, reset: Sequence[str] = ()
) -> Policy:
    """Clear the fields of `reset`, then merge the document in: absent stays, null takes away. Absent where none is."""
    with audited_transaction(actor=actor, action="policy.set", **_entity(target)):
        require_scope(actor, target.owner)
        wanted, whole = changed_policy(target, document, name=name, reset=reset)
        checked = _checked(target.kind, wanted, whole)
        return _keep(target, target.row, wanted, checked, actor)


def changed_policy(
    target: PolicyTarget, document: object, *, name: str | None, reset: Sequence[str]
) -> tuple[str, object]:
    """Name and document of a policy after such a change. NotFound where there is none."""
    with transaction.atomic():
        row = target.row
    if row is None:
        raise NotFound
    cleared, problems = without(target.kind, row.document, list(reset))
    _raise_problems(problems)
    return row.name if name is None else name, cleared if document is None else patched(cleared, document)


def delete_policy(*, target: PolicyTarget, actor: Actor) -> None:
    """Take the policy away; those of wider scopes go on holding. Absent where there is none."""
    with audited_transaction(actor=actor, action="policy.lift", **_entity(target)):
        require_scope(actor, target.owner)
        if (row := target.row) is None:
            raise NotFound
        check_direct_change(department_of(target.owner))
        record(actor, "policy.lift", row, detail={"before": row.document}, **_entity(target))
        row.delete()


def _checked(kind: PolicyKind, name: str, document: object) -> Document:
    checked, problems = read_document(kind, document, known_priorities())
    if not 0 < len(name.strip()) <= LONGEST_NAME:
        problems.insert(0, Problem("/meta/name", "bad_name", f"A name must have 1 to {LONGEST_NAME} characters."))
    _raise_problems(problems)
    return checked


def _raise_problems(problems: list[Problem]) -> None:
    if problems:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)


def _keep(target: PolicyTarget, row: Policy | None, name: str, document: Document, actor: Actor) -> Policy:
    now = timezone.now()
    check_direct_change(department_of(target.owner))
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


class PolicyPlan(SettingPlan):
    """`kind`; `department`, `project` or `cluster` by name, or none of them; `name` and `document`, None removes it.

    Policies bind what is submitted later. What is there goes on, and could perhaps not be submitted again.
    """

    page = "workloads:policies"

    def title(self, change: Change) -> str:
        place = next((change[each] for each in ("project", "department", "cluster") if change.get(each)), "")
        return f"{change['kind']} policy of {place or 'the whole installation'}"

    def scopes(self, change: Change) -> list[PlanScope]:
        verb, place = needed_permission(policy_target(change).owner, Permission.MANAGE_PROJECT)
        return [PlanScope(permission=verb.value, **place)]

    def facts(self, change: Change) -> Facts:
        target = policy_target(change)
        rows = [row for row in policies_reaching(target.owner) if row.kind == target.kind]
        found = {target.title: "none"}
        for row in rows:
            found[f"{row.kind} policy of {row.place.words}"] = " ".join(policy_sentences(row)) or "no rule"
        return found

    def apply(self, change: Change, actor: Actor) -> list[Problem]:
        target = policy_target(change)
        if change["document"] is not None:
            set_policy(target=target, name=change["name"], document=change["document"], actor=actor)
        elif target.row:
            delete_policy(target=target, actor=actor)
        return []

    def undo(self, change: Change) -> Change:
        target = policy_target(change)
        row = Policy.objects.filter(kind=str(target.kind), **target.where).first()
        return {**change, "name": row.name if row else "", "document": row.document if row else None}

    def reach(self, change: Change) -> Reach:
        owner = policy_target(change).owner
        rows = Project.objects.select_related("department", "cluster")
        if isinstance(owner, Project):
            rows = rows.filter(pk=owner.pk)
        elif owner is not None:
            rows = rows.filter(department=owner) if isinstance(owner, Department) else rows.filter(cluster=owner)
        return Reach((), {row.pk: row for row in rows})

    def groups(self, change: Change, reach: Reach) -> Groups:
        """Live workloads whose pair the policies of now refuse. Each pair of each project is decided once."""
        types = [name for name, kind in KIND_OF_TYPE.items() if kind == change["kind"]]
        rows = live(list(reach.projects)).filter(type__name__in=types).order_by("created_at")
        shapes: dict[tuple[Any, ...], bool] = {}
        known = {each.name: each for each in WorkloadType.objects.select_related("category", "priority")}
        dictionary, refused = current_dictionary(), []
        for pk, *shape in rows.values_list("pk", *_SHAPE):
            key = tuple(shape)
            if key not in shapes:
                shapes[key] = _refused(key, reach.projects, known, dictionary.lookup)
            if shapes[key]:
                refused.append(pk)
        return {"refused_again": refused}

    def notes(self, change: Change) -> Iterator[str]:
        """What the policies contradict each other in, once this one is among them."""
        target = policy_target(change)
        if problem := contradiction(effective_policy_at(target.owner, target.kind).merged):
            yield problem


_SHAPE: Final = (
    "project_id",
    "type__name",
    "priority__name",
    "priority_source",
    "preemptibility",
    "preemptibility_source",
)


def _refused(
    shape: tuple[Any, ...],
    projects: Mapping[int, Project],
    types: Mapping[str, WorkloadType],
    lookup: Callable[[str], PriorityEntry | None],
) -> bool:
    project, type_, priority, priority_source, preemptibility, source = shape
    entry = lookup(priority)
    if entry is None:
        return False
    pair = Effective(entry, Source(priority_source), Preemptibility(preemptibility), Source(source))
    return bool(broken_rules(pair, types[type_], policy_for(type_, projects[project])))


def policy_target(change: Change) -> PolicyTarget:
    """Which policy a change names. NotFound for a place that is absent."""
    on = {"cluster__name": change["cluster"]} if change.get("cluster") else {}
    owner: Owner
    if name := change.get("project"):
        owner = Project.objects.filter(name=name, **on).select_related("department", "cluster").first()
    elif name := change.get("department"):
        owner = Department.objects.filter(name=name, **on).select_related("cluster").first()
    elif name := change.get("cluster"):
        owner = Cluster.objects.filter(name=name).first()
    else:
        return PolicyTarget(PolicyKind(change["kind"]))
    if owner is None:
        raise NotFound
    return PolicyTarget(PolicyKind(change["kind"]), owner)


def policy_change(target: PolicyTarget, name: str, document: object) -> Change:
    """The policy as a change to plan; without a document: its removal."""
    return {"kind": str(target.kind), **owner_names(target.owner), "name": name, "document": document}
