"""Counts a rebuilt manifest: which pods it becomes, how many, and what each of them holds."""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from clusters.kinds import FoundPart, Shape, WorkloadKind, parts_in
from scheduling.resources import ZERO, Resources
from workloads.intake.resources import FRACTION, requested
from workloads.intake.spec import PodRole

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
    spec = found.part.get("spec", {}) if found.shape is Shape.TEMPLATE else found.part
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
            yield {"name": component["name"], **component["container"]}


def _of_step(part: Part) -> Iterator[Part]:
    for member in ("container", "script"):
        if member in part:
            yield {"name": part["name"], **part[member]}


_CONTAINERS: Final[Mapping[Shape, Callable[[Part], Iterator[Part]]]] = {
    Shape.TEMPLATE: lambda part: _of_pod(part["spec"]),
    Shape.POD: _of_pod,
    Shape.CONTAINER: lambda part: iter([part]),
    Shape.STEPS: lambda part: iter(part["steps"]),
    Shape.STEP: _of_step,
    Shape.DEVFILE: _of_devfile,
    Shape.MACHINE: lambda part: iter([part]),
}


def image_of(container: Part) -> str:
    """The image of a container however its kind writes it."""
    written = container.get("image") or container.get("extraPodSpec", {}).get("mainContainer", {}).get("image", "")
    return f"{written['repository']}:{written['tag']}" if isinstance(written, Mapping) else written


def _pod_requests(found: FoundPart, spec: Part) -> Resources:
    running = sum((_container_requests(each) for each in _containers(found)), ZERO)
    notes = found.part.get("metadata", {}).get("annotations", {})
    share = Resources.of(gpu=Decimal(notes[FRACTION])) if FRACTION in notes else ZERO
    return _with_init(running, spec.get("initContainers", [])) + share


def _with_init(running: Resources, init: list[Part]) -> Resources:
    """Kubernetes' rule: the larger of what runs together and of each init container with the sidecars before it."""
    sidecars, peak = ZERO, ZERO
    for each in init:
        asked = _container_requests(each)
        if each.get("restartPolicy") == "Always":
            sidecars += asked
        else:
            peak = _larger(peak, sidecars + asked)
    return _larger(running + sidecars, peak)


def _larger(one: Resources, other: Resources) -> Resources:
    return Resources(max(one.gpu, other.gpu), max(one.cpu, other.cpu), max(one.memory, other.memory))


def _container_requests(container: Part) -> Resources:
    if "domain" in container:
        return _machine_requests(container["domain"])
    if (
        "cpuLimit" in container
        or "memoryLimit" in container
        or "cpuRequest" in container
        or "memoryRequest" in container
    ):
        return requested(_devfile_resources(container))
    return requested(container.get("computeResources") or container.get("resources", {}))


def _devfile_resources(container: Part) -> dict[str, dict[str, str]]:
    sides: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for name in ("cpu", "memory"):
        for side, member in (("limits", f"{name}Limit"), ("requests", f"{name}Request")):
            if member in container:
                sides[side][name] = container[member]
    return sides


def _machine_requests(domain: Part) -> Resources:
    devices = len(domain.get("devices", {}).get("gpus", []))
    return requested(domain.get("resources", {})) + Resources.of(gpu=devices)
