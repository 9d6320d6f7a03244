"""What a native spec asks of a node: GPUs whole or as a share, CPU, memory, shared memory."""

from collections.abc import Mapping
from typing import Any, Final

from workloads.intake.native.parts import items, nothing, number, rebuilt
from workloads.intake.problems import visible
from workloads.intake.resources import GPU, MOST_GPUS, cpu, memory, rule_for
from workloads.intake.rules import ABSENT, Place, Rule, boolean, both, choice, integer, table, text

NO_MEMORY: Final = "GPU memory is not divided here: ask for a portion, or for whole devices."
_SIDES: Final = (
    ("cpuCoreRequest", "requests", "cpu"),
    ("cpuCoreLimit", "limits", "cpu"),
    ("cpuMemoryRequest", "requests", "memory"),
    ("cpuMemoryLimit", "limits", "memory"),
)
_written: Rule = text(60, shortest=1)
_FIELDS: Final[Mapping[str, Rule]] = {
    "gpuDevicesRequest": integer(0, MOST_GPUS),
    "gpuRequestType": choice("portion", "memory"),
    "gpuPortionRequest": number,
    "gpuPortionLimit": number,
    "gpuMemoryRequest": nothing(NO_MEMORY),
    "gpuMemoryLimit": nothing(NO_MEMORY),
    "cpuCoreRequest": both(number, cpu),
    "cpuCoreLimit": both(number, cpu),
    "cpuMemoryRequest": both(_written, memory),
    "cpuMemoryLimit": both(_written, memory),
    "largeShmRequest": boolean,
    "extendedResources": items(table({"resource": text(316, shortest=1), "quantity": _written}, required=["resource"])),
}


def _compute(asked: dict[str, Any], place: Place) -> Any:
    """`resources` of the container, `share` of one GPU as text or empty, `shm`: more shared memory than usual."""
    sides: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for name, side, resource in _SIDES:
        if name in asked:
            sides[side][resource] = asked[name]
    share = _share(asked, place)
    devices = asked.get("gpuDevicesRequest", 1 if asked.get("gpuPortionRequest") == 1 else 0)
    if devices and not share:
        sides["limits"][GPU] = devices
    sides["limits"] |= _extended(asked, place)
    return {
        "resources": {side: given for side, given in sides.items() if given},
        "share": share,
        "shm": asked.get("largeShmRequest", False),
    }


def _share(asked: Mapping[str, Any], place: Place) -> str:
    """The share of one GPU; empty for whole ones."""
    if asked.get("gpuRequestType") == "memory":
        place.at("gpuRequestType").refuse("not_offered", NO_MEMORY, ("portion",))
    portion = asked.get("gpuPortionRequest")
    if portion is None or portion in (0, 1):
        _refuse_growth(asked, portion, place)
        return ""
    if not 0.01 <= portion < 1 or round(portion, 2) != portion:
        message = f"{visible(portion)} is not a share of one GPU from 0.01 to 0.99 in hundredths, or 1."
        place.at("gpuPortionRequest").refuse("bad_gpu_count", message)
    if asked.get("gpuDevicesRequest", 1) != 1:
        place.at("gpuDevicesRequest").refuse("gpu_both_ways", "A share is of one device: write 1.", ("1",))
    _refuse_growth(asked, portion, place)
    return format(portion, ".2f").rstrip("0")


def _refuse_growth(asked: Mapping[str, Any], portion: float | None, place: Place) -> None:
    limit = asked.get("gpuPortionLimit")
    if limit is not None and limit != (portion if portion is not None else limit):
        message = "A share does not grow: its limit equals its request, or stays away."
        place.at("gpuPortionLimit").refuse("out_of_range", message, (str(portion),))


def _extended(asked: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """Further devices, as far as they are granted to the project."""
    found: dict[str, Any] = {}
    for index, item in enumerate(asked.get("extendedResources", [])):
        each = place.at("extendedResources").at(index)
        name = item.get("resource")
        rule = rule_for(name, each.at("resource")) if name is not None else None
        amount = ABSENT if rule is None else rule(item.get("quantity", "1"), each.at("quantity"))
        if amount is not ABSENT:
            found[name] = amount
    return found


compute: Rule = rebuilt(_FIELDS, _compute)
