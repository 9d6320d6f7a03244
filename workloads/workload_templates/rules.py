"""Merge a submission with a template and its assets; a template as a form, a form as a template. Pure.

A field that is there wins, an empty one too; null says nothing. Objects are filled field by field, and lists whose
items have names item by item: `exclude: true` keeps a name out. Any other list is taken whole or not at all.

The form holds less than a native body; what it has no field for is named, never dropped unsaid.
"""

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.flavours.objects import PLACEMENT, TOPOLOGY_KEY
from clusters.flavours.rendering import MIN_MEMBER
from portal.kit.security.strict_json import token
from workloads.intake import FormFields
from workloads.intake.rules.forms import FRAMEWORKS
from workloads.intake.rules.native.objects import TYPES
from workloads.intake.serializers import KINDS, LEADING, native_spec

Values = Mapping[str, Any]
NAMED: Final = frozenset({"environmentVariables", "labels", "annotations"})
"""Lists whose items have a `name`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values, and whose they are: `template notebook`."""

    title: str
    values: Values


def merge(
    own: Values, layers: Iterable[Layer], *, at: str, known: Container[str]
) -> tuple[dict[str, Any], "ValueSources"]:
    """The body with what the layers add, the first before the next, and by pointer below `at` which layer it was.

    `known`: fields that the body has at all; others are left where they are.
    """
    found, sources = copy.deepcopy(dict(own)), ValueSources()
    for layer in layers:
        values = {name: value for name, value in layer.values.items() if name in known}
        _add(found, values, layer.title, at, sources)
    return found, sources


class ValueSources(dict[str, str]):
    """By pointer: whose a value is."""

    def of(self, pointer: str) -> str:
        """Whose the value there is, or the one it is part of; empty for the body's own."""
        while pointer:
            if pointer in self:
                return self[pointer]
            pointer = pointer.rpartition("/")[0]
        return ""


def _add(into: dict[str, Any], values: Values, title: str, at: str, sources: ValueSources) -> None:
    given = frozenset(name for name, value in into.items() if value is not None)
    for name, value in values.items():
        pointer = f"{at}/{token(name)}"
        own = into.get(name)
        if value is None or _settled(name, given):
            continue
        if own is None:
            into[name], sources[pointer] = copy.deepcopy(value), title
        elif isinstance(own, dict) and isinstance(value, Mapping):
            _add(own, value, title, pointer, sources)
        elif name in NAMED and isinstance(own, list) and isinstance(value, list):
            _add_items(own, value, title, pointer, sources)


def _settled(name: str, given: frozenset[str]) -> bool:
    """What belongs together comes from one place: the fields of a GPU request, and arguments with their command."""
    if name.startswith("gpu"):
        return any(each.startswith("gpu") for each in given)
    return name == "args" and "command" in given


def _add_items(own: list[Any], values: Iterable[Any], title: str, at: str, sources: ValueSources) -> None:
    names = {each.get("name") for each in own if isinstance(each, Mapping)}
    for each in values:
        if isinstance(each, Mapping) and each.get("name") not in names:
            sources[f"{at}/{len(own)}"] = title
            own.append(copy.deepcopy(each))


Spec = Mapping[str, Any]
TEMPLATES: Final = frozenset({"workspaces", "trainings", "distributed", "inferences"})
POOLS: Final = ("node_pool", "second_pool", "third_pool")
_TEXTS: Final = ("image", "command", "gpus", "cpu", "memory", "framework", "placement", "topology_key", "type")
_PLAIN: Final = (*_TEXTS, "arguments", "workers", "replicas", "port", "grace_seconds", "checkpoint_interval")


@dataclass(frozen=True, slots=True)
class FormPrefill:
    """What the form is filled with, and the fields that it cannot show; `complete`: a manifest can.

    gone: node pools of the template that no longer exist.
    """

    initial: Mapping[str, Any]
    unsaid: Sequence[str] = ()
    complete: bool = False
    gone: Sequence[str] = ()


def start_from(kind: str, spec: Spec, master: Spec | None) -> FormPrefill:
    """The form of a template with its assets."""
    fields = _fields(kind, spec)
    given = native_spec(fields) or {}
    unsaid = [name for name, value in spec.items() if value is not None and not _within(value, given.get(name))]
    return FormPrefill(_initial(fields), [*unsaid, *(["masterSpec"] if master is not None else [])])


def keepable(type_name: str, raw: Mapping[str, Any]) -> tuple[str, Spec] | None:
    """Kind and spec that a template may be made of, of what a workload was sent as: by the form, or natively."""
    kind = KINDS.get(type_name, "")
    spec = raw.get("native", raw.get("spec") if "apiVersion" not in raw else None)
    if kind not in TEMPLATES or not isinstance(spec, dict) or raw.get("masterSpec") is not None:
        return None
    return kind, spec


def _within(part: Any, whole: Any) -> bool:
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
