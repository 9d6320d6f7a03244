"""Every place of every kind where pods are described, found through the one table of kinds: no kind is written here.

A kind's fullest manifest has each optional part once and each item of a list twice, so that no rule which looks at the
first or at the required one only passes for a whole one.
"""

import copy
from dataclasses import dataclass
from typing import Any, Final

from clusters.ports.pod_templates import FoundPart, TemplateShape, WorkloadKind, parts_in
from clusters.ports.workload_kinds import KINDS
from tests.workloads.intake.manifests import VALID, Manifest, container, task, template

OPTIONAL: Final[dict[str, tuple[str, Any]]] = {
    "RayJob": ("/spec/submitterPodTemplate", template(restart="Never")),
    "PipelineRun": ("/spec/pipelineSpec/finally", [{"name": "last", "taskSpec": task()}]),
    "InferenceService": ("/spec/transformer", {"containers": [container()], "maxReplicas": 1}),
    "LeaderWorkerSet": ("/spec/leaderWorkerTemplate/leaderTemplate", template()),
}
"""Parts that a small manifest leaves out."""
POD_FIELDS: Final[dict[TemplateShape, str]] = {TemplateShape.TEMPLATE: "/spec"}
CONTAINERS: Final[dict[TemplateShape, tuple[str, ...]]] = {
    TemplateShape.TEMPLATE: ("/spec/containers/{}", "/spec/initContainers/{}"),
    TemplateShape.POD: ("/containers/{}", "/initContainers/{}"),
    TemplateShape.STEPS: ("/steps/{}",),
    TemplateShape.STEP: ("/container",),
    TemplateShape.DEVFILE: ("/components/{}/container",),
    TemplateShape.CONTAINER: ("",),
    TemplateShape.MACHINE: ("",),
}
"""By shape: where in a part its containers stand."""
WHOLE: Final = frozenset({TemplateShape.TEMPLATE, TemplateShape.POD})
"""Shapes that hold every field of a pod; the others know few of them."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One described pod: pointers to its own fields and to each of its containers."""

    kind: WorkloadKind
    found: FoundPart
    pod: str
    containers: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whatever a pod may say can be said here."""
        return self.found.shape in WHOLE


def fullest(kind: WorkloadKind) -> Manifest:
    """A manifest of the kind in which every path of the table leads somewhere, and everything repeatable stands twice.

    The second init container of a pod is a sidecar: those have the fields of both sorts.
    """
    body = VALID[kind.name]()
    if kind.name in OPTIONAL:
        pointer, part = OPTIONAL[kind.name]
        put(body, pointer, copy.deepcopy(part))
    for found in parts_in(body, kind):
        if found.shape in WHOLE:
            early = [container("early"), container("beside", restartPolicy="Always")]
            put(body, f"{_fields(found)}/initContainers", early)
        _double(body, f"{found.pointer}{CONTAINERS[found.shape][0].format(0)}")
    return body


def spots_of(kind: WorkloadKind) -> list[Spot]:
    """Each pod of the fullest manifest."""
    body = fullest(kind)
    return [Spot(kind, found, _fields(found), _containers(body, found)) for found in parts_in(body, kind)]


def _fields(found: FoundPart) -> str:
    return f"{found.pointer}{POD_FIELDS.get(found.shape, '')}"


def _containers(body: Manifest, found: FoundPart) -> tuple[str, ...]:
    """At most two of each sort."""
    places = {f"{found.pointer}{sort.format(number)}" for sort in CONTAINERS[found.shape] for number in (0, 1)}
    return tuple(sorted(place for place in places if at(body, place) is not None))


def at(body: Manifest, pointer: str) -> Any:
    """What stands there; None where nothing does."""
    node: Any = body
    for step in _steps(pointer):
        if isinstance(node, list):
            node = node[int(step)] if int(step) < len(node) else None
        else:
            node = (node or {}).get(step)
    return node


def put(body: Manifest, pointer: str, value: Any) -> None:
    """Write it there; objects on the way are made."""
    *trail, last = _steps(pointer)
    node: Any = body
    for step in trail:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    node[last] = value


def merge(body: Manifest, pointer: str, fields: Manifest) -> None:
    """Write each of them into the object there."""
    for name, value in fields.items():
        put(body, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", value)


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _double(body: Manifest, pointer: str) -> None:
    """A second item under another name in every list of one that the pointer passes."""
    steps = pointer.split("/")
    for number in range(len(steps) - 1, 0, -1):  # from within: what is doubled later is doubled whole
        items = at(body, "/".join(steps[:number]))
        if isinstance(items, list) and len(items) == 1:
            items.append(_renamed(items[0]))


def _renamed(item: Any) -> Any:
    twin = copy.deepcopy(item)
    for key in twin.keys() & {"name", "groupName"}:
        twin[key] = f"{twin[key]}-twin"
    return twin


def ask_gpus(body: Manifest, spot: Spot, count: int) -> bool:
    """Let its first container ask for so many; False where such a pod has no GPUs."""
    place = spot.containers[0]
    if spot.found.shape is TemplateShape.DEVFILE:
        return False
    if spot.found.shape is TemplateShape.MACHINE:
        cards = [{"name": f"gpu{number}", "deviceName": "nvidia.com/gpu"} for number in range(count)]
        put(body, f"{place}/domain/devices/gpus", cards)
    else:
        name = "gpu" if spot.kind.name == "DynamoGraphDeployment" else "nvidia.com/gpu"
        put(body, f"{place}/resources", {"limits": {name: str(count)}})
    return True


SPOTS: Final = {kind.name: spots_of(kind) for kind in KINDS}
