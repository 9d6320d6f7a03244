"""Priorities and workload types."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rung_cli.errors import ApiError, UsageError
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, ResourceKind, ServerState, Spec

PRIORITIES: Final = "v1/workload-priorities"
TYPES: Final = "v1/workload-types"


class PriorityResource(ResourceKind):
    """An entry of the dictionary."""

    name = "Priority"
    title = "priority"
    fields = ("value", "preemptionPolicy", "description")

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in server.api.get(PRIORITIES)["priorities"]:
            yield DeclaredObject(self, {"name": row["name"]}, {name: row[name] for name in self.fields}, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        body = {"name": thing.key.name, **thing.spec}
        made: Mapping[str, Any] = server.api.post(PRIORITIES, body, dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.patch(f"{PRIORITIES}/{now.id}", thing.spec, dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{PRIORITIES}/{thing.id}", dry_run=dry_run)


class WorkloadTypeResource(ResourceKind):
    """A type's defaults. Types come with Rung: a withdrawn one is offered again, none is made."""

    name = "WorkloadType"
    title = "workload type"
    fields = ("category", "priority", "preemptibility")
    prunable = False

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        yield from self._rows(server, withdrawn=False)

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        if thing.spec.get("priority"):
            yield DeclaredKey("Priority", thing.spec["priority"])

    def refuse_impossible(self, thing: DeclaredObject, now: DeclaredObject | None, server: ServerState) -> None:
        if now is None and self._withdrawn(server, thing.key) is None:
            text = f"{thing.source}: unknown {thing.key}. Types cannot be created; list them with: rung types"
            raise UsageError(text)
        if (wanted := thing.spec.get("category")) and wanted not in (known := server.categories):
            raise UsageError(f"{thing.source}: unknown category {wanted}: {', '.join(known)}.")

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        """Offer it again; what the document leaves out is as it was."""
        was = self._withdrawn(server, thing.key)
        if was is None:
            raise ApiError(f"{thing.key} does not exist.", status=404)
        unchanged = {name: was.extra[name] for name in ("name", "group", "categoryId", "priorityId")}
        made: Mapping[str, Any] = server.api.post(TYPES, unchanged | _type_body(server, thing.spec), dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.put(f"{TYPES}/{now.id}", _type_body(server, thing.spec), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{TYPES}/{thing.id}", dry_run=dry_run)

    def _rows(self, server: ServerState, *, withdrawn: bool) -> Iterator[DeclaredObject]:
        query = {"withdrawn": True} if withdrawn else {}
        for row in server.api.get(TYPES, **query)["types"]:
            columns = {"category": "categoryName", "priority": "priorityName", "preemptibility": "preemptibility"}
            spec = {name: row[key] for name, key in columns.items() if row.get(key)}
            yield DeclaredObject(self, {"name": row["name"]}, spec, extra=row)

    def _withdrawn(self, server: ServerState, key: DeclaredKey) -> DeclaredObject | None:
        return next((each for each in self._rows(server, withdrawn=True) if each.key == key), None)


def _type_body(server: ServerState, spec: Spec) -> dict[str, Any]:
    body = {"preemptibility": spec["preemptibility"]} if "preemptibility" in spec else {}
    if spec.get("category"):
        body["categoryId"] = server.categories[spec["category"]]
    if spec.get("priority"):
        body["priorityId"] = server.id_of(DeclaredKey("Priority", spec["priority"]))
    return body
