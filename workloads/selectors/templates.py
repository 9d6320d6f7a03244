"""Templates and assets as people may see them: those of the scopes their projects are in."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet

from portal.core.actors import Actor
from portal.core.errors import Absent
from tenants.models import Project
from workloads.models import Asset, WorkloadTemplate
from workloads.models.scoped import Owner
from workloads.scopes import reaching
from workloads.selectors.scopes import seen_by

OWNERS: Final = ("cluster", "department__cluster", "project__department", "project__cluster")
REFERRING: Final = ("environment", "compute", "master_environment", "master_compute")
"""Columns of a template that name assets."""


def visible_templates(actor: Actor) -> QuerySet[WorkloadTemplate]:
    """Those of the installation, and of clusters, departments and projects the actor may know of."""
    return WorkloadTemplate.objects.filter(seen_by(actor)).select_related(*OWNERS, *REFERRING)


def usable_templates(project: Project) -> QuerySet[WorkloadTemplate]:
    """Those a submission to the project may name: its own and those of wider scopes."""
    return WorkloadTemplate.objects.filter(reaching(project)).select_related(*OWNERS, *REFERRING)


def template_or_404(actor: Actor, template_id: UUID | str, *, kind: str = "") -> WorkloadTemplate:
    """The template. Absent where it is foreign, or of another kind than the given one."""
    found = visible_templates(actor).filter(pk=template_id).first()
    if found is None or kind not in {"", found.kind}:
        raise Absent
    return found


def visible_assets(actor: Actor) -> QuerySet[Asset]:
    """Those of the installation, and of clusters, departments and projects the actor may know of."""
    return Asset.objects.filter(seen_by(actor)).select_related(*OWNERS)


def usable_assets(owner: Owner) -> QuerySet[Asset]:
    """Those a template of the owner may refer to: the owner's own and those of wider scopes."""
    return Asset.objects.filter(reaching(owner)).select_related(*OWNERS)


def asset_or_404(actor: Actor, asset_id: UUID | str, *, kind: str = "") -> Asset:
    """The asset. Absent where it is foreign, or of another kind than the given one."""
    found = visible_assets(actor).filter(pk=asset_id).first()
    if found is None or kind not in {"", found.kind}:
        raise Absent
    return found


def referring_to(*assets: Asset) -> Q:
    """Templates that name one of the assets."""
    where = Q(pk__in=())
    for column in REFERRING:
        where |= Q(**{f"{column}__in": assets})
    return where


def users_of(actor: Actor, assets: Sequence[Asset]) -> Mapping[UUID, list[WorkloadTemplate]]:
    """By asset: the templates that name it and that the actor may see, by name; in one query."""
    found: dict[UUID, list[WorkloadTemplate]] = {asset.pk: [] for asset in assets}
    for template in visible_templates(actor).filter(referring_to(*assets)).order_by("name", "pk"):
        for key in {getattr(template, f"{column}_id") for column in REFERRING} & found.keys():
            found[key].append(template)
    return found
