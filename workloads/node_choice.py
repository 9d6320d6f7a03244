"""Which nodes a tenant's manifest asks for: labels to select, taints to bear, the domain a gang shares. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.kind_shapes import Shape, parts_in
from clusters.kinds import kind_for
from clusters.pods import tolerations_of
from scheduling.taints import Toleration
from workloads.intake import WorkloadSpec


def selected_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The node labels that every pod of the workload selects."""
    selectors = [dict(each.get("nodeSelector") or {}) for each in _pod_specs(spec)]
    first, *others = selectors or [{}]
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}


def borne_taints(spec: WorkloadSpec) -> tuple[Toleration, ...]:
    """The tolerations that every pod of the workload has."""
    first, *others = [tolerations_of(each) for each in _pod_specs(spec)] or [()]
    return tuple(each for each in first if all(each in other for other in others))


def shared_topology(spec: WorkloadSpec) -> str | None:
    """The node label of which all pods of the gang want one value; None: any nodes will do."""
    return (spec.annotations or {}).get(TOPOLOGY_KEY)


def wanted_placement(spec: WorkloadSpec) -> str:
    """`binpack`: its pods on few nodes; `spread`: on many; empty: as the scheduler does by itself."""
    return (spec.annotations or {}).get(PLACEMENT, "")


def _pod_specs(spec: WorkloadSpec) -> Iterator[Mapping[str, Any]]:
    kind = kind_for(spec.api_version, spec.kind)
    for found in parts_in(spec.manifest, kind) if kind else ():
        if found.shape is Shape.TEMPLATE:
            yield found.part.get("spec") or {}
        elif found.shape is Shape.POD:
            yield found.part
