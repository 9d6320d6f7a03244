"""Kubernetes PriorityClasses and ResourceQuotas as the documents that they mean."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rung_cli.errors import UsageError
from rung_cli.manifests.kinds.org_units import UNITS
from rung_cli.manifests.reading import Body
from rung_cli.manifests.resources import VERSION, DeclaredObject, ServerState

PRIORITY_CLASS: Final = ("scheduling.k8s.io/v1", "PriorityClass")
RESOURCE_QUOTA: Final = ("v1", "ResourceQuota")
NO_DEFAULT: Final = "globalDefault has no counterpart. Set the default priority of each workload type instead."
GPUS: Final = "requests.nvidia.com/gpu"
RESOURCES: Final[Mapping[str, str]] = {
    GPUS: "gpu",
    "requests.cpu": "cpu",
    "cpu": "cpu",
    "requests.memory": "memory",
    "memory": "memory",
}
"""What a quota counts, and the part of Rung's quota that is its hard limit."""
SUFFIXES: Final = {
    **{unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{f"{unit}i": 1024**power for power, unit in enumerate(("K", "M", "G", "T", "P", "E"), start=1)},
    "m": 1e-3,
}
_QUANTITY: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<suffix>[a-zA-Z]*)")


@dataclass
class Translation:
    """`bodies`: everything that can be applied. `remarks`: what got lost on the way. `left`: what has no document."""

    bodies: list[tuple[str, Body]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def is_kubernetes(body: Body) -> bool:
    """Is it an object that can be translated?"""
    return (body.get("apiVersion"), body.get("kind")) in {PRIORITY_CLASS, RESOURCE_QUOTA}


def translate(bodies: Sequence[tuple[str, Body]], server: ServerState) -> Translation:
    """Objects become documents; documents stay. Quotas of one project are put together. UsageError at the object."""
    found, quotas = Translation(), dict[str, tuple[str, Body]]()
    for source, body in bodies:
        if not is_kubernetes(body):
            found.bodies.append((source, body))
        elif body["kind"] == "PriorityClass":
            found.bodies.append((source, _priority(source, body, found)))
        else:
            _quota(source, body, server, found, quotas)
    found.bodies += quotas.values()
    return found


def _priority(source: str, body: Body, found: Translation) -> Body:
    name = _name(source, body)
    if body.get("globalDefault"):
        found.remarks.append(f"PriorityClass {name}: {NO_DEFAULT}")
    if not isinstance(body.get("value"), int):
        raise UsageError(f"{source}: /value must be a whole number.")
    spec = {
        "value": body["value"],
        "preemptionPolicy": body.get("preemptionPolicy") or "PreemptLowerPriority",
        "description": str(body.get("description") or ""),
    }
    return {"apiVersion": VERSION, "kind": "Priority", "metadata": {"name": name}, "spec": spec}


def _quota(
    source: str, body: Body, server: ServerState, found: Translation, quotas: dict[str, tuple[str, Body]]
) -> None:
    name, spec = _name(source, body), body.get("spec")
    hard = spec.get("hard") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(hard, dict):
        raise UsageError(f"{source}: /spec/hard must be a mapping from resources to amounts.")
    project = _project(source, str(body["metadata"].get("namespace") or "default"), server)
    priorities, other = _scopes(spec)
    if priorities and not other:
        _cap(source, name, hard, priorities, project, found)
        return
    if other:
        found.left.append(f"ResourceQuota {name} counts only pods of the scope {other}: Rung has no such quota.")
        return
    pool = _pool(source, project, server)
    if len(_pools(project, server)) > 1:
        text = f"counts all node pools of {project.key.name} together; its document limits {pool} only"
        found.remarks.append(f"ResourceQuota {name} {text}.")
    _source, document = quotas.setdefault(project.key.name, (source, _document(project)))
    entry = document["spec"]["quotas"].setdefault(pool, {})
    for resource, amount in hard.items():
        if resource not in RESOURCES:
            found.remarks.append(f"ResourceQuota {name}: {resource} has no counterpart and is left out.")
            continue
        _limit(entry, RESOURCES[resource], _quantity(source, resource, amount))


def _cap(
    source: str, name: str, hard: Body, priorities: Sequence[str], project: DeclaredObject, found: Translation
) -> None:
    """A quota of one priority is a cap; one that counts several priorities together is none."""
    if len(priorities) > 1 or GPUS not in hard:
        what = f"the pods of {' and '.join(priorities)} together" if len(priorities) > 1 else f"no {GPUS}"
        found.left.append(f"ResourceQuota {name} counts {what}: a PriorityCap caps the GPUs of one priority.")
        return
    for resource in hard.keys() - {GPUS}:
        found.remarks.append(f"ResourceQuota {name}: {resource} of one priority has no counterpart and is left out.")
    metadata = {"priority": priorities[0], "project": project.key.name}
    spec = {"gpuLimit": _quantity(source, GPUS, hard[GPUS])}
    found.bodies.append((source, {"apiVersion": VERSION, "kind": "PriorityCap", "metadata": metadata, "spec": spec}))


def _limit(entry: dict[str, Any], part: str, amount: float) -> None:
    """A hard limit in the units that the quota has; what is deserved cannot be more than it."""
    known = dict(entry.get(part) or {})
    units = {"units": known.get("units") or "Mib"} if part == "memory" else {}
    size = UNITS[units["units"]] if units else {"gpu": 1.0, "cpu": 1e-3}[part]
    limit = round(amount / size, 3)
    limit = int(limit) if limit == int(limit) else limit
    if known.get("deserved") is not None:
        known["deserved"] = min(known["deserved"], limit)
    entry[part] = {**known, "limit": limit, **units}


def _document(project: DeclaredObject) -> Body:
    """Its quotas as they are: a document's quotas are the whole set."""
    whole = project.as_document()
    quotas = {pool: dict(entry) for pool, entry in (project.spec.get("quotas") or {}).items()}
    return {**whole, "spec": {"quotas": quotas}}


def _project(source: str, namespace: str, server: ServerState) -> DeclaredObject:
    """The one with this namespace, else the one of this name."""
    projects = server.things("Project").values()
    found = [each for each in projects if each.spec.get("namespace") == namespace]
    if found or (found := [each for each in projects if each.key.name == namespace]):
        return found[0]
    raise UsageError(
        f"{source}: no project has the namespace {namespace}.",
        hint=f"Create it first, with a Project document whose /spec/namespace is {namespace}.",
    )


def _pools(project: DeclaredObject, server: ServerState) -> list[DeclaredObject]:
    return [each for each in server.things("NodePool").values() if each.key.cluster == project.key.cluster]


def _pool(source: str, project: DeclaredObject, server: ServerState) -> str:
    """The only node pool, else the cluster's default."""
    pools = _pools(project, server)
    found = next((each for each in pools if each.spec.get("isDefault")), pools[0] if pools else None)
    if found is None:
        raise UsageError(f"{source}: {project.key.cluster} has no node pool to limit.")
    return found.key.name


def _scopes(spec: Body) -> tuple[list[str], str]:
    """(priorities that it is for, any other scope)."""
    selector = spec.get("scopeSelector") or {}
    expressions = selector.get("matchExpressions") or [] if isinstance(selector, dict) else []
    priorities, other = list[str](), [str(each) for each in spec.get("scopes") or ()]
    for each in expressions:
        if each.get("scopeName") == "PriorityClass" and each.get("operator") == "In":
            priorities += [str(value) for value in each.get("values") or ()]
        else:
            other.append(str(each.get("scopeName")))
    return priorities, ", ".join(other)


def _quantity(source: str, resource: str, text: object) -> float:
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match["suffix"] not in SUFFIXES:
        raise UsageError(f"{source}: /spec/hard/{resource}: {str(text)[:40]!r} is not an amount.")
    return float(match["number"]) * float(SUFFIXES[match["suffix"]])


def _name(source: str, body: Body) -> str:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        hint = "Copied from a web page? Its lines may have lost their indentation."
        raise UsageError(f"{source}: /metadata/name is missing.", hint=hint)
    return str(metadata["name"])


def remarks_of(found: Translation) -> Iterator[str]:
    """Everything that a person should know before it is applied."""
    yield from found.remarks
    yield from found.left
