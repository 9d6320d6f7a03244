"""Which pods a job object asks for: one slot per replica of every place where its manifest describes pods. Pure."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.rendering import PRIORITY_LABEL, ROLE
from clusters.kinds import FoundPart, Shape, WorkloadKind, parts_in
from clusters.pods import GPU_RESOURCE, annotations, labels
from clusters.ports import Manifest

SLOT: Final = "sandbox.rung.dev/slot"  # annotation: which replica of its owner a pod is
INHERITED: Final = ("rung.dev/", "scheduling.volcano.sh/")
RUN_SECONDS: Final = "rung.dev/run-seconds"
MOST_PODS: Final = 1000  # of one object; a typing error must not fill the database
PLACING: Final = ("nodeSelector", "priorityClassName", "schedulerName")
# Kinds whose pod fields stand apart from their containers.
ELSEWHERE: Final = {
    "Workflow": ("spec",),
    "ScheduledWorkflow": ("spec", "workflow", "spec"),
    "TaskRun": ("spec", "podTemplate"),
    "PipelineRun": ("spec", "taskRunTemplate", "podTemplate"),
    "DevWorkspace": ("spec", "template", "attributes", "pod-overrides", "spec"),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One replica: its key inside the owner, its role, and the pod to create for it."""

    key: str
    role: str
    index: int
    template: Mapping[str, Any]


def slots_of(owner: Manifest, kind: WorkloadKind) -> list[Slot]:
    """Every replica the object asks for now."""
    slots: dict[str, Slot] = {}
    for found in parts_in(owner, kind):
        template = _template(owner, found)
        start = sum(1 for slot in slots.values() if slot.role == found.role)
        for index in range(start, start + max(found.replicas, _completions(owner))):
            if len(slots) >= MOST_PODS:
                return list(slots.values())
            key = f"{found.role}-{index}"
            slots[key] = Slot(key, found.role, index, template)
    return list(slots.values())


def _completions(owner: Manifest) -> int:
    wanted = owner["spec"].get("completions") if owner["kind"] == "Job" else 0
    return wanted if isinstance(wanted, int) else 0


def pod_for(slot: Slot, owner: Manifest, name: str) -> Manifest:
    """A fresh pod of that slot, owned by the object."""
    pod: Manifest = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(dict(slot.template))}
    meta = pod["metadata"]
    meta |= {"name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [_reference(owner)]}
    meta["annotations"] = {**meta["annotations"], SLOT: slot.key}
    meta["labels"] = {ROLE: slot.role.lower()[:63] or "replica", **meta["labels"]}
    return pod


def _reference(owner: Manifest) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _template(owner: Manifest, found: FoundPart) -> dict[str, Any]:
    """A pod template whatever the shape; what the place leaves out is taken from its owner."""
    part = found.part
    if found.shape is Shape.TEMPLATE:
        meta, spec = part.get("metadata") or {}, copy.deepcopy(dict(part.get("spec") or {}))
    else:
        meta, spec = part, {**_placing(_elsewhere(owner)), **_placing(part), **SPECS[found.shape](part)}
    if not spec.get("priorityClassName") and (name := labels(owner).get(PRIORITY_LABEL)):
        spec["priorityClassName"] = name
    return {
        "metadata": {
            "labels": {**labels(owner), **(meta.get("labels") or {})},
            "annotations": {**_inherited(owner), **(meta.get("annotations") or {})},
        },
        "spec": spec,
    }


def _inherited(owner: Manifest) -> dict[str, str]:
    return {key: value for key, value in annotations(owner).items() if key.startswith(INHERITED)}


def _placing(part: Mapping[str, Any]) -> dict[str, Any]:
    inside = {**part, **(part.get("extraPodSpec") or {})}
    return {key: inside[key] for key in PLACING if inside.get(key)}


def _elsewhere(owner: Manifest) -> Mapping[str, Any]:
    node: Any = owner
    for step in ELSEWHERE.get(owner["kind"], ("spec", "none")):
        node = node.get(step) or {}
    return {**node, "priorityClassName": node.get("podPriorityClassName")} if node else {}


def _pod_spec(part: Mapping[str, Any]) -> dict[str, Any]:
    """KServe: a PodSpec, where `model` stands for the serving container."""
    spec = {key: value for key, value in copy.deepcopy(dict(part)).items() if key not in {"labels", "annotations"}}
    if not spec.get("containers"):
        spec["containers"] = [_container(part.get("model") or {})]
    return spec


def _container(part: Mapping[str, Any]) -> dict[str, Any]:
    resources = copy.deepcopy(dict(part.get("resources") or {}))
    for amounts in resources.values():
        if isinstance(amounts, dict) and "gpu" in amounts:
            amounts[GPU_RESOURCE] = amounts.pop("gpu")
    return {"name": str(part.get("name") or "main"), "image": str(part.get("image") or ""), "resources": resources}


def _single(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"containers": [_container(part)]}


def _steps(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"containers": [_container(step) for step in part.get("steps") or []], "restartPolicy": "Never"}


def _step(part: Mapping[str, Any]) -> dict[str, Any]:
    inside = part.get("container") or part.get("script") or {}
    return {"containers": [_container(inside)], "restartPolicy": "Never"}


def _devfile(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"containers": list(_components(part))}


def _components(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Devfile containers state cpuRequest, memoryLimit and the like instead of `resources`."""
    for component in part.get("components") or []:
        inside = component.get("container")
        if inside:
            stated = {"cpu": inside.get("cpuRequest"), "memory": inside.get("memoryRequest")}
            limits = {"cpu": inside.get("cpuLimit"), "memory": inside.get("memoryLimit")}
            yield {
                "name": component.get("name", "main"),
                "image": inside.get("image", ""),
                "resources": {"requests": _given(stated), "limits": _given(limits)},
            }


def _given(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in amounts.items() if amount}


def _machine(part: Mapping[str, Any]) -> dict[str, Any]:
    """KubeVirt: the domain's resources and one GPU per passed-through device."""
    domain = part.get("domain") or {}
    resources = copy.deepcopy(dict(domain.get("resources") or {}))
    devices = len((domain.get("devices") or {}).get("gpus") or [])
    if devices:
        resources.setdefault("limits", {})[GPU_RESOURCE] = str(devices)
    return {"containers": [{"name": "compute", "image": "", "resources": resources}]}


SPECS: Final = {
    Shape.POD: _pod_spec,
    Shape.CONTAINER: _single,
    Shape.STEPS: _steps,
    Shape.STEP: _step,
    Shape.DEVFILE: _devfile,
    Shape.MACHINE: _machine,
}
