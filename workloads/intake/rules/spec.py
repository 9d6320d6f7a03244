"""The WorkloadSpec: a rebuilt manifest, its pods counted, its pools, nodes and requested priority."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, Self

from clusters.flavours.objects import HOSTNAME, PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from clusters.ports.pod_templates import FoundPart, TemplateShape, WorkloadKind, parts_in
from clusters.ports.pods import counted_requests, more_requests, tolerations_of
from clusters.ports.workload_kinds import kind_for
from portal.kit.security.strict_json import token
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Toleration
from workloads.dictionary.rules.resolution import Request
from workloads.intake.rules.scalars import (
    GPU,
    NODE_POOLS,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    RAY_PRIORITY_LABEL,
)
from workloads.intake.rules.values import Explicit, ProblemReport

Source = Literal["form", "json", "yaml"]


@dataclass(frozen=True, slots=True)
class PodRole:
    """Pods of one template: how many, and what each of them holds."""

    name: str
    replicas: int
    requests: Resources
    pointer: str
    grace_seconds: int = 30
    containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    @property
    def total(self) -> Resources:
        """What all of its pods hold together."""
        return self.requests * self.replicas

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`."""
        lists = {name: tuple(data[name]) for name in ("containers", "images")}
        return cls(**{**data, **lists, "requests": Resources(**data["requests"])})


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A workload as it may be stored and rendered. `manifest` holds nothing but allow-listed fields.

    It names no namespace, no priority and no preemptibility: `request` holds what was asked for, and rendering writes
    what became of it. `generate_name`: `name` is a prefix that the service completes.
    """

    type_name: str
    kind: str
    api_version: str
    name: str
    generate_name: bool
    manifest: dict[str, Any]
    roles: tuple[PodRole, ...]
    request: Request
    min_member: int
    node_pools: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    source: Source = "yaml"
    warnings: tuple[str, ...] = ()
    classification: str = ""

    @property
    def total(self) -> Resources:
        """What every pod of every role holds together."""
        return sum((role.total for role in self.roles), ZERO)

    @property
    def pods(self) -> int:
        return sum(role.replicas for role in self.roles)

    def named(self, name: str) -> "WorkloadSpec":
        """The same workload under a final name."""
        metadata = {**self.manifest["metadata"], "name": name}
        return replace(self, name=name, generate_name=False, manifest={**self.manifest, "metadata": metadata})

    def as_json(self) -> dict[str, Any]:
        """A form any JSON column holds; `from_json` gives back an equal spec. The manifest is the spec's own."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**parts, "roles": [asdict(role) for role in self.roles], "request": asdict(self.request)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`, also after a trip through a JSON text."""
        request = data["request"]
        pod_classes = tuple((pointer, name) for pointer, name in request["pod_priority_class"])
        return cls(
            **{
                **data,
                "roles": tuple(PodRole.from_json(role) for role in data["roles"]),
                "request": Request(**{**request, "pod_priority_class": pod_classes}),
                "node_pools": tuple(data["node_pools"]),
                "warnings": tuple(data["warnings"]),
            }
        )


Part = Mapping[str, Any]
GRACE: Final = 30


def roles_of(manifest: Mapping[str, Any], kind: WorkloadKind) -> tuple[PodRole, ...]:
    """Every role of a manifest, in the kind's order."""
    return tuple(_role(found) for found in parts_in(manifest, kind) if _containers(found))


def min_member(manifest: Mapping[str, Any], kind: WorkloadKind, roles: tuple[PodRole, ...]) -> int:
    """How many pods must start together: all of a gang unless it names fewer, else one."""
    if not kind.gang:
        return 1
    most = together(kind, roles)
    return max(1, min(kind.minimum_of(manifest) or most, most))


def together(kind: WorkloadKind, roles: tuple[PodRole, ...]) -> int:
    """All pods but those that its controller makes later."""
    return sum(role.replicas for role in roles if role.name not in kind.later)


def _role(found: FoundPart) -> PodRole:
    containers = _containers(found)
    spec = _spec_of(found)
    return PodRole(
        name=found.role,
        replicas=found.replicas,
        requests=_pod_requests(found, spec),
        pointer=found.pointer,
        grace_seconds=spec.get("terminationGracePeriodSeconds", GRACE),
        containers=tuple(str(each.get("name", found.role)) for each in containers),
        images=tuple(filter(None, (image_of(each) for each in containers))),
    )


def _containers(found: FoundPart) -> list[Part]:
    return list(_CONTAINERS[found.shape](found.part))


def _of_pod(spec: Part) -> Iterator[Part]:
    yield from spec.get("containers", [])
    if "model" in spec:
        yield {"name": "model", **spec["model"]}


