"""What templates and assets share: who keeps them where, how they are stored, that they leave with their scope."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Absent, Conflict, Refused
from tenants.models import Department, Project
from tenants.services.checks import readable
from workloads.intake import IntakeRefused
from workloads.models import Asset, WorkloadTemplate
from workloads.models.scoped import Owner
from workloads.models.template import Prepared
from workloads.scopes import columns_of, place_of
from workloads.services.denials import verb
from workloads.services.reading import as_rung_error

Kept = TypeVar("Kept", Asset, WorkloadTemplate)
LONGEST_NAME: Final = 100
LONGEST_DESCRIPTION: Final = 250
MOST_IN_SCOPE: Final = 500
"""Templates, and assets, of one kind in one scope: lists of assets have no pages."""


@contextmanager
def asked(action: str, owner: Owner, name: str, actor: Actor) -> Iterator[None]:
    """One transaction, and a record where the answer is no."""
    with verb(actor=actor, action=action, entity_name=name[:254], **_entity(action, owner)):
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
    """The row as it is now, held until the end of the transaction. Absent where it has gone meanwhile."""
    found = type(row)._default_manager.select_for_update().filter(pk=row.pk).first()
    if found is None:
        raise Absent
    return found


def describe(row: Prepared, name: str, description: str) -> None:
    """Give it its name and description. Refused with a pointer below `/meta`."""
    found = readable("/meta/name", name, longest=LONGEST_NAME)
    if not found:
        raise Refused.at("/meta/name", "required", "A name has 1 to 100 characters.")
    row.name, row.description = found, readable("/meta/description", description, longest=LONGEST_DESCRIPTION)


def refuse_more(model: type[Asset | WorkloadTemplate], kind: str, owner: Owner) -> None:
    """Conflict where the scope is full."""
    if model.objects.filter(kind=kind, **columns_of(owner)).count() >= MOST_IN_SCOPE:
        message = f"{place_of(owner).words} has {MOST_IN_SCOPE} of them already: delete some first."
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
        message = f"{place_of(row.owner).words} has a {row.get_kind_display()} of the name {row.name} already."
        raise Conflict.at("/meta/name", "name_taken", message, name=row.name) from None
    detail = {"kind": row.kind, "before": before, "after": told(row)}
    record(actor, action, row, detail=detail, entity_name=row.name, **_entity(action, row.owner))


def remove(row: Asset | WorkloadTemplate, action: str, actor: Actor) -> None:
    """Delete the row, with its record."""
    detail = {"kind": row.kind, "before": told(row)}
    record(actor, action, row, detail=detail, entity_name=row.name, **_entity(action, row.owner))
    row.delete()


def told(row: Asset | WorkloadTemplate) -> dict[str, Any]:
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
