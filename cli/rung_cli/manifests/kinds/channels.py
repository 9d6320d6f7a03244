"""Channels of notifications."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rung_cli.manifests.resources import (
    DeclaredObject,
    Difference,
    ResourceKind,
    ServerState,
    Spec,
    secret,
    secret_error,
)

CHANNELS: Final = "v1/notification-channels"


class NotificationChannelResource(ResourceKind):
    """How mail leaves. Its password comes from the environment and is never read back."""

    name = "NotificationChannel"
    title = "notification channel"
    fields = ("type", "config", "passwordFrom")
    secret = ("passwordFrom",)

    def id_of(self, extra: Mapping[str, Any]) -> str:
        return str(extra["name"])

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        del metadata
        config = spec.get("config", {})
        if not isinstance(config, dict) or config.keys() & {"password", "apiToken"}:
            yield "/spec/config must be a mapping without secrets. Use /spec/passwordFrom with {env: NAME}."
        yield from secret_error(spec, "passwordFrom")

    def differences(self, wanted: Spec, now: Spec) -> Iterator[Difference]:
        """Of the configuration what the document names."""
        before = now.get("config") or {}
        for name, value in (wanted.get("config") or {}).items():
            if (value or None) != (before.get(name) or None):
                yield Difference(f"config/{name}", before.get(name), value)
        yield from super().differences({name: value for name, value in wanted.items() if name != "config"}, now)

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for each in server.api.get(CHANNELS):
            row = server.api.get(f"{CHANNELS}/{each['name']}")
            spec = {"type": row["type"], "config": row["config"]}
            yield DeclaredObject(self, {"name": row["name"]}, spec, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        server.api.post(CHANNELS, {"name": thing.key.name, **_body(thing)}, dry_run=dry_run)
        return {"name": thing.key.name}

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        server.api.patch(f"{CHANNELS}/{now.id}", _body(thing), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{CHANNELS}/{thing.id}", dry_run=dry_run)


def _body(thing: DeclaredObject) -> dict[str, Any]:
    password = {"password": secret(thing.spec, "passwordFrom", thing.source)} if thing.spec.get("passwordFrom") else {}
    body = {"config": {**(thing.spec.get("config") or {}), **password}}
    return {"type": thing.spec.get("type") or "email", **body}
