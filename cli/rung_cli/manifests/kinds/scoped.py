"""Policies and workload templates: what holds for submissions in a scope."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rung_cli import policies, workload_templates
from rung_cli.errors import UsageError
from rung_cli.manifests import scopes
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, ResourceKind, ServerState

TEMPLATES: Final[Mapping[str, str]] = {
    "Workspace": "workspaces",
    "Training": "trainings",
    "Distributed": "distributed",
    "Inference": "inferences",
}
"""Types of templates and their word in addresses."""


class PolicyResource(ResourceKind):
    """The policy of one type of workloads in one scope."""

    name = "Policy"
    title = "policy"
    required = ("workloadType",)
    optional = scopes.SCOPES
    fields = ("name", "defaults", "rules")

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        return DeclaredKey(self.name, f"{metadata['workloadType']} in {scopes.place_of(metadata)}")

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        if metadata["workloadType"] not in policies.KINDS:
            yield f"/metadata/workloadType must be one of {', '.join(policies.KINDS)}."
        yield from (f"/spec/{part} must be a mapping." for part in self.fields[1:] if not _is_mapping(spec, part))
        yield from scopes.scope_errors(metadata)

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        if place := scopes.scope_key(thing.metadata):
            yield place

    def id_of(self, extra: Mapping[str, Any]) -> str:
        return str((extra.get("meta") or {}).get("id"))

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in policies.list_of(server.api):
            meta = row["meta"]
            place = scopes.metadata_of(server, meta["scope"], meta.get(f"{meta['scope']}Id"))
            if place is not None:
                document = {part: row["policy"][part] for part in self.fields[1:] if row["policy"].get(part)}
                yield DeclaredObject(
                    self, {"workloadType": row["type"], **place}, {"name": meta["name"], **document}, extra=row
                )

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        return self._put(server, thing, {}, dry_run=dry_run)

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        self._put(server, thing, now.spec, dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        place = policies.place_of(thing.extra["meta"])
        server.api.delete(_policy_path(thing.metadata), dry_run=dry_run, **place)

    def _put(
        self, server: ServerState, thing: DeclaredObject, now: Mapping[str, Any], *, dry_run: bool
    ) -> Mapping[str, Any]:
        """The whole policy: it takes the place of the one that is there."""
        scope, spec = scopes.scope_of(thing.metadata), {**now, **thing.spec}
        key = scopes.scope_id(server, thing.metadata)
        named = {f"{scope}Id": int(key) if scope == "project" else key} if key else {}
        meta = {"scope": scope, **named, "name": spec.get("name") or thing.metadata["workloadType"]}
        body = {"meta": meta, "policy": {part: spec[part] for part in self.fields[1:] if spec.get(part)}}
        answer: Mapping[str, Any] = server.api.put(_policy_path(thing.metadata), body, dry_run=dry_run)
        return answer


class WorkloadTemplateResource(ResourceKind):
    """A template of one type in one scope. Assets stand in it by their ids."""

    name = "WorkloadTemplate"
    title = "workload template"
    required = ("name", "type")
    optional = scopes.SCOPES
    fields = ("description", "spec", "assets", "masterSpecSameAsWorker", "master")

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        return DeclaredKey(self.name, f"{metadata['name']} ({metadata['type']}) in {scopes.place_of(metadata)}")

    def id_of(self, extra: Mapping[str, Any]) -> str:
        return str(extra["meta"]["id"])

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        if metadata["type"] not in TEMPLATES:
            yield f"/metadata/type must be one of {', '.join(TEMPLATES)}."
        parts = ("spec", "assets", "master")
        yield from (f"/spec/{part} must be a mapping." for part in parts if not _is_mapping(spec, part))
        yield from scopes.scope_errors(metadata)

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        if place := scopes.scope_key(thing.metadata):
            yield place

    def refuse_impossible(self, thing: DeclaredObject, now: DeclaredObject | None, server: ServerState) -> None:
        del server
        if now and thing.metadata["type"] == "Inference" and any(self.differences(thing.spec, now.spec)):
            text = f"{thing.source}: {thing.key} differs, and templates of inferences cannot be changed."
            raise UsageError(
                text, hint=f"Delete it first: rung api DELETE {workload_templates.PATH}/inferences/{now.id}"
            )

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in workload_templates.list_of(server.api, ""):
            meta = row["meta"]
            place = scopes.metadata_of(server, meta["scopeType"], meta.get("scopeId"))
            if place is not None:
                values = {"description": meta["description"], **{name: row.get(name) for name in self.fields[1:]}}
                spec = {name: value for name, value in values.items() if value not in (None, {}, "")}
                metadata = {"name": meta["name"], "type": meta["workloadType"], **place}
                yield DeclaredObject(self, metadata, spec, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        scope, key = scopes.scope_of(thing.metadata), scopes.scope_id(server, thing.metadata)
        place = {"scopeType": scope, **({"scopeId": key} if key else {})}
        body = _template_body(thing, place)
        made: Mapping[str, Any] = server.api.post(_template_path(thing.metadata), body, dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        """A part of the spec that the document names is replaced as a whole."""
        whole = DeclaredObject(self, thing.metadata, {**now.spec, **thing.spec})
        server.api.put(f"{_template_path(thing.metadata)}/{now.id}", _template_body(whole, {}), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{_template_path(thing.metadata)}/{thing.id}", dry_run=dry_run)


def _policy_path(metadata: Mapping[str, str]) -> str:
    return f"{policies.PATH}/{policies.KINDS[metadata['workloadType']]}"


def _template_path(metadata: Mapping[str, str]) -> str:
    return f"{workload_templates.PATH}/{TEMPLATES[metadata['type']]}"


def _template_body(thing: DeclaredObject, place: Mapping[str, str]) -> dict[str, Any]:
    spec = dict(thing.spec)
    meta = {"name": thing.metadata["name"], "description": spec.pop("description", None), **place}
    return {"meta": meta, **spec}


def _is_mapping(spec: Mapping[str, Any], part: str) -> bool:
    return spec.get(part) is None or isinstance(spec[part], dict)
