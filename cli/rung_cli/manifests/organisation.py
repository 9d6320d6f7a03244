"""The organisation as documents: priorities, types, departments and projects, read and written, without their ids.

A document names its thing by kind and metadata; its spec says how it is to be. What a spec leaves out is not managed
and stays as it is. Quotas are compared by what they amount to, not by how they are written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from rung_cli.errors import UsageError
from rung_cli.manifests.documents import ManifestDocument

VERSION: Final = "rung.dev/v1"
PRIORITY, TYPE, DEPARTMENT, PROJECT = "Priority", "WorkloadType", "Department", "Project"
KINDS: Final = (PRIORITY, TYPE, DEPARTMENT, PROJECT)
"""In the order in which they are applied: each may name those before it."""
UNITS: Final = {"Mib": 2**20, "MB": 10**6, "GB": 10**9}
RULES: Final = (
    "interactiveJobTimeLimitSeconds",
    "interactiveJobMaxIdleDurationSeconds",
    "trainingJobTimeLimitSeconds",
    "trainingJobMaxIdleDurationSeconds",
)
METADATA: Final[Mapping[str, tuple[str, ...]]] = {
    PRIORITY: ("name",),
    TYPE: ("name",),
    DEPARTMENT: ("name", "cluster"),
    PROJECT: ("name", "cluster", "department"),
}
SPEC: Final[Mapping[str, tuple[str, ...]]] = {
    PRIORITY: ("value", "preemptionPolicy", "description"),
    TYPE: ("category", "priority", "preemptibility"),
    DEPARTMENT: ("description", "schedulingRules", "quotas"),
    PROJECT: ("namespace", "description", "nodePools", "schedulingRules", "quotas"),
}
QUOTA: Final = ("gpu", "cpu", "memory", "overQuotaWeight", "rank")
Spec = dict[str, Any]


class DeclaredKey(NamedTuple):
    """Which thing. `cluster` is empty for what belongs to all of them; a project's name is the installation's."""

    kind: str
    name: str
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" on {self.cluster}" if self.cluster else "")


@dataclass(frozen=True, slots=True)
class DeclaredObject:
    """One document. `source`: where it stands, for errors."""

    key: DeclaredKey
    spec: Spec
    department: str = ""
    source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the server said besides, its id first of all; not part of the document."""

    def as_document(self) -> dict[str, Any]:
        """As it is written."""
        metadata = {"name": self.key.name, "cluster": self.key.cluster, "department": self.department}
        known = {name: metadata[name] for name in METADATA[self.key.kind]}
        return {"apiVersion": VERSION, "kind": self.key.kind, "metadata": known, "spec": self.spec}


def declared_objects(documents: Sequence[ManifestDocument]) -> list[DeclaredObject]:
    """Every thing that is declared. UsageError, naming file and document, for what is none or stands twice."""
    found = [_declared_object(document) for document in documents]
    seen: dict[DeclaredKey, DeclaredObject] = {}
    for each in found:
        if other := seen.get(each.key):
            raise UsageError(f"{each.source}: {each.key} is already in {other.source}.")
        seen[each.key] = each
    return found


def amounts(entry: Mapping[str, Any]) -> dict[str, object]:
    """What a quota amounts to: bytes of memory, null for no limit, the rank's name in one spelling."""
    found: dict[str, object] = {}
    for name in ("gpu", "cpu", "memory"):
        part = entry.get(name) or {}
        size = UNITS[part.get("units", "MB")] if name == "memory" else 1
        for way in ("deserved", "limit"):
            said = part.get(way)
            said = None if said == -1 and way == "limit" else said
            found[f"{name} {way}"] = None if said is None else said * size
    found["gpu deserved"] = found["gpu deserved"] or 0
    weight = entry.get("overQuotaWeight")
    found["over-quota weight"] = 2 if weight is None else weight
    for name in ("cpu", "memory"):
        own = (entry.get(name) or {}).get("overQuotaWeight")
        found[f"{name} over-quota weight"] = None if own == found["over-quota weight"] else own
    found["rank"] = re.sub("[-_ ]", "", str(entry.get("rank") or "MediumLow")).lower()
    return found


def _declared_object(document: ManifestDocument) -> DeclaredObject:
    body, source = _body(document), str(document)
    kind, metadata, spec = body.get("kind"), body.get("metadata"), body.get("spec")
    if body.get("apiVersion") != VERSION or kind not in KINDS:
        raise UsageError(f"{source}: apiVersion must be {VERSION} and kind one of {', '.join(KINDS)}.")
    _only(source, "", body, ("apiVersion", "kind", "metadata", "spec"))
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise UsageError(f"{source}: metadata and spec must be mappings.")
    _only(source, "/metadata", metadata, METADATA[kind])
    _only(source, "/spec", spec, SPEC[kind])
    for name in METADATA[kind]:
        if not isinstance(metadata.get(name), str) or not metadata[name]:
            raise UsageError(f"{source}: /metadata/{name} is missing.")
    for problem in _shape_error(spec):
        raise UsageError(f"{source}: {problem}")
    key = DeclaredKey(kind, metadata["name"], metadata.get("cluster", ""))
    return DeclaredObject(key, spec, metadata.get("department", ""), source)


def _body(document: ManifestDocument) -> dict[str, Any]:
    try:
        body = yaml.safe_load(document.text)
    except yaml.YAMLError as error:
        raise UsageError(f"{document}: not valid YAML: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f"{document}: a document must be a mapping.")
    return body


def _shape_error(spec: Mapping[str, Any]) -> Iterator[str]:
    quotas, rules = spec.get("quotas", {}), spec.get("schedulingRules", {})
    if not isinstance(quotas, dict) or not all(isinstance(each, dict) for each in quotas.values()):
        yield "/spec/quotas must be a mapping from node pools to quotas."
        return
    for pool, entry in quotas.items():
        at = f"/spec/quotas/{pool}"
        if unknown := [name for name in entry if name not in QUOTA]:
            yield f"{at}/{unknown[0]}: unknown field; known fields: {', '.join(QUOTA)}."
        for name in ("gpu", "cpu", "memory"):
            yield from _part_shape_error(f"{at}/{name}", entry.get(name), name)
    if not isinstance(rules, dict) or any(name not in RULES for name in rules):
        yield f"/spec/schedulingRules must be a mapping with {', '.join(RULES)}."


def _part_shape_error(at: str, part: Any, name: str) -> Iterator[str]:
    """The weight of GPUs stands beside the three: it is that of CPU and memory unless they have their own."""
    if part is None:
        return
    units = name == "memory"
    known = {"deserved", "limit", *(() if name == "gpu" else ("overQuotaWeight",)), *(("units",) if units else ())}
    if not isinstance(part, dict) or part.keys() - known:
        yield f"{at} must be a mapping with {', '.join(sorted(known))}."
        return
    numbers = [part[way] for way in ("deserved", "limit") if part.get(way) is not None]
    weight = part.get("overQuotaWeight", 0)
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in (*numbers, weight)):
        yield f"{at}: amounts must be numbers; null or -1 means no limit."
    if units and (numbers or "units" in part) and part.get("units") not in UNITS:
        yield f"{at}/units must be one of {', '.join(UNITS)}."


def _only(source: str, at: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [str(name) for name in found if name not in known]:
        raise UsageError(f"{source}: {at}/{unknown[0]}: unknown field; known fields: {', '.join(known)}.")
