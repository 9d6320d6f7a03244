"""Clusters and node pools."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from rung_cli.errors import ApiError, UsageError
from rung_cli.http.client import rows
from rung_cli.manifests.resources import (
    DeclaredKey,
    DeclaredObject,
    ResourceKind,
    ServerState,
    Spec,
    secret,
    secret_error,
)

CLUSTERS: Final = "v1/clusters"
POOLS: Final = "v1/node-pools"
CONNECTION: Final = ("server", "tlsServerName", "insecure")
OPEN: Final = ("server", "ca", "tlsServerName", "insecure")
SECRETS: Final = {"kubeconfigFrom": "kubeconfig", "tokenFrom": "token"}


class ClusterResource(ResourceKind):
    """A cluster that Rung reaches. Its credential comes from the environment and is never read back."""

    name = "Cluster"
    title = "cluster"
    fields = ("flavour", "deferPreemptors", "connection", "kubeconfigFrom", "tokenFrom")
    fixed = ("flavour",)
    secret = ("kubeconfigFrom", "tokenFrom")
    prunable = False

    def key(self, metadata: Mapping[str, str]) -> DeclaredKey:
        return DeclaredKey(self.name, metadata["name"])

    def id_of(self, extra: Mapping[str, Any]) -> str:
        return str(extra["uuid"])

    def shape_errors(self, metadata: Mapping[str, str], spec: Mapping[str, Any]) -> Iterator[str]:
        del metadata
        connection = spec.get("connection", {})
        if not isinstance(connection, dict) or connection.keys() - set(OPEN):
            yield f"/spec/connection must be a mapping with {', '.join(OPEN)}."
        for name in self.secret:
            yield from secret_error(spec, name)

    def differences(self, wanted: Spec, now: Spec) -> Iterator[Any]:
        """What the server returns of a connection; a certificate authority is sent, and never read back."""
        connection = wanted.get("connection") or {}
        shown = {name: connection[name] for name in CONNECTION if name in connection}
        before = {name: (now.get("connection") or {}).get(name) for name in shown}
        trimmed = {name: value for name, value in wanted.items() if name != "connection"}
        yield from super().differences({**trimmed, **_prefixed(shown)}, {**now, **_prefixed(before)})

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in server.api.get(CLUSTERS, verbosity="metadata"):
            spec = {"flavour": row["flavour"], "deferPreemptors": row["deferPreemptors"]}
            yield DeclaredObject(self, {"name": row["name"]}, spec, extra=row)

    def complete(self, server: ServerState, thing: DeclaredObject) -> DeclaredObject:
        return replace(thing, spec={**thing.spec, **_connection(server, thing.extra)})

    def refuse_impossible(self, thing: DeclaredObject, now: DeclaredObject | None, server: ServerState) -> None:
        try:
            super().refuse_impossible(thing, now, server)
        except UsageError as error:
            hint = "Another scheduler is planned first: Scheduler support on the cluster's page."
            raise UsageError(error.message, hint=hint) from None
        if now is None and not _has_credential(thing.spec):
            text = (
                f"{thing.source}: {thing.key} does not exist. A new one needs /spec/kubeconfigFrom, or /spec/connection"
            )
            raise UsageError(f"{text}/server with /spec/tokenFrom.")

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        flavour = {"flavour": thing.spec["flavour"]} if thing.spec.get("flavour") else {}
        body = {"name": thing.key.name, **flavour, **_connection_body(thing)}
        made: Mapping[str, Any] = server.api.post(CLUSTERS, body, dry_run=dry_run)
        if thing.spec.get("deferPreemptors") and not dry_run:
            self._defer(server, self.id_of(made), thing, dry_run=False)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        changed = {each.field for each in self.differences(thing.spec, now.spec)}
        if "deferPreemptors" in changed:
            self._defer(server, now.id, thing, dry_run=dry_run)
        if changed - {"deferPreemptors"}:
            server.api.put(f"{CLUSTERS}/{now.id}/connection", _connection_body(thing), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        raise ApiError(f"{thing.key} is removed on its page only.", status=405)

    def _defer(self, server: ServerState, cluster: str, thing: DeclaredObject, *, dry_run: bool) -> None:
        body = {"deferPreemptors": bool(thing.spec["deferPreemptors"])}
        server.api.put(f"{CLUSTERS}/{cluster}/defer-preemptors", body, dry_run=dry_run)


class NodePoolResource(ResourceKind):
    """The nodes that carry one label."""

    name = "NodePool"
    title = "node pool"
    required = ("name", "cluster")
    fields = ("labelKey", "labelValue", "gpuPlacement", "topologyLevels", "isDefault")

    def references(self, thing: DeclaredObject) -> Iterator[DeclaredKey]:
        yield DeclaredKey("Cluster", thing.key.cluster)

    def read(self, server: ServerState) -> Iterator[DeclaredObject]:
        for row in rows(server.api, POOLS, "nodepools", query={}):
            same = {name: row[name] for name in ("labelKey", "labelValue", "topologyLevels", "isDefault")}
            spec = {**same, "gpuPlacement": row["schedulingConfiguration"]["placementStrategy"]["gpu"]}
            ordered = {name: spec[name] for name in self.fields}
            yield DeclaredObject(self, {"name": row["name"], "cluster": row["clusterName"]}, ordered, extra=row)

    def create(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> Mapping[str, Any]:
        cluster = server.id_of(DeclaredKey("Cluster", thing.key.cluster))
        body = {"name": thing.key.name, "clusterId": cluster, **_pool_body(thing.spec)}
        made: Mapping[str, Any] = server.api.post(POOLS, body, dry_run=dry_run)
        return made

    def change(self, server: ServerState, thing: DeclaredObject, now: DeclaredObject, *, dry_run: bool) -> None:
        changed = {each.field: each.after for each in self.differences(thing.spec, now.spec)}
        server.api.patch(f"{POOLS}/{now.id}", _pool_body(changed), dry_run=dry_run)

    def remove(self, server: ServerState, thing: DeclaredObject, *, dry_run: bool) -> None:
        server.api.delete(f"{POOLS}/{thing.id}", dry_run=dry_run)


def _pool_body(spec: Mapping[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in spec.items() if name != "gpuPlacement"}
    if spec.get("gpuPlacement"):
        body["schedulingConfiguration"] = {"placementStrategy": {"gpu": spec["gpuPlacement"]}}
    return body


def _connection(server: ServerState, row: Mapping[str, Any]) -> Spec:
    """Nothing of a simulated cluster, and of one that the caller does not manage."""
    if row["simulated"]:
        return {}
    try:
        found = server.api.get(f"{CLUSTERS}/{row['uuid']}/connection")
    except ApiError as refusal:
        if refusal.status not in {403, 404, 409}:
            raise
        return {}
    return {"connection": {name: found[name] for name in CONNECTION if found[name]}}


def _connection_body(thing: DeclaredObject) -> dict[str, Any]:
    taken = {
        name: secret(thing.spec, source, thing.source) for source, name in SECRETS.items() if thing.spec.get(source)
    }
    return taken if "kubeconfig" in taken else {**(thing.spec.get("connection") or {}), **taken}


def _has_credential(spec: Spec) -> bool:
    has_server = bool((spec.get("connection") or {}).get("server"))
    return bool(spec.get("kubeconfigFrom")) or (has_server and bool(spec.get("tokenFrom")))


def _prefixed(connection: Mapping[str, Any]) -> Spec:
    return {f"connection/{name}": value for name, value in connection.items()}
