"""Assets are made, changed and deleted by whoever submits in their project or manages their scope."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portal.core.actors import Actor
from portal.core.errors import Conflict
from tenants.permissions import Verb
from workloads.intake.native import check_asset
from workloads.models import Asset, AssetKind, WorkloadTemplate
from workloads.models.scoped import Owner
from workloads.permissions import require_keep, require_scope
from workloads.scopes import columns_of
from workloads.selectors.templates import referring_to
from workloads.services.preparing import asked, describe, locked, read_as, refuse_more, remove, store, told
from workloads.services.reading import scope_of


@dataclass(frozen=True, slots=True)
class AssetDraft:
    """What an asset is to say. `supports`: Run:ai's words of the kinds it is meant for; empty for all."""

    name: str
    description: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    supports: Mapping[str, Any] = field(default_factory=dict)


def create_asset(*, kind: str, owner: Owner, draft: AssetDraft, actor: Actor) -> Asset:
    """A new asset in the owner's scope; None is the installation. Refused or Conflict with pointers."""
    with asked("asset.create", owner, draft.name, actor):
        require_scope(actor, owner, in_project=Verb.SUBMIT)
        refuse_more(Asset, kind, owner)
        row = Asset(kind=AssetKind(kind), supports=dict(draft.supports), **columns_of(owner))
        _write(row, draft)
        store(row, "asset.create", actor, before=None)
        return row


def change_asset(*, asset: Asset, draft: AssetDraft, actor: Actor) -> Asset:
    """Put this in place of what it said; its kind, scope and supported kinds stay. Templates say it from now on."""
    with asked("asset.update", asset.owner, asset.name, actor):
        row = locked(asset)
        require_keep(actor, row)
        before = told(row)
        _write(row, draft)
        store(row, "asset.update", actor, before=before)
        return row


def delete_asset(*, asset: Asset, actor: Actor) -> None:
    """Gone. Conflict, with their number, while templates refer to it."""
    with asked("asset.delete", asset.owner, asset.name, actor):
        row = locked(asset)
        require_keep(actor, row)
        _refuse_in_use(row)
        remove(row, "asset.delete", actor)


def _write(row: Asset, draft: AssetDraft) -> None:
    describe(row, draft.name, draft.description)
    with read_as():
        check_asset(row.kind, draft.spec, scope=scope_of(None))
    row.spec = dict(draft.spec)


def _refuse_in_use(row: Asset) -> None:
    """Whoever keeps an asset of a wide scope hears how many templates use it, not the names of foreign ones."""
    if count := WorkloadTemplate.objects.filter(referring_to(row)).count():
        message = f"{count} templates refer to {row.name}: change them first."
        raise Conflict.at("", "in_use", message, templates=count)
