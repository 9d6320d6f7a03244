"""Create, change and delete templates and assets of a scope; merge a template into a submission.

What they say is checked as a submission's fields are, and kept as it was sent: policies, quota and everything else
are checked at a submission with them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.audit.services import audited_transaction, record
from portal.kit.db.validation import validate_text
from portal.kit.errors import BadRequest, Conflict, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.organisation.models import Department, Project
from workloads.intake import IntakeRefused
from workloads.intake.rules.native.objects import TYPES
from workloads.intake.rules.native.reader import (
    NativeBody,
    check_asset,
    check_template,
    lacking,
    native_pointer,
    read_native,
)
from workloads.intake.services import as_rung_error, grants_of
from workloads.policies.models import Owner
from workloads.policies.selectors import columns_of, known_priorities, place_of, require_scope
from workloads.policies.services import resolve_for
from workloads.workload_templates.models import Asset, AssetKind, TemplateBase, TemplateKind, WorkloadTemplate
from workloads.workload_templates.selectors import (
    MergedBody,
    merge_body,
    merge_template,
    pools_at,
    referring_to,
    require_keep,
    usable_assets,
    usable_templates,
)

Kept = TypeVar("Kept", Asset, WorkloadTemplate)
LONGEST_NAME: Final = 100
LONGEST_DESCRIPTION: Final = 250
MOST_IN_SCOPE: Final = 500
"""Templates, and assets, of one kind in one scope: lists of assets have no pages."""


@contextmanager
def audited(action: str, owner: Owner, name: str, actor: Actor) -> Iterator[None]:
    """One transaction, and a record where the answer is no."""
    with audited_transaction(actor=actor, action=action, entity_name=name[:254], **_entity(action, owner)):
        yield


@contextmanager
def read_as(*renamed: tuple[str, str]) -> Iterator[None]:
    """What intake refuses becomes Refused; pointers that begin with the first of a pair begin with the second."""
    try:
        yield
    except IntakeRefused as refusal:
        problems = list(refusal.problems)
        for old, new in renamed:
            problems = [replace(each, pointer=_moved(each.pointer, old, new)) for each in problems]
        raise as_rung_error(IntakeRefused(refusal.status, problems)) from None


def _moved(pointer: str, old: str, new: str) -> str:
    return new + pointer.removeprefix(old) if pointer.startswith(old) else pointer


def locked(row: Kept) -> Kept:
    """The row as it is now, held until the end of the transaction. NotFound where it has gone meanwhile."""
    found = type(row)._default_manager.select_for_update().filter(pk=row.pk).first()
    if found is None:
        raise NotFound
    return found


def describe(row: TemplateBase, name: str, description: str) -> None:
    """Give it its name and description. Refused with a pointer below `/meta`."""
    found = validate_text("/meta/name", name, longest=LONGEST_NAME)
    if not found:
        raise ValidationFailed.at("/meta/name", "required", "A name must have 1 to 100 characters.")
    row.name, row.description = found, validate_text("/meta/description", description, longest=LONGEST_DESCRIPTION)


def check_scope_size(model: type[Asset | WorkloadTemplate], kind: str, owner: Owner) -> None:
    """Conflict where the scope is full."""
    if model.objects.filter(kind=kind, **columns_of(owner)).count() >= MOST_IN_SCOPE:
        message = f"{place_of(owner).words} has the maximum of {MOST_IN_SCOPE}. Delete some first."
        raise Conflict(message, code="too_many")


def store(row: Asset | WorkloadTemplate, action: str, actor: Actor, *, before: Mapping[str, Any] | None) -> None:
    """Write the row and its record. Conflict where its scope has one of that kind and name."""
    row.updated_by, row.updated_at = actor.name, timezone.now()
    if before is None:
        row.created_by, row.created_at = row.updated_by, row.updated_at
        row.created_by_kind, row.created_by_id = str(actor.kind), actor.id
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        message = f"{place_of(row.owner).words} already has a {row.get_kind_display()} named {row.name}."
        raise Conflict.at("/meta/name", "name_taken", message, name=row.name) from None
    detail = {"kind": row.kind, "before": before, "after": audit_snapshot(row)}
    record(actor, action, row, detail=detail, entity_name=row.name, **_entity(action, row.owner))


def remove(row: Asset | WorkloadTemplate, action: str, actor: Actor) -> None:
    """Delete the row, with its record."""
    detail = {"kind": row.kind, "before": audit_snapshot(row)}
    record(actor, action, row, detail=detail, entity_name=row.name, **_entity(action, row.owner))
    row.delete()


def audit_snapshot(row: Asset | WorkloadTemplate) -> dict[str, Any]:
    """The row as records tell it."""
    found: dict[str, Any] = {"name": row.name, "description": row.description, "spec": row.spec}
    if isinstance(row, WorkloadTemplate):
        assets = (row.environment, row.compute, row.master_environment, row.master_compute)
        found |= {"assets": [asset.name for asset in assets if asset], "master": row.master}
    return found


def forget(owner: Department | Project, actor: Actor) -> None:
    """Delete what is prepared in a department or project that goes, in its transaction."""
    for template in WorkloadTemplate.objects.filter(**columns_of(owner)).order_by("name"):
        remove(template, "template.delete", actor)
    for asset in Asset.objects.filter(**columns_of(owner)).order_by("name"):
        remove(asset, "asset.delete", actor)


def _entity(action: str, owner: Owner) -> dict[str, str]:
    project = str(owner.pk) if isinstance(owner, Project) else ""
    return {"entity_type": action.partition(".")[0], "project_id": project}


@dataclass(frozen=True, slots=True)
class AssetDraft:
    """What an asset is to say. `supports`: Run:ai's words of the kinds it is meant for; empty for all."""

    name: str
    description: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    supports: Mapping[str, Any] = field(default_factory=dict)


