"""The pods that job objects need, and the messages of each simulated scheduler. Pure.

Sources: messages recorded from KAI 0.17, kube-scheduler 1.36, Volcano 1.15 and Kueue 0.19.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.rendering import PRIORITY_LABEL, ROLE
from clusters.ports.gateway import Manifest
from clusters.ports.pod_templates import FoundPart, TemplateShape, WorkloadKind, parts_in
from clusters.ports.pods import GPU_RESOURCE, annotations, labels
from scheduling.model.decisions import Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Limit, Resources, decimal_text
from scheduling.model.snapshot import Queue, SnapshotNode

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
    if found.shape is TemplateShape.TEMPLATE:
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
    """KServe: a PodSpec, where `model` describes the serving container."""
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
    TemplateShape.POD: _pod_spec,
    TemplateShape.CONTAINER: _single,
    TemplateShape.STEPS: _steps,
    TemplateShape.STEP: _step,
    TemplateShape.DEVFILE: _devfile,
    TemplateShape.MACHINE: _machine,
}


GIGABYTE: Final = 1_000_000_000
# dimension: (what KAI calls it, its unit, how many of ours make one)
DIMENSIONS: Final[Mapping[str, tuple[str, str, int]]] = {
    "gpu": ("GPUs", "GPUs", 1000),
    "cpu": ("CPU cores", "cores", 1000),
    "memory": ("memory", "GB", GIGABYTE),
}
ONCE: Final = "once resource is released and minAvailable is satisfied"
GANG_READY: Final = "tasks in gang are ready to be scheduled"
NO_VICTIMS: Final = "No preemption victims found for incoming pod."
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling."


def preempted_by_kai(pod: str, taker: str) -> str:
    """In-queue preemption, on the victim."""
    return f"Pod {pod} was preempted by higher priority workload {taker}"


def reclaimed_by_kai(pod: str, taker: str, queues: Iterable[str]) -> str:
    """Reclaim across queues, on the victim, with the usage of both queues."""
    return "\n".join([f"Pod {pod} was preempted by workload {taker}.", *queues])


def moved_by_kai(pod: str) -> str:
    """Consolidation, on what is moved; no preemptor is named."""
    return f"Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def queue_usage(queue: Queue, used: Resources, fair: Resources) -> str:
    """One queue's use, quota, fair share and rank as KAI's reclaim message gives them."""
    quota = Limit(queue.deserved.gpu, queue.deserved.cpu, queue.deserved.memory)
    return (
        f"{queue.name} uses <{_amounts(used.gpu, used.cpu, used.memory)}> with a quota of "
        f"<{_amounts(quota.gpu, quota.cpu, quota.memory)}>, fair-share of "
        f"<{_amounts(fair.gpu, fair.cpu, fair.memory)}> and queue priority of <{queue.rank}>."
    )


def preempted_by_kube(taker_uid: str, node: str, *, group: bool = False) -> str:
    """The event on the victim; who gains is a pod, or a gang's group."""
    return f"Preempted by {'podgroup' if group else 'pod'} {taker_uid} on node {node}"


def waiting_in_kai(pend: PendingReason, pod: str, *, pool: str, nodes: Sequence[SnapshotNode], nominated: str) -> str:
    """The pod's PodScheduled=False message. `nodes` are those of its pool."""
    texts = [_kai(reason, pend, pod, pool, nodes, nominated) for reason in (pend.reason, *pend.also)]
    return texts[0] if len(texts) == 1 else f"Unable to schedule podgroup: {' '.join(texts)}"


def _kai(
    reason: Reason, pend: PendingReason, pod: str, pool: str, nodes: Sequence[SnapshotNode], nominated: str
) -> str:
    needed, used, allowed, queue = pend.needed, pend.used, pend.allowed, pend.queue or ""
    name, unit, size = DIMENSIONS[_dimension(pend)]
    part = _dimension(pend)
    requested, held = (decimal_text(getattr(each, part), size) for each in (needed, used))
    bound = decimal_text(getattr(allowed, part) or 0, size)
    match reason:
        case Reason.OVER_LIMIT:
            return (
                f"OverLimit: {queue} quota has reached the allowable limit of {name}. Limit is {bound} {unit}, "
                f"currently {held} {unit} allocated and workload requested {requested} {unit}."
            )
        case Reason.NON_PREEMPTIBLE_OVER_QUOTA:
            return (
                "NonPreemptibleOverQuota: Non-preemptible workload is over quota. "
                f"Workload requested {requested} {unit}, but {queue} quota is {bound} {unit}, while {held} {unit} are "
                "already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
            )
        case Reason.QUEUE_MISSING:
            return f"QueueDoesNotExist: queue {queue} does not exist or is not a leaf."
        case Reason.EVICTING:
            return f"Pod {pod} is nominated to node {nominated} and waits for evicted pods to end."
        case Reason.NEVER_FITS:
            largest = decimal_text(max((getattr(node.capacity, part) for node in nodes if node.ready), default=0), size)
            what, unit_of = {"gpu": ("GPU", ""), "cpu": ("CPU", " cores"), "memory": ("memory", " GB")}[part]
            why = (
                f"The pod {pod} requires {_amounts(needed.gpu, needed.cpu, needed.memory)}. Max {what} resources "
                f"available in a single node in the {pool} node-pool is topped at {largest}{unit_of}."
            )
        case _:
            lacking = ", ".join(DIMENSIONS[each][0] for each in pend.lacking if each in DIMENSIONS) or name
            short = f"{len(nodes)} node(s) didn't have enough resources: {lacking}."
            why = f"no nodes with enough resources were found: {short}"
    return f"PodSchedulingErrors: Resources were not found for pod {pod} due to: {why}"


