"""A template as values of the submit form, and a filled form as what a template says. Pure.

The form holds less than a native body; what it has no field for is named, never dropped unsaid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.common import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from workloads.intake import FormFields
from workloads.intake.forms import FRAMEWORKS
from workloads.intake.native import TYPES
from workloads.native_bodies import KINDS, LEADING, native_spec

Spec = Mapping[str, Any]
TEMPLATES: Final = frozenset({"workspaces", "trainings", "distributed", "inferences"})
POOLS: Final = ("node_pool", "second_pool", "third_pool")
_TEXTS: Final = ("image", "command", "gpus", "cpu", "memory", "framework", "placement", "topology_key", "type")
_PLAIN: Final = (*_TEXTS, "arguments", "workers", "replicas", "port", "grace_seconds", "checkpoint_interval")


@dataclass(frozen=True, slots=True)
class Start:
    """What the form is filled with, and the fields that it cannot show; `complete`: a manifest can."""

    initial: Mapping[str, Any]
    unsaid: Sequence[str] = ()
    complete: bool = False


def start_from(kind: str, spec: Spec, master: Spec | None) -> Start:
    """The form of a template with its assets."""
    fields = _fields(kind, spec)
    said = native_spec(fields) or {}
    unsaid = [name for name, value in spec.items() if value is not None and not _within(value, said.get(name))]
    return Start(_initial(fields), [*unsaid, *(["masterSpec"] if master is not None else [])])


def keepable(type_name: str, raw: Mapping[str, Any]) -> tuple[str, Spec] | None:
    """Kind and spec that a template may be made of, of what a workload was sent as: by the form, or natively."""
    kind = KINDS.get(type_name, "")
    spec = raw.get("native", raw.get("spec") if "apiVersion" not in raw else None)
    if kind not in TEMPLATES or not isinstance(spec, dict) or raw.get("masterSpec") is not None:
        return None
    return kind, spec


def _within(part: Any, whole: Any) -> bool:
    """Is all of it said?"""
    if isinstance(part, Mapping):
        found = whole if isinstance(whole, Mapping) else {}
        return all(value is None or _within(value, found.get(name)) for name, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(each in whole for each in part)
    return bool(part == whole)


def _fields(kind: str, spec: Spec) -> FormFields:
    compute, framework = spec.get("compute") or {}, spec.get("distributedFramework") or FRAMEWORKS[0]
    notes = {each["name"]: each["value"] for each in spec.get("annotations") or [] if {"name", "value"} <= each.keys()}
    ports = [each.get("container") for each in spec.get("ports") or []] + [_of(spec, "servingPort", "container")]
    workers = (spec.get("numWorkers") or 1) + (framework in LEADING)
    least = notes.get(MIN_MEMBER, "")
    return FormFields(
        type=TYPES[kind],
        name="",
        image=spec.get("image") or "",
        command=spec.get("command") or "",
        arguments=spec.get("args") or "",
        gpus=_gpus(compute),
        cpu=_text(compute.get("cpuCoreRequest")),
        memory=_text(compute.get("cpuMemoryRequest")),
        workers=workers if kind == "distributed" else 1,
        replicas=_of(spec, "autoscaling", "minReplicas") or 1,
        port=next((each for each in ports if each is not None), None),
        framework=framework,
        environment=_environment(spec),
        node_pools=tuple(spec.get("nodePools") or ()),
        min_member=int(least) if least.isascii() and least.isdigit() else None,
        placement=notes.get(PLACEMENT, ""),
        topology_key=notes.get(TOPOLOGY_KEY, ""),
        grace_seconds=spec.get("terminationGracePeriodSeconds"),
        checkpoint_interval=notes.get("rung.dev/checkpoint-interval", ""),
        priority=spec.get("priorityClass"),
        preemptibility=spec.get("preemptibility"),
    )


def _initial(fields: FormFields) -> dict[str, Any]:
    pools = dict(zip(POOLS, fields.node_pools, strict=False))
    lines = "\n".join(f"{name}={value}" for name, value in fields.environment)
    chosen = {"priority": fields.priority or "", "preemptibility": fields.preemptibility or ""}
    least = {} if fields.min_member is None else {"min_member": fields.min_member}
    return {**{name: getattr(fields, name) for name in _PLAIN}, **pools, **chosen, **least, "environment": lines}


def _gpus(compute: Spec) -> str:
    share = compute.get("gpuPortionRequest")
    return _text(share) if share is not None else _text(compute.get("gpuDevicesRequest")) or "0"


def _environment(spec: Spec) -> tuple[tuple[str, str], ...]:
    """Variables that a line of the form can say."""
    pairs = ((each.get("name"), each.get("value")) for each in spec.get("environmentVariables") or [])
    plain = ((name, value) for name, value in pairs if isinstance(name, str) and isinstance(value, str))
    return tuple((name, value) for name, value in plain if value.splitlines() in ([], [value]))


def _of(spec: Spec, name: str, part: str) -> Any:
    found = spec.get(name)
    return found.get(part) if isinstance(found, Mapping) else None


def _text(value: object) -> str:
    return "" if value is None else str(value)
