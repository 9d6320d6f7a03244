"""Roles, service accounts, and access rules: who holds which role where."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rung_cli.http.client import rows
from rung_cli.manifests import scopes
from rung_cli.manifests.resources import DeclaredKey, DeclaredObject, ResourceKind, ServerState
from rung_cli.output.stderr import note

ROLES: Final = "v2/authorization/roles"
RULES: Final = "v1/authorization/access-rules"
ACCOUNTS: Final = "v1/service-accounts"
SUBJECTS: Final = ("user", "group", "service-account")


class RoleResource(ResourceKind):
    """A custom role, made of permission sets. Rung's own roles are named and not managed."""

    name = "Role"
    title = "role"
    fields = ("description", "enabled", "permissionSets")

    def is_managed(self, thing: DeclaredObject) -> bool:
        return bool(thing.extra["custom"])

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        del metadata
        sets = spec.get("permissionSets", [])
        if not isinstance(sets, list) or not all(isinstance(each, str) for each in sets):
            yield "/spec/permissionSets must be a list of ids, as in: rung api GET v1/authorization/permission-sets"

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in server.api.get(ROLES):
            sets = [each["id"] for each in row["permissionSets"]]
            spec = {"description": row["description"], "enabled": row["enabled"], "permissionSets": sets}
            yield DeclaredObject(self, {"name": row["name"]}, spec, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        made: Mapping[str, Any] = server.api.post(ROLES, _role_body(thing, {}), dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.put(f"{ROLES}/{now.id}", _role_body(thing, now.spec), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{ROLES}/{thing.id}", dry_run=dry_run)


class ServiceAccountResource(ResourceKind):
    """An account of a program. Its secret is never shown here."""

    name = "ServiceAccount"
    title = "service account"
    fields = ("enabled", "expiresAt")
    fixed = ("expiresAt",)

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in server.api.get(ACCOUNTS):
            expiry = {"expiresAt": row["expiresAt"]} if row["expiresAt"] else {}
            yield DeclaredObject(self, {"name": row["name"]}, {"enabled": row["enabled"], **expiry}, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        expiry = {"expiresAt": thing.spec["expiresAt"]} if thing.spec.get("expiresAt") else {}
        made = server.api.post(ACCOUNTS, {"name": thing.key.name, **expiry}, dry_run=dry_run)
        row = {name: value for name, value in made.items() if name != "clientSecret"}
        if not dry_run:
            if thing.spec.get("enabled") is False:
                server.api.patch(f"{ACCOUNTS}/{row['id']}", {"enabled": False})
            note(f"Make a secret for {thing.key.name}: rung api POST {ACCOUNTS}/{row['id']}/secret")
        return row

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.patch(f"{ACCOUNTS}/{now.id}", {"enabled": thing.spec["enabled"]}, dry_run=dry_run)

    def differences(self, wanted: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Any]:
        yield from super().differences({"enabled": True, **wanted} if "enabled" in wanted else dict(wanted), dict(now))

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{ACCOUNTS}/{thing.id}", dry_run=dry_run)


class AccessRuleResource(ResourceKind):
    """A role of a subject in a project, a department, a cluster or the whole installation: a membership."""

    name = "AccessRule"
    title = "access rule"
    required = ("subject", "role")
    optional = ("subjectType", *scopes.SCOPES)

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        who = _subject_type(metadata)
        subject = metadata["subject"] if who == "user" else f"{who} {metadata['subject']}"
        return DeclaredKey(self.name, f"{subject}: {metadata['role']} in {scopes.place_of(metadata)}")

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        del spec
        if _subject_type(metadata) not in SUBJECTS:
            yield f"/metadata/subjectType must be one of {', '.join(SUBJECTS)}."
        yield from scopes.scope_errors(metadata)

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        yield DeclaredKey("Role", thing.metadata["role"])
        if _subject_type(thing.metadata) == "service-account":
            yield DeclaredKey("ServiceAccount", thing.metadata["subject"])
        if place := scopes.scope_key(thing.metadata):
            yield place

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in rows(server.api, RULES, "accessRules", query={}):
            place = scopes.metadata_of(server, row["scopeType"], row["scopeId"])
            if place is not None:
                kind = {} if row["subjectType"] == "user" else {"subjectType": row["subjectType"]}
                metadata = {"subject": row["subjectId"], "role": row["roleName"], **kind, **place}
                yield DeclaredObject(self, metadata, {}, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        body = {
            "subjectId": thing.metadata["subject"],
            "subjectType": _subject_type(thing.metadata),
            "roleId": int(server.id_of(DeclaredKey("Role", thing.metadata["role"]))),
            "scopeType": scopes.scope_of(thing.metadata),
            "scopeId": scopes.scope_id(server, thing.metadata),
        }
        made: Mapping[str, Any] = server.api.post(RULES, body, dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        """Nothing of it can differ."""

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{RULES}/{thing.id}", dry_run=dry_run)


def _subject_type(metadata: Mapping[str, str]) -> str:
    return metadata.get("subjectType") or "user"


def _role_body(thing: DeclaredObject, now: Mapping[str, Any]) -> dict[str, Any]:
    """The whole role: the server replaces it."""
    body = {"name": thing.key.name, "permissionSets": [], **now, **thing.spec}
    return {**body, "permissionSets": [{"id": each} for each in body["permissionSets"]]}