def _dimension(pend: PendingReason) -> str:
    """The dimension that is short, the first of several; else the first that is asked for."""
    return next((name for name in (*pend.short, *pend.needed.dimensions) if name in DIMENSIONS), "gpu")


def _amounts(gpu: int | None, cpu: int | None, memory: int | None) -> str:
    parts = ((gpu, 1000), (cpu, 1000), (memory, GIGABYTE))
    texts = ["Unlimited" if amount is None else decimal_text(amount, size) for amount, size in parts]
    return f"GPU: {texts[0]}, CPU: {texts[1]} (cores), memory: {texts[2]} (GB)"


def waiting_in_kube(pend: PendingReason, causes: Counter[str], *, nodes: int) -> str:
    """ "0/16 nodes are available: 12 Insufficient nvidia.com/gpu, …" and what preemption would do."""
    counted = ", ".join(f"{number} {cause}" for cause, number in sorted(causes.items(), key=lambda item: item[0]))
    head = (
        f"0/{nodes} nodes are available: {counted or 'no nodes registered'}. no new claims to deallocate, preemption: "
    )
    if pend.reason is Reason.PREEMPTION_NEVER:
        return f"{head}not eligible due to preemptionPolicy=Never."
    why = NOT_HELPFUL if pend.reason is Reason.NEVER_FITS else NO_VICTIMS
    return f"{head}0/{nodes} nodes are available: {nodes} {why}"


def evicted_by_volcano(cause: Cause) -> str:
    """On the victim: by which of its actions."""
    return f"Pod is evicted, because of {cause}"


def waiting_in_volcano(wait: Wait, pod: str, causes: Counter[str], *, nodes: int, nominated: str) -> str:
    """A promise; else what the pod's group waits for, with the nodes counted where any was tried (of domains none)."""
    no_domain = wait.pend.reason is Reason.NO_DOMAIN
    if nominated and not no_domain:
        return f"Pod {pod} can possibly be assigned to {nominated}, {ONCE}"
    if wait.pend.reason is Reason.QUEUE_MISSING:
        return f"queue {wait.pend.queue} does not exist"
    pending = len(wait.group.waiting)
    head = (
        f"pod group is not ready, {pending} Pending, {wait.group.min_member} minAvailable; Pending: {pending} "
        "Unschedulable"
    )
    if no_domain or wait.pend.reason is Reason.OVER_LIMIT:
        return head
    counted = ", ".join(f"{number} {cause}" for cause, number in sorted(causes.items(), key=lambda item: item[0]))
    name = pod.partition("/")[2]
    return f"{head}. Origin reason is {name}: 0/{nodes} nodes are unavailable: {counted or 'no nodes registered'}."


def gang_waiting_in_volcano(wait: Wait, text: str) -> str:
    """The same on the group, with how many of its pods wait."""
    return f"{len(wait.group.waiting)}/{len(wait.group.pods)} tasks in gang unschedulable: {text}"


def preempted_by_kueue(*, workload: str, job: str, cause: Cause, queues: tuple[str, str]) -> str:
    """On the victim: the Workload and the job that gain, how, and both queues, who gains first."""
    why = "prioritization in the ClusterQueue" if cause is Cause.PREEMPT else "reclamation within the cohort"
    return (
        f"Preempted to accommodate a workload (UID: {workload}, JobUID: {job}) due to {why}; "
        f"preemptor path: /{queues[0]}; preemptee path: /{queues[1]}"
    )


PREEMPTS_IN_KUEUE: Final = "Pending the preemption of"


def preempts_in_kueue(message: str) -> bool:
    """Whether a job waits for its victims by this message."""
    return PREEMPTS_IN_KUEUE in message


def waiting_in_kueue(pend: PendingReason, *, queue: str, flavor: str, topology: str, pods: int, evicts: int) -> str:
    """Why a job of so many pods is held back. `evicts`: how many workloads have to end for it."""
    part = _dimension(pend)
    resource = {"gpu": GPU_RESOURCE}.get(part, part)
    head, there = "couldn't assign flavors to pod set main: ", f"for {resource} in flavor {flavor}"
    missing, requested, most = (_counted(part, each) for each in (pend.missing, pend.needed, pend.allowed))
    none = f"doesn't allow to fit any of {pods} pod(s)"
    nowhere = (
        f'topology "{topology}" {f"allows to fit only {pend.fitting} out of {pods} pod(s)" if pend.fitting else none}'
    )
    match pend.reason:
        case Reason.EVICTING:
            short = nowhere if pend.also else f"insufficient unused quota {there}"
            return f"{head}{short}. {PREEMPTS_IN_KUEUE} {evicts} workload(s)"
        case Reason.NO_DOMAIN | Reason.NO_ROOM | Reason.NEVER_FITS | Reason.NO_SUCH_POOL:
            return f"{head}{nowhere}"
        case Reason.QUEUE_MISSING:
            return f"LocalQueue {queue} doesn't exist"
        case Reason.EXCEEDS_MAX_QUOTA:
            return (
                f"{head}insufficient quota {there}, previously considered podsets requests (0) + current podset "
                f"request ({requested}) > maximum capacity ({most})"
            )
        case _:
            return f"{head}insufficient unused quota {there}, {missing} more needed"


def _counted(part: str, amounts: Resources | Limit) -> str:
    """GPUs and cores whole or in parts, bytes as they are."""
    amount = getattr(amounts, part) or 0
    return str(amount) if part == "memory" else decimal_text(amount)


def shortfalls(requested: Resources, free: Resources) -> list[str]:
    """Which of a node's resources do not suffice."""
    names = {"cpu": "cpu", "memory": "memory", "gpu": GPU_RESOURCE}
    return [
        f"Insufficient {name}" for part, name in names.items() if 0 < getattr(requested, part) > getattr(free, part)
    ]
