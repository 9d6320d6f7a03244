"""What intake hands on: a workload that was read, rebuilt and counted."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

from scheduling.priority import Request
from scheduling.resources import ZERO, Resources
from workloads.intake.problems import IntakeRefused, Problem

Source = Literal["form", "json", "yaml"]


@dataclass(frozen=True, slots=True)
class PodRole:
    """Pods of one template: how many, and what each of them holds."""

    name: str
    replicas: int
    requests: Resources
    pointer: str
    grace_seconds: int = 30
    containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    @property
    def total(self) -> Resources:
        """What all of its pods hold together."""
        return self.requests * self.replicas

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`."""
        lists = {name: tuple(data[name]) for name in ("containers", "images")}
        return cls(**{**data, **lists, "requests": Resources(**data["requests"])})


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A workload as it may be stored and rendered. `manifest` holds nothing but allow-listed fields.

    It names no namespace, no priority and no preemptibility: `request` holds what was asked for, and rendering writes
    what became of it. `generate_name`: `name` is a prefix that the service completes.
    """

    type_name: str
    kind: str
    api_version: str
    name: str
    generate_name: bool
    manifest: dict[str, Any]
    roles: tuple[PodRole, ...]
    request: Request
    min_member: int
    node_pools: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    source: Source = "yaml"
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> Resources:
        """What every pod of every role holds together."""
        return sum((role.total for role in self.roles), ZERO)

    @property
    def pods(self) -> int:
        """How many pods it becomes."""
        return sum(role.replicas for role in self.roles)

    def named(self, name: str) -> "WorkloadSpec":
        """The same workload under a final name."""
        metadata = {**self.manifest["metadata"], "name": name}
        return replace(self, name=name, generate_name=False, manifest={**self.manifest, "metadata": metadata})

    def as_json(self) -> dict[str, Any]:
        """A form any JSON column holds; `from_json` gives back an equal spec. The manifest is the spec's own."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**parts, "roles": [asdict(role) for role in self.roles], "request": asdict(self.request)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`, also after a trip through a JSON text."""
        request = data["request"]
        pod_classes = tuple((pointer, name) for pointer, name in request["pod_priority_class"])
        return cls(
            **{
                **data,
                "roles": tuple(PodRole.from_json(role) for role in data["roles"]),
                "request": Request(**{**request, "pod_priority_class": pod_classes}),
                "node_pools": tuple(data["node_pools"]),
                "warnings": tuple(data["warnings"]),
            }
        )


def check_pod_classes(request: Request, known_names: tuple[str, ...]) -> None:
    """Refuse a class that a pod template names and the dictionary does not know."""
    unknown = [
        Problem(pointer, "priority_unknown", f"Priority {name!r} is not known.", allowed=known_names)
        for pointer, name in request.pod_priority_class
        if name not in known_names
    ]
    if unknown:
        raise IntakeRefused(422, unknown)
