"""Templates are made, changed and deleted by whoever submits in their project or manages their scope.

What they say is checked as a submission's fields are, and kept as it was sent: policies, quota and everything else
are asked when somebody submits with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from portal.core.actors import Actor
from portal.core.errors import BadRequest, Conflict, Problem, Refused
from tenants.models import Project
from tenants.permissions import Verb
from workloads.intake import IntakeRefused
from workloads.intake.native import Native, check_template, lacking, native_pointer, read_native
from workloads.models import Asset, WorkloadTemplate
from workloads.models.scoped import Owner
from workloads.models.template import TemplateKind
from workloads.permissions import require_keep, require_scope
from workloads.policies import known_priorities
from workloads.prepared import Filled, combined, filled
from workloads.scopes import columns_of
from workloads.selectors.templates import usable_assets, usable_templates
from workloads.services.preparing import asked, describe, locked, read_as, refuse_more, remove, store, told
from workloads.services.reading import as_rung_error, scope_of
from workloads.services.submission import resolve_for

NAME: Final = "template"
"""Under this name an unfinished body is looked at."""


@dataclass(frozen=True, slots=True)
class TemplateDraft:
    """What a template is to say. Assets by their ids."""

    name: str
    description: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    environment: UUID | None = None
    compute: UUID | None = None
    master: Mapping[str, Any] | None = None
    master_same: bool | None = None
    master_environment: UUID | None = None
    master_compute: UUID | None = None


def create_template(*, kind: str, owner: Owner, draft: TemplateDraft, actor: Actor) -> WorkloadTemplate:
    """A new template in the owner's scope; None is the installation. Refused or Conflict with pointers."""
    with asked("template.create", owner, draft.name, actor):
        require_scope(actor, owner, in_project=Verb.SUBMIT)
        refuse_more(WorkloadTemplate, kind, owner)
        row = WorkloadTemplate(kind=TemplateKind(kind), **columns_of(owner))
        _write(row, draft)
        store(row, "template.create", actor, before=None)
        return row


def change_template(*, template: WorkloadTemplate, draft: TemplateDraft, actor: Actor) -> WorkloadTemplate:
    """Put this in place of what it said; its kind and scope stay."""
    with asked("template.update", template.owner, template.name, actor):
        row = locked(template)
        require_keep(actor, row)
        before = told(row)
        _write(row, draft)
        store(row, "template.update", actor, before=before)
        return row


def delete_template(*, template: WorkloadTemplate, actor: Actor) -> None:
    """Gone. What was submitted with it stays as it is."""
    with asked("template.delete", template.owner, template.name, actor):
        row = locked(template)
        require_keep(actor, row)
        remove(row, "template.delete", actor)


def fill_from_template(*, kind: str, body: Mapping[str, Any], template_id: UUID, project: Project) -> Filled:
    """The body of a native submission with what the template says beside it. Refused at `/templateId`."""
    found = usable_templates(project).filter(pk=template_id).first()
    if found is None or found.kind != kind:
        message = f"templateId names no template for {kind} that holds in {project.name}."
        raise Refused.at("/templateId", "unknown_id", message)
    return filled(body, found)


def runnable(template: WorkloadTemplate) -> str:
    """What a submission of it as it stands would be refused for, first of all; empty for nothing."""
    return lacking(combined(template).native(template.kind, NAME), scope=scope_of(None))


def issues_in(template: WorkloadTemplate, project: Project) -> Sequence[Problem]:
    """What a submission of it to the project, as it stands, would be refused for by intake, dictionary or policy."""
    native = combined(template).native(template.kind, NAME)
    try:
        resolve_for(read_native(native, scope=scope_of(project)), project)
    except IntakeRefused as refusal:
        return as_rung_error(refusal).problems
    except (BadRequest, Refused, Conflict) as error:
        return [replace(each, pointer=native_pointer(each.pointer)) for each in error.problems]
    return ()


def _write(row: WorkloadTemplate, draft: TemplateDraft) -> None:
    describe(row, draft.name, draft.description)
    _refuse_master(row, draft)
    with read_as(("/masterSpec", "/master/spec")):
        check_template(Native(row.kind, NAME, draft.spec, master=draft.master), scope=scope_of(None))
    _refuse_unknown_priority(draft.spec)
    row.spec, row.master, row.master_same = dict(draft.spec), draft.master, draft.master_same
    row.environment = _asset("environment", draft.environment, row, at="/assets")
    row.compute = _asset("compute", draft.compute, row, at="/assets")
    row.master_environment = _asset("environment", draft.master_environment, row, at="/master/assets")
    row.master_compute = _asset("compute", draft.master_compute, row, at="/master/assets")


def _refuse_master(row: WorkloadTemplate, draft: TemplateDraft) -> None:
    leads = draft.master is not None or bool(draft.master_environment or draft.master_compute)
    if leads and row.kind != TemplateKind.DISTRIBUTED:
        raise Refused.at("/master", "not_offered", "Only a distributed training has a leading pod.")
    if leads and draft.master_same:
        raise Refused.at("/master", "exactly_one", "masterSpecSameAsWorker says that there is none: leave one out.")


def _refuse_unknown_priority(spec: Mapping[str, Any]) -> None:
    name = spec.get("priorityClass")
    if name is not None and known_priorities()(name) is None:
        raise Refused.at("/spec/priorityClass", "priority_unknown", f"There is no priority {name!r}.")


def _asset(kind: str, wanted: UUID | None, row: WorkloadTemplate, *, at: str) -> Asset | None:
    """The asset with this id, of the template's scope or a wider one; held until the end, so that it stays."""
    if wanted is None:
        return None
    found = usable_assets(row.owner).select_for_update(of=("self",)).filter(kind=kind, pk=wanted).first()
    if found is None:
        message = f"There is no {kind} of this id in the template's scope or a wider one."
        raise Refused.at(f"{at}/{kind}", "unknown_id", message)
    word = row.type_name.lower()
    if found.supports and not found.supports.get(word):
        raise Refused.at(f"{at}/{kind}", "not_supported", f"{found.name} is not meant for {row.kind}.")
    return found