def _of_devfile(part: Part) -> Iterator[Part]:
    for component in part.get("components", []):
        if "container" in component:
            yield {"name": component.get("name", ""), **component["container"]}


def _of_step(part: Part) -> Iterator[Part]:
    for member in ("container", "script"):
        if member in part:
            yield {"name": part.get("name", ""), **part[member]}


_CONTAINERS: Final[Mapping[TemplateShape, Callable[[Part], Iterator[Part]]]] = {
    TemplateShape.TEMPLATE: lambda part: _of_pod(part.get("spec", {})),
    TemplateShape.POD: _of_pod,
    TemplateShape.CONTAINER: lambda part: iter([part]),
    TemplateShape.STEPS: lambda part: iter(part.get("steps", [])),
    TemplateShape.STEP: _of_step,
    TemplateShape.DEVFILE: _of_devfile,
    TemplateShape.MACHINE: lambda part: iter([part]),
}


def image_of(container: Part) -> str:
    """The image of a container however its kind writes it."""
    written = container.get("image") or container.get("extraPodSpec", {}).get("mainContainer", {}).get("image", "")
    return f"{written.get('repository')}:{written.get('tag')}" if isinstance(written, Mapping) else written


def _pod_requests(found: FoundPart, spec: Part) -> Resources:
    """As observation counts the pod that its controller makes of it."""
    return counted_requests(_as_pod(found, spec))


def named_requests(spec: WorkloadSpec) -> dict[str, tuple[int, dict[str, int]]]:
    """By the pointer of each role: GPUs of a pod in thousandths, and its `more_requests`."""
    kind = kind_for(spec.api_version, spec.kind)
    found = [each for each in parts_in(spec.manifest, kind) if _containers(each)] if kind else []
    gpus = {role.pointer: role.requests.gpu for role in spec.roles}
    return {each.pointer: (gpus[each.pointer], more_requests(_as_pod(each, _spec_of(each)))) for each in found}


def _spec_of(found: FoundPart) -> Part:
    spec: Part = found.part.get("spec", {}) if found.shape is TemplateShape.TEMPLATE else found.part
    return spec


def _as_pod(found: FoundPart, spec: Part) -> dict[str, Any]:
    containers = [{"resources": _resources_of(each)} for each in _containers(found)]
    pod = {"containers": containers, "initContainers": spec.get("initContainers", [])}
    return {"metadata": found.part.get("metadata", {}), "spec": pod}


def _resources_of(container: Part) -> dict[str, dict[str, Any]]:
    """Limits and requests under Kubernetes' names, however the container's kind writes them."""
    if "domain" in container:
        return _machine_resources(container["domain"])
    if any(f"{name}{side}" in container for name in ("cpu", "memory") for side in ("Limit", "Request")):
        return _devfile_resources(container)
    written = container.get("computeResources") or container.get("resources", {})
    return {
        side: {GPU if name == "gpu" else name: amount for name, amount in written[side].items()} for side in written
    }


def _devfile_resources(container: Part) -> dict[str, dict[str, Any]]:
    sides: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for name in ("cpu", "memory"):
        for side, member in (("limits", f"{name}Limit"), ("requests", f"{name}Request")):
            if member in container:
                sides[side][name] = container[member]
    return sides


def _machine_resources(domain: Part) -> dict[str, dict[str, Any]]:
    """Passed-through GPUs beside what the domain itself asks for, which may be some, too."""
    written = domain.get("resources", {})
    limits, requests = dict(written.get("limits", {})), dict(written.get("requests", {}))
    own = max(int(side.pop(GPU, 0)) for side in (limits, requests))
    return {"limits": {**limits, GPU: str(own + len(domain.get("devices", {}).get("gpus", [])))}, "requests": requests}


NOTES: Final = "/metadata/annotations"
MINIMUM_PLACE: Final = f"{NOTES}/{token(MIN_MEMBER)}"
Manifest = dict[str, Any]


