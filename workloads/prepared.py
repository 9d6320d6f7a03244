"""What a template says together with its assets, and what the two add to a native submission."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.filling import Layer, Sources, fill
from workloads.intake import Native
from workloads.intake.native import FIELDS, MASTER, asset_fields
from workloads.models import Asset, WorkloadTemplate


@dataclass(frozen=True, slots=True)
class Filled:
    """A native body after its template. `sources`: by pointer into the body, such as `/spec/image`, who said it."""

    spec: dict[str, Any]
    master: dict[str, Any] | None
    master_same: bool | None
    sources: Sources

    def native(self, kind: str, name: str) -> Native:
        """As a submission under this name."""
        return Native(kind, name, self.spec, master=self.master, master_same=self.master_same)


def combined(template: WorkloadTemplate) -> Filled:
    """The template with its assets, as a submission that says nothing itself would be."""
    return filled({}, template)


def filled(body: Mapping[str, Any], template: WorkloadTemplate) -> Filled:
    """The body of a native submission with what the template and its assets say beside it."""
    spec, sources = fill(body.get("spec") or {}, _layers(template), at="/spec", known=FIELDS[template.kind])
    master, master_same = body.get("masterSpec"), body.get("masterSpecSameAsWorker")
    if master_same is None and master is None and template.master_same is not None:
        master_same, sources["/masterSpecSameAsWorker"] = template.master_same, _title(template)
    layers = list(_master_layers(template))
    if layers and not master_same:
        master, more = fill(master or {}, layers, at="/masterSpec", known=MASTER)
        sources |= more
    return Filled(spec, master, master_same, sources)


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
