"""Templates and assets that an actor sees and may change, and what a template says with its assets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from clusters.inventory.models import Cluster, NodePool
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import can
from tenants.organisation.models import Project
from workloads.intake import NativeBody
from workloads.intake.rules.native.fields import FIELDS, MASTER
from workloads.intake.rules.native.reader import asset_fields
from workloads.policies.models import Owner
from workloads.policies.selectors import needed_permission, reaching, require_scope, seen_by
from workloads.workload_templates.models import Asset, TemplateBase, WorkloadTemplate
from workloads.workload_templates.rules import Layer, ValueSources, merge

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
    """The template. NotFound where it is foreign, or of another kind than the given one."""
    found = visible_templates(actor).filter(pk=template_id).first()
    if found is None or kind not in {"", found.kind}:
        raise NotFound
    return found


def visible_assets(actor: Actor) -> QuerySet[Asset]:
    """Those of the installation, and of clusters, departments and projects the actor may know of."""
    return Asset.objects.filter(seen_by(actor)).select_related(*OWNERS)


def usable_assets(owner: Owner) -> QuerySet[Asset]:
    """Those a template of the owner may refer to: the owner's own and those of wider scopes."""
    return Asset.objects.filter(reaching(owner)).select_related(*OWNERS)


def asset_or_404(actor: Actor, asset_id: UUID | str, *, kind: str = "") -> Asset:
    """The asset. NotFound where it is foreign, or of another kind than the given one."""
    found = visible_assets(actor).filter(pk=asset_id).first()
    if found is None or kind not in {"", found.kind}:
        raise NotFound
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


@dataclass(frozen=True, slots=True)
class MergedBody:
    """A native body after its template. `sources`: by pointer into the body, such as `/spec/image`, who said it."""

    spec: dict[str, Any]
    master: dict[str, Any] | None
    master_same: bool | None
    sources: ValueSources

    def native(self, kind: str, name: str) -> NativeBody:
        """As a submission under this name."""
        return NativeBody(kind, name, self.spec, master=self.master, master_same=self.master_same)


def merge_template(template: WorkloadTemplate) -> MergedBody:
    """The template with its assets, as a submission that says nothing itself would be."""
    return merge_body({}, template)


def merge_body(body: Mapping[str, Any], template: WorkloadTemplate) -> MergedBody:
    """The body of a native submission with what the template and its assets say beside it."""
    spec, sources = merge(body.get("spec") or {}, _layers(template), at="/spec", known=FIELDS[template.kind])
    master, master_same = body.get("masterSpec"), body.get("masterSpecSameAsWorker")
    if master_same is None and master is None and template.master_same is not None:
        master_same, sources["/masterSpecSameAsWorker"] = template.master_same, _title(template)
    layers = list(_master_layers(template))
    if layers and not master_same:
        master, more = merge(master or {}, layers, at="/masterSpec", known=MASTER)
        sources |= more
    return MergedBody(spec, master, master_same, sources)


def _layers(template: WorkloadTemplate) -> Iterator[Layer]:
    yield Layer(_title(template), template.spec)
    yield from map(_layer, filter(None, (template.environment, template.compute)))


def _master_layers(template: WorkloadTemplate) -> Iterator[Layer]:
    if template.master is not None:
        yield Layer(_title(template), template.master)
    yield from map(_layer, filter(None, (template.master_environment, template.master_compute)))


def _layer(asset: Asset) -> Layer:
    return Layer(f"{asset.get_kind_display()} {asset.name}", asset_fields(asset.kind, asset.spec))


def _title(template: WorkloadTemplate) -> str:
    return f"template {template.name}"


def pools_at(owner: Owner) -> list[str]:
    """Names of the node pools that a submission with a template of the owner can run in."""
    rows = NodePool.objects.all()
    if owner is not None:
        rows = rows.filter(cluster=owner if isinstance(owner, Cluster) else owner.cluster_id)
    return sorted(set(rows.values_list("name", flat=True)))


def unknown_pools(template: WorkloadTemplate) -> list[str]:
    """Node pools of the stored template that are gone."""
    wanted = merge_template(template).spec.get("nodePools") or ()
    known = pools_at(template.owner) if wanted else ()
    return [name for name in wanted if name not in known]


def _keeping(actor: Actor, row: TemplateBase) -> Permission:
    own = (row.created_by_kind, row.created_by_id) == (str(actor.kind), actor.id)
    may = own and row.project is not None and can(actor, Permission.MANAGE_WORKLOAD, project=row.project)
    return Permission.MANAGE_WORKLOAD if may else Permission.MANAGE_ANY_WORKLOAD


def may_keep(actor: Actor, row: TemplateBase) -> bool:
    """Change and delete a template or an asset: of a project one's own with less, anybody's with more."""
    verb, place = needed_permission(row.owner, _keeping(actor, row))
    return can(actor, verb, **place)


def require_keep(actor: Actor, row: TemplateBase) -> None:
    """Raise Absent where its scope is not the actor's to see, Denied where it is not theirs to change."""
    require_scope(actor, row.owner, in_project=_keeping(actor, row))
