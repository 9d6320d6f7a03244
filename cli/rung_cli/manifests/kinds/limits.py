"""GPU caps of priorities, time and idle limits, minimum runtimes: each of a project or a department."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from rung_cli.http.client import rows
from rung_cli.manifests import scopes
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, ResourceKind, ServerState

PLACES: Final[Mapping[str, str]] = {"project": "v1/org-unit/projects", "department": "v1/org-unit/departments"}
IN_RULES: Final = frozenset({"Build", "Train"})
"""Categories whose limits stand in `schedulingRules` of projects and departments, without their notice."""
NOTICE: Final = 15
"""Minutes of notice where nothing else is said."""


class OwnedRuleResource(ResourceKind):
    """A rule that its owner and perhaps one more name identify: read from one list, written by PUT below the owner.

    `lists`: the word of its list in addresses. `listed`: the field of an answer that has the rows.
    """

    lists: ClassVar[str]
    listed: ClassVar[str]
    below: ClassVar[str]
    """The address below the owner."""

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        named = "".join(f"{metadata[name]} in " for name in self.required if name != "project")
        return DeclaredKey(self.name, f"{named}{scopes.place_of(metadata)}")

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        if scopes.scope_of(metadata) not in PLACES:
            yield "/metadata must name a project, or a department and its cluster."
        yield from scopes.scope_errors(metadata)
        if self.fields[0] not in spec:
            yield f"/spec/{self.fields[0]} is missing."
        for name, value in spec.items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                yield f"/spec/{name} must be a number."

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        if place := scopes.scope_key(thing.metadata):
            yield place

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in rows(server.api, f"v1/org-unit/{self.lists}", self.listed, query={}):
            place = scopes.metadata_of(
                server, row.get("orgUnitType", "project"), row.get("orgUnitId", row.get("projectId"))
            )
            if place is not None:
                named = {name: row[name] for name in self.required if name != "project"}
                yield DeclaredObject(self, {**named, **place}, {name: row[name] for name in self.fields}, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        made: Mapping[str, Any] = server.api.put(self._path(server, thing), thing.spec, dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.put(self._path(server, thing), {**now.spec, **thing.spec}, dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(self._path(server, thing), dry_run=dry_run)

    def _path(self, server: ServerState, thing: DeclaredObject) -> str:
        owner = f"{PLACES[scopes.scope_of(thing.metadata)]}/{scopes.scope_id(server, thing.metadata)}"
        return f"{owner}/{self.below.format(**thing.metadata)}"


class PriorityCapResource(OwnedRuleResource):
    """At most so many GPUs of one priority in a project."""

    name = "PriorityCap"
    title = "GPU cap of a priority"
    required = ("priority", "project")
    fields = ("gpuLimit",)
    lists, listed, below = "priority-caps", "priorityCaps", "priority-caps/{priority}"

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        yield DeclaredKey("Priority", thing.metadata["priority"])
        yield from super().references(thing)


class RuntimeLimitResource(OwnedRuleResource):
    """What both limits have. What `schedulingRules` say wholly is neither exported again nor pruned."""

    required = ("category",)
    optional = scopes.SCOPES
    fields = ("minutes", "noticeMinutes")
    listed = "limits"

    def is_managed(self, thing: DeclaredObject) -> bool:
        default = thing.spec["noticeMinutes"] == min(NOTICE, thing.spec["minutes"] - 1)
        return not (default and thing.metadata["category"] in IN_RULES)


class TimeLimitResource(RuntimeLimitResource):
    """After how long a run of a category is stopped."""

    name = "TimeLimit"
    title = "time limit"
    lists, below = "time-limits", "time-limits/{category}"


class IdleLimitResource(RuntimeLimitResource):
    """After how long without GPU work a run of a category is stopped."""

    name = "IdleLimit"
    title = "idle limit"
    lists, below = "idle-limits", "idle-limits/{category}"


class MinRuntimeResource(OwnedRuleResource):
    """For how long preemptible runs are left alone after their start."""

    name = "MinRuntime"
    title = "minimum runtime"
    required = ()
    optional = scopes.SCOPES
    fields = ("minutes",)
    lists, listed, below = "min-runtimes", "minRuntimes", "min-runtime"
