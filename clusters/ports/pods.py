"""Readers of pod and node manifests: amounts, times, phase, conditions, taints. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Any, Final

from clusters.ports.gateway import Manifest
from scheduling.model.preemptibility import Preemptibility, as_scheduled
from scheduling.model.resources import ZERO, Resources, parse_quantity, per_dimension
from scheduling.model.snapshot import Taint, Toleration

GPU_RESOURCE: Final = "nvidia.com/gpu"
GPU_RESOURCES: Final = frozenset(
    {
        GPU_RESOURCE,
        "nvidia.com/gpu.shared",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
    }
)
"""What device plugins call whole GPUs, or the replicas of shared ones."""
MIG_PREFIX: Final = "nvidia.com/mig-"
GPU_FRACTION: Final = "gpu-fraction"  # annotations of KAI: a part of one device,
GPU_MEMORY: Final = "gpu-memory"  # as much of its memory, which only the node knows as a part,
GPU_DEVICES: Final = "gpu-fraction-num-devices"  # and of so many devices
GPU_GROUP: Final = "runai-gpu-group"  # label of KAI: the shared device that a pod has a part of, or holds for such pods
DEFAULT_GRACE: Final = 30
TERMINAL: Final = frozenset({"Succeeded", "Failed"})
MOST: Final = Resources(gpu=10**9, cpu=10**12, memory=2**50)
"""More than any object of a real cluster has: a million GPUs, a thousand million cores, a pebibyte. Sums stay sums."""
MOST_PODS: Final = 10**6
EARLIEST: Final = datetime(2014, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2074, 1, 1, tzinfo=UTC)
"""Sixty years from the first Kubernetes on. What lies between two of these moments fits a number of seconds."""


@lru_cache(maxsize=4096)
def scaled(quantity: str, unit: int) -> int:
    """A Kubernetes quantity times `unit`, rounded up as the API server does; 0 when it cannot be read."""
    try:
        return max(ceil(parse_quantity(quantity) * unit), 0)
    except ValueError:
        return 0


def amounts(resources: Mapping[str, Any]) -> Resources:
    """A `requests`, `capacity` or `allocatable` mapping as exact amounts. A MIG device counts as its slice number."""
    return _plausible(_amounts(resources))


def _amounts(resources: Mapping[str, Any]) -> Resources:
    gpu = sum(scaled(str(count), 1000) * gpus_of(name) for name, count in resources.items())
    return Resources(gpu, scaled(str(resources.get("cpu", 0)), 1000), scaled(str(resources.get("memory", 0)), 1))


def _plausible(amounts: Resources) -> Resources:
    return per_dimension(min, amounts, MOST)


def gpus_of(resource: str) -> int:
    """How many GPUs one device of this resource counts as; 0: it is no GPU."""
    if resource.startswith(MIG_PREFIX):
        number = resource.removeprefix(MIG_PREFIX).split("g", 1)[0]
        return int(number) if number.isdecimal() and len(number) < 4 else 1
    return int(resource in GPU_RESOURCES)


def requests_of(pod: Manifest) -> Resources:
    """What the scheduler counts for an observed pod, as far as a cluster can be believed."""
    return _plausible(counted_requests(pod))


EPHEMERAL_STORAGE: Final = "ephemeral-storage"
CLAIMS: Final = "resource-claims"


def more_amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """What else scheduling knows of a node or container: ephemeral storage in bytes, devices other than whole GPUs.

    Whole NVIDIA GPUs are not named: they are what `amounts` counts and this does not.
    """
    named = {name: count for name, count in resources.items() if name == EPHEMERAL_STORAGE or gpus_of(name)}
    found = {name: min(scaled(str(count), 1), MOST.memory) for name, count in named.items() if name != GPU_RESOURCE}
    return {name: count for name, count in found.items() if count}


def more_requests(pod: Manifest) -> dict[str, int]:
    """The same of a pod, and what it has that amounts do not tell: claims of devices, parts of several GPUs."""
    spec, notes = pod.get("spec") or {}, annotations(pod)
    found, peak, sidecars = Counter[str](), Counter[str](), Counter[str]()
    for each in spec.get("containers") or []:
        found.update(more_amounts(_sides(each)))
    for each in spec.get("initContainers") or []:
        own = Counter(more_amounts(_sides(each)))
        if each.get("restartPolicy") == "Always":
            sidecars += own
        else:
            peak |= sidecars + own
    found = (found + sidecars) | peak
    found.update(more_amounts(spec.get("overhead") or {}))
    claims, parts = len(spec.get("resourceClaims") or []), scaled(notes.get(GPU_DEVICES, "1"), 1)
    found.update({CLAIMS: claims, GPU_DEVICES: parts if parts > 1 else 0, GPU_MEMORY: int(GPU_MEMORY in notes)})
    return dict(+found)


def devices_of_node(gpu_milli: int, more: Mapping[str, int]) -> dict[str, int]:
    """`more_amounts` of a node, and how many whole GPUs are left beside its other devices."""
    others = sum(count * gpus_of(name) for name, count in more.items())
    return {**more, GPU_RESOURCE: max(gpu_milli // 1000 - others, 0)}


def needs_of_pods(pods: Iterable[tuple[int, Mapping[str, int]]]) -> dict[str, int]:
    """What every one of these pods needs of a node that offers it by name: of GPUs (milli) and `more_requests`.

    A whole GPU or a part of one needs one whole GPU to be there: how many are free is counted elsewhere.
    """
    first, *others = [_needs(gpu_milli, more) for gpu_milli, more in pods] or [{}]
    return {
        name: min(amount, *(each[name] for each in others)) if others else amount
        for name, amount in first.items()
        if all(name in each for each in others)
    }


def _needs(gpu_milli: int, more: Mapping[str, int]) -> dict[str, int]:
    found = {name: count for name, count in more.items() if name == EPHEMERAL_STORAGE or gpus_of(name)}
    others = sum(count * gpus_of(name) for name, count in found.items())
    return {**found, GPU_RESOURCE: 1} if gpu_milli > others * 1000 else found


def counted_requests(pod: Manifest) -> Resources:
    """What the scheduler counts for a pod, as `pod` says it: the one rule for what is submitted and what is observed.

    The sum of its containers and sidecars, or an init container with the sidecars before it if that is more; what the
    pod asks for as a whole replaces those; its runtime class adds its overhead.
    """
    spec = pod.get("spec") or {}
    requested, peak, sidecars = sum((_requested(each) for each in spec.get("containers") or []), ZERO), ZERO, ZERO
    for each in spec.get("initContainers") or []:
        if each.get("restartPolicy") == "Always":
            sidecars += _requested(each)
        else:
            peak = per_dimension(max, peak, sidecars + _requested(each))
    requested = per_dimension(max, requested + sidecars, peak)
    requested = _as_a_whole(requested, _sides(spec)) + _amounts(spec.get("overhead") or {})
    return Resources(_gpus(pod, requested.gpu), requested.cpu, requested.memory)


def _as_a_whole(requested: Resources, given: Mapping[str, Any]) -> Resources:
    """Pod-level resources: for CPU and memory alone, each where it is said."""
    own = _amounts(given)
    return Resources(
        requested.gpu,
        own.cpu if "cpu" in given else requested.cpu,
        own.memory if "memory" in given else requested.memory,
    )


def _requested(container: Mapping[str, Any]) -> Resources:
    return _amounts(_sides(container))


def _sides(part: Mapping[str, Any]) -> dict[str, Any]:
    """Requests, where a limit replaces a missing request; of devices the larger side."""
    resources = part.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    devices = {name for name in limits if name in requests and gpus_of(name)}
    return {**limits, **requests, **{each: max(limits[each], requests[each], key=_count) for each in devices}}


def _count(quantity: object) -> int:
    return scaled(str(quantity), 1000)


def _gpus(pod: Manifest, requested: int) -> int:
    """What KAI counts: parts of devices, not the pod that holds a device for those; a part by memory as all of it."""
    notes = annotations(pod)
    if GPU_FRACTION not in notes and GPU_MEMORY not in notes:
        return 0 if GPU_GROUP in labels(pod) else requested
    devices = scaled(notes.get(GPU_DEVICES, "1"), 1) or 1
    return requested + min(scaled(notes.get(GPU_FRACTION, "1"), 1000) * devices, MOST.gpu)


def shared_device(pod: Manifest) -> str:
    """The name of the one shared GPU that it has a part of; empty: it has none, or several."""
    return str(labels(pod).get(GPU_GROUP, "")) if GPU_FRACTION in annotations(pod) else ""


def max_pods(node: Manifest) -> int | None:
    """How many pods its kubelet takes; None when it does not say."""
    most = ((node.get("status") or {}).get("allocatable") or {}).get("pods")
    return None if most is None else min(scaled(str(most), 1), MOST_PODS)


def taints_of(node: Manifest) -> tuple[Taint, ...]:
    """What keeps pods away; a preference does not."""
    found: Iterable[Mapping[str, Any]] = (node.get("spec") or {}).get("taints") or []
    return tuple(
        Taint(str(each.get("key", "")), str(each.get("value") or ""), str(each.get("effect", "")))
        for each in found
        if each.get("effect") != "PreferNoSchedule"
    )


def tolerations_of(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    found: Iterable[Mapping[str, Any]] = spec.get("tolerations") or []
    return tuple(
        Toleration(
            str(each.get("key") or ""),
            str(each.get("operator") or "Equal"),
            str(each.get("value") or ""),
            str(each.get("effect") or ""),
        )
        for each in found
    )


def labels(manifest: Manifest) -> dict[str, str]:
    """Labels, empty when there are none."""
    return (manifest.get("metadata") or {}).get("labels") or {}


def annotations(manifest: Manifest) -> dict[str, str]:
    """Annotations, empty when there are none."""
    return (manifest.get("metadata") or {}).get("annotations") or {}


def phase(pod: Manifest) -> str:
    """Pending, Running, Succeeded or Failed."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Manifest) -> bool:
    return phase(pod) in TERMINAL


