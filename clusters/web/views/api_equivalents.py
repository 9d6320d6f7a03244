"""Forms of the tenants' pages as calls of the REST API that do the same."""

from collections.abc import Mapping
from typing import Any, Final

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.registration import ConnectionSource
from clusters.inventory.models import Cluster, NodePool
from clusters.sync.models import Drift
from portal.kit.pages.api_snippets import ApiRequest

POOLS: Final = "/api/v1/node-pools"
CLUSTERS: Final = "/api/v1/clusters"
KEYS: Final = {
    "name": "name",
    "label_key": "labelKey",
    "label_value": "labelValue",
    "topology_levels": "topologyLevels",
    "is_default": "isDefault",
}


def create_pool_request(cluster: Cluster, given: Mapping[str, Any]) -> ApiRequest:
    return ApiRequest("POST", POOLS, {"clusterId": str(cluster.pk), **_pool_body(given)})


def update_pool_request(pool: NodePool, given: Mapping[str, Any]) -> ApiRequest:
    return ApiRequest("PATCH", f"{POOLS}/{pool.pk}", _pool_body(given))


def delete_pool_request(pool: NodePool) -> ApiRequest:
    key = str(pool.pk)
    return ApiRequest("DELETE", f"{POOLS}/{key}", None, "organizations.node_pools.delete_nodepool", (key,))


def cluster_action_request(
    cluster: Cluster, what: str, body: Mapping[str, Any] | None = None, *, verb: str = "POST"
) -> ApiRequest:
    """What an admin asks of a cluster, by its word in the address: `syncs`, `pause`, `differences/repair` …"""
    return ApiRequest(verb, f"{CLUSTERS}/{cluster.pk}/{what}", body)


def connect_cluster_request(name: str, flavour: str, source: ConnectionSource) -> ApiRequest:
    """A cluster is registered; no text contains its credential."""
    body, secrets = _connection_body(source)
    return ApiRequest("POST", CLUSTERS, {"name": name, "flavour": flavour, **body}, secrets=secrets)


def change_connection_request(cluster: Cluster, source: ConnectionSource, *, adopt: bool) -> ApiRequest:
    """Another way to a cluster, or another credential."""
    body, secrets = _connection_body(source)
    return ApiRequest("PUT", f"{CLUSTERS}/{cluster.pk}/connection", {**body, "adopt": adopt}, secrets=secrets)


def set_metrics_source_request(cluster: Cluster, *, server: str, ca: str, token: str, metric: str) -> ApiRequest:
    said = {"server": server, **({"ca": ca} if ca else {}), "metric": metric}
    secrets = {"/token": "PROMETHEUS_TOKEN"} if token else {}
    return ApiRequest("PUT", f"{CLUSTERS}/{cluster.pk}/metrics-source", said, secrets=secrets)


def _connection_body(source: ConnectionSource) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """What a text may say of a connection, and from which variables it takes the rest."""
    if not isinstance(source, ConnectionFormData):
        return {}, {"/kubeconfig": "CLUSTER_KUBECONFIG"}
    parts = {"server": source.server, "ca": source.ca, "tlsServerName": source.tls_server_name}
    said = {name: part for name, part in parts.items() if part} | ({"insecure": True} if source.insecure else {})
    return said, ({"/token": "CLUSTER_TOKEN"} if source.token else {})


def disconnect_request(cluster: Cluster, *, forget: bool) -> ApiRequest:
    """What Rung made in a cluster deleted; or the cluster forgotten, with all of that left there."""
    return ApiRequest("DELETE", f"{CLUSTERS}/{cluster.pk}{'?force=true' if forget else ''}")


def object_action_request(drift: Drift, *, adopted: str | None = None) -> ApiRequest:
    """An object repaired, or taken over by the uid under which it was shown."""
    named = {"kind": drift.kind, "namespace": drift.namespace, "name": drift.name}
    if adopted is not None:
        return cluster_action_request(drift.cluster, "differences/adopt", {**named, "uid": adopted})
    return cluster_action_request(drift.cluster, "differences/repair", named)


def _pool_body(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is not said stays as it is; an empty list of levels is said: it takes them away."""
    return {key: given[name] for name, key in KEYS.items() if given.get(name) not in (None, False)}