def node_pools_of(notes: Mapping[str, str]) -> tuple[str, ...]:
    """The pools of the annotation, in order of preference and once each; empty where it says nothing."""
    names = (name.strip() for name in notes.get(NODE_POOLS, "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def stated_minimum(
    manifest: Manifest, kind: WorkloadKind, roles: tuple[PodRole, ...], report: ProblemReport
) -> int | None:
    """How many pods the annotation wants to start together; None where it says nothing.

    A kind with a field for it gets it written there too, for readers of only that field.
    """
    text = manifest["metadata"].get("annotations", {}).get(MIN_MEMBER)
    if text is None:
        return None
    wanted, most = int(text), together(kind, roles)
    if not kind.gang and wanted > 1:
        report.add(MINIMUM_PLACE, "no_gang", f"The pods of {kind.kind} start one by one.", ("1",))
    elif wanted > most:
        report.add(MINIMUM_PLACE, "gang_too_large", f"The workload has {most} pods, so {wanted} cannot start together.")
    else:
        _agree(manifest, kind, wanted, report)
    return wanted


def _agree(manifest: Manifest, kind: WorkloadKind, wanted: int, report: ProblemReport) -> None:
    """The kind's own field must not say another number."""
    own = kind.minimum_of(manifest)
    if own and own != wanted:
        report.add(MINIMUM_PLACE, "two_minimums", f"{kind.minimum} is {own}. Remove one of the two.", (str(own),))
    elif kind.minimum.endswith("/minAvailable"):
        policy = manifest["spec"].setdefault("runPolicy", {}).setdefault("schedulingPolicy", {})
        policy["minAvailable"] = wanted


RAY_POINTER: Final = f"/metadata/labels/{token(RAY_PRIORITY_LABEL)}"


def take_request(manifest: Manifest, kind: WorkloadKind, explicit: Explicit) -> Request:
    """Everything that was asked for, by source; afterwards the manifest no longer says it."""
    wished = manifest["metadata"].get("labels", {})
    named = []
    for pointer in dict.fromkeys(class_pointers(manifest, kind)):
        name = _take(manifest, pointer)
        if name is not None:
            named.append((pointer, name))
    return Request(
        explicit_priority=explicit.priority,
        explicit_preemptibility=explicit.preemptibility,
        label_priority=wished.pop(PRIORITY_LABEL, None),
        label_preemptibility=wished.pop(PREEMPTIBILITY_LABEL, None),
        pod_priority_class=tuple(named),
    )


def class_pointers(manifest: Mapping[str, Any], kind: WorkloadKind) -> Iterator[str]:
    """Where the manifest may name a priority class, beside its labels."""
    yield RAY_POINTER
    yield from kind.priority
    for found in parts_in(manifest, kind):
        if found.shape is TemplateShape.TEMPLATE:
            yield f"{found.pointer}/spec/priorityClassName"
        elif found.shape in {TemplateShape.POD, TemplateShape.STEP, TemplateShape.MACHINE}:
            yield f"{found.pointer}/priorityClassName"


def _take(manifest: Manifest, pointer: str) -> str | None:
    *trail, last = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    node: Any = manifest
    for step in trail:
        node = node[int(step)] if isinstance(node, list) else node.get(step, {})
    name: str | None = node.pop(last, None)
    return name


def selected_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The node labels that every pod of the workload selects."""
    selectors = [dict(each.get("nodeSelector") or {}) for each in _pod_specs(spec)]
    first, *others = selectors or [{}]
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}


def borne_taints(spec: WorkloadSpec) -> tuple[Toleration, ...]:
    """The tolerations that every pod of the workload has."""
    first, *others = [tolerations_of(each) for each in _pod_specs(spec)] or [()]
    return tuple(each for each in first if all(each in other for other in others))


def hard_spreads(spec: WorkloadSpec) -> set[tuple[str, int]]:
    """Node labels over which its pods have to be spread (DoNotSchedule), each with its maxSkew."""
    found = (each for pod in _pod_specs(spec) for each in pod.get("topologySpreadConstraints") or [])
    return {(each["topologyKey"], each["maxSkew"]) for each in found if each["whenUnsatisfiable"] == "DoNotSchedule"}


def needed_placement(spec: WorkloadSpec) -> str:
    """The same as wanted; pods that must be on different nodes are spread unless another placement is requested."""
    apart = any(key == HOSTNAME for key, _skew in hard_spreads(spec))
    return wanted_placement(spec) or ("spread" if apart else "")


def volume_claims(manifest: object) -> set[str]:
    """Names of the claims that a manifest mounts, wherever its kind writes them."""
    if isinstance(manifest, Mapping):
        own = manifest.get("claimName")
        return set().union({own} if isinstance(own, str) else (), *map(volume_claims, manifest.values()))
    return set().union(*map(volume_claims, manifest)) if isinstance(manifest, list) else set()


def shared_topology(spec: WorkloadSpec) -> str | None:
    """The node label of which all pods of the gang want one value; None: any nodes will do."""
    return (spec.annotations or {}).get(TOPOLOGY_KEY)


def wanted_placement(spec: WorkloadSpec) -> str:
    """`binpack`: its pods on few nodes; `spread`: on many; empty: as the scheduler does by itself."""
    return (spec.annotations or {}).get(PLACEMENT, "")


def _pod_specs(spec: WorkloadSpec) -> Iterator[Mapping[str, Any]]:
    kind = kind_for(spec.api_version, spec.kind)
    for found in parts_in(spec.manifest, kind) if kind else ():
        if found.shape is TemplateShape.TEMPLATE:
            yield found.part.get("spec") or {}
        elif found.shape is TemplateShape.POD:
            yield found.part