def is_leaving(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def preemptibility_of(pod: Manifest) -> Preemptibility:
    """The label, else the threshold, as KAI finds it."""
    value = int((pod.get("spec") or {}).get("priority", 0))
    return as_scheduled(labels(pod).get(PREEMPTIBILITY_LABEL, ""), value)


def condition(manifest: Manifest, kind: str) -> Mapping[str, Any] | None:
    """The condition of that type, whatever its status."""
    found: Iterable[Mapping[str, Any]] = (manifest.get("status") or {}).get("conditions") or []
    return next((each for each in found if each.get("type") == kind), None)


def condition_is_true(manifest: Manifest, kind: str) -> bool:
    """Is the condition of that type there and True?"""
    found = condition(manifest, kind)
    return found is not None and found.get("status") == "True"


def stamp(moment: datetime) -> str:
    """RFC 3339 with microseconds, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_of(text: Any) -> datetime | None:
    """A timestamp of a manifest; None when absent, unreadable or none that a cluster can mean."""
    if not isinstance(text, str) or not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        moment = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return moment if EARLIEST <= moment < LATEST else None


def controller_of(manifest: Manifest) -> Mapping[str, Any] | None:
    """The owner reference of the controller, if there is one."""
    owners: Iterable[Mapping[str, Any]] = manifest["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"


GPU_PRODUCT = "nvidia.com/gpu.product"
