"""Takes the wishes for priority and preemptibility out of a rebuilt manifest: rendering writes what became of them."""

from collections.abc import Iterator
from typing import Any, Final

from clusters.kinds import Shape, WorkloadKind, parts_in
from scheduling.priority import Request
from workloads.intake.names import PREEMPTIBILITY_LABEL, PRIORITY_LABEL, RAY_PRIORITY_LABEL
from workloads.intake.problems import token
from workloads.intake.scope import Explicit

RAY_POINTER: Final = f"/metadata/labels/{token(RAY_PRIORITY_LABEL)}"
Manifest = dict[str, Any]


def take_request(manifest: Manifest, kind: WorkloadKind, explicit: Explicit) -> Request:
    """Everything that was asked for, by source; afterwards the manifest no longer says it."""
    wished = manifest["metadata"].get("labels", {})
    named = []
    for pointer in dict.fromkeys(_class_pointers(manifest, kind)):
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


def _class_pointers(manifest: Manifest, kind: WorkloadKind) -> Iterator[str]:
    yield RAY_POINTER
    yield from kind.priority
    for found in parts_in(manifest, kind):
        if found.shape is Shape.TEMPLATE:
            yield f"{found.pointer}/spec/priorityClassName"
        elif found.shape in {Shape.POD, Shape.STEP, Shape.MACHINE}:
            yield f"{found.pointer}/priorityClassName"


def _take(manifest: Manifest, pointer: str) -> str | None:
    *trail, last = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    node: Any = manifest
    for step in trail:
        node = node[int(step)] if isinstance(node, list) else node.get(step, {})
    name: str | None = node.pop(last, None)
    return name