def create_asset(*, kind: str, owner: Owner, draft: AssetDraft, actor: Actor) -> Asset:
    """A new asset in the owner's scope; None is the installation. Refused or Conflict with pointers."""
    with audited("asset.create", owner, draft.name, actor):
        require_scope(actor, owner, in_project=Permission.SUBMIT)
        check_scope_size(Asset, kind, owner)
        row = Asset(kind=AssetKind(kind), supports=dict(draft.supports), **columns_of(owner))
        _write_asset(row, draft)
        store(row, "asset.create", actor, before=None)
        return row


def change_asset(*, asset: Asset, draft: AssetDraft, actor: Actor) -> Asset:
    """Put this in place of what it said; its kind, scope and supported kinds stay. Templates say it from now on."""
    with audited("asset.update", asset.owner, asset.name, actor):
        row = locked(asset)
        require_keep(actor, row)
        before = audit_snapshot(row)
        _write_asset(row, draft)
        store(row, "asset.update", actor, before=before)
        return row


def delete_asset(*, asset: Asset, actor: Actor) -> None:
    """Gone. Conflict, with their number, while templates refer to it."""
    with audited("asset.delete", asset.owner, asset.name, actor):
        row = locked(asset)
        require_keep(actor, row)
        _check_asset_unused(row)
        remove(row, "asset.delete", actor)


def _write_asset(row: Asset, draft: AssetDraft) -> None:
    describe(row, draft.name, draft.description)
    with read_as():
        check_asset(row.kind, draft.spec, scope=grants_of(None))
    row.spec = dict(draft.spec)


def _check_asset_unused(row: Asset) -> None:
    """The manager of an asset of a wide scope sees how many templates use it, not the names of foreign ones."""
    if count := WorkloadTemplate.objects.filter(referring_to(row)).count():
        message = f"{count} templates use {row.name}. Change them first."
        raise Conflict.at("", "in_use", message, templates=count)


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
    with audited("template.create", owner, draft.name, actor):
        require_scope(actor, owner, in_project=Permission.SUBMIT)
        check_scope_size(WorkloadTemplate, kind, owner)
        row = WorkloadTemplate(kind=TemplateKind(kind), **columns_of(owner))
        _write_template(row, draft)
        store(row, "template.create", actor, before=None)
        return row


def change_template(*, template: WorkloadTemplate, draft: TemplateDraft, actor: Actor) -> WorkloadTemplate:
    """Put this in place of what it said; its kind and scope stay."""
    with audited("template.update", template.owner, template.name, actor):
        row = locked(template)
        require_keep(actor, row)
        before = audit_snapshot(row)
        _write_template(row, draft)
        store(row, "template.update", actor, before=before)
        return row


def delete_template(*, template: WorkloadTemplate, actor: Actor) -> None:
    """Gone. What was submitted with it stays as it is."""
    with audited("template.delete", template.owner, template.name, actor):
        row = locked(template)
        require_keep(actor, row)
        remove(row, "template.delete", actor)


def fill_from_template(*, kind: str, body: Mapping[str, Any], template_id: UUID, project: Project) -> MergedBody:
    """The body of a native submission with what the template says beside it. Refused at `/templateId`."""
    found = usable_templates(project).filter(pk=template_id).first()
    if found is None or found.kind != kind:
        message = f"templateId is not a template for {kind} that applies in {project.name}."
        raise ValidationFailed.at("/templateId", "unknown_id", message)
    return merge_body(body, found)


def runnable(template: WorkloadTemplate) -> str:
    """The first reason why a submission of it would be refused; empty for none."""
    return lacking(merge_template(template).native(template.kind, NAME), scope=grants_of(None))


def issues_in(template: WorkloadTemplate, project: Project) -> Sequence[Problem]:
    """Why a submission of it to the project would be refused by intake, dictionary or policy."""
    native = merge_template(template).native(template.kind, NAME)
    try:
        resolve_for(read_native(native, scope=grants_of(project)), project)
    except IntakeRefused as refusal:
        return as_rung_error(refusal).problems
    except (BadRequest, ValidationFailed, Conflict) as error:
        return [replace(each, pointer=native_pointer(each.pointer)) for each in error.problems]
    return ()


def _write_template(row: WorkloadTemplate, draft: TemplateDraft) -> None:
    describe(row, draft.name, draft.description)
    _check_master(row, draft)
    with read_as(("/masterSpec", "/master/spec")):
        check_template(NativeBody(row.kind, NAME, draft.spec, master=draft.master), scope=grants_of(None))
    _check_known_priority(draft.spec)
    _check_known_pools(draft.spec, row)
    row.spec, row.master, row.master_same = dict(draft.spec), draft.master, draft.master_same
    row.environment = _asset("environment", draft.environment, row, at="/assets")
    row.compute = _asset("compute", draft.compute, row, at="/assets")
    row.master_environment = _asset("environment", draft.master_environment, row, at="/master/assets")
    row.master_compute = _asset("compute", draft.master_compute, row, at="/master/assets")


def _check_master(row: WorkloadTemplate, draft: TemplateDraft) -> None:
    leads = draft.master is not None or bool(draft.master_environment or draft.master_compute)
    if leads and row.kind != TemplateKind.DISTRIBUTED:
        raise ValidationFailed.at("/master", "not_offered", "Only a distributed training has a master pod.")
    if leads and draft.master_same:
        raise ValidationFailed.at(
            "/master", "exactly_one", "masterSpecSameAsWorker and masterSpec exclude each other. Remove one."
        )


def _check_known_priority(spec: Mapping[str, Any]) -> None:
    name = spec.get("priorityClass")
    if name is not None and known_priorities()(name) is None:
        raise ValidationFailed.at("/spec/priorityClass", "priority_unknown", f"Unknown priority {name!r}.")


def _check_known_pools(spec: Mapping[str, Any], row: WorkloadTemplate) -> None:
    """Refuse node pools that no cluster of the template's scope has. A pool that is deleted later is shown as gone."""
    if not (wanted := spec.get("nodePools")):
        return
    known, place = pools_at(row.owner), place_of(row.owner).words
    if problems := [
        Problem(
            f"/spec/nodePools/{index}",
            "pool_unknown",
            f"Unknown node pool {name[:63]!r}. {_known_pools(known, place)}",
            tuple(known),
        )
        for index, name in enumerate(wanted)
        if name not in known
    ]:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)


def _known_pools(names: Sequence[str], place: str) -> str:
    if not names:
        return f"There are no node pools in {place}."
    return f"Node pools in {place}: {', '.join(names[:MOST_NAMED])}{' …' if len(names) > MOST_NAMED else ''}."


MOST_NAMED: Final = 20
"""Longer lists of node pools are cut in a message."""


def _asset(kind: str, wanted: UUID | None, row: WorkloadTemplate, *, at: str) -> Asset | None:
    """The asset with this id, of the template's scope or a wider one; held until the end, so that it stays."""
    if wanted is None:
        return None
    found = usable_assets(row.owner).select_for_update(of=("self",)).filter(kind=kind, pk=wanted).first()
    if found is None:
        message = f"No {kind} with this id in the template's scope or a wider one."
        raise ValidationFailed.at(f"{at}/{kind}", "unknown_id", message)
    word = TYPES[row.kind].lower()
    if found.supports and not found.supports.get(word):
        raise ValidationFailed.at(f"{at}/{kind}", "not_supported", f"{found.name} is not for {row.kind}.")
    return found
