"""Forms of the tenants' pages as calls of the REST API that do the same."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.entered import Entered
from clusters.models import Cluster, Drift, NodePool
from clusters.services.registration import Source
from portal.core.recipes import Request
from tenants.models import AccessKey, Department, Project
from tenants.resources import entry_of
from tenants.selectors import PoolQuota

PROJECTS: Final = "/api/v1/org-unit/projects"
POOLS: Final = "/api/v1/node-pools"
CLUSTERS: Final = "/api/v1/clusters"
ACCESS_KEYS: Final = "/api/v1/access-keys"
KEYS_OF_CLIENT: Final = "authentication_and_authorization.access_keys"
KEYS: Final = {
    "name": "name",
    "label_key": "labelKey",
    "label_value": "labelValue",
    "topology_levels": "topologyLevels",
    "is_default": "isDefault",
}


def new_pool(cluster: Cluster, given: Mapping[str, Any]) -> Request:
    """A node pool."""
    return Request("POST", POOLS, {"clusterId": str(cluster.pk), **_said(given)})


def changed_pool(pool: NodePool, given: Mapping[str, Any]) -> Request:
    """Another label, other levels, the default."""
    return Request("PATCH", f"{POOLS}/{pool.pk}", _said(given))


def pool_gone(pool: NodePool) -> Request:
    """A node pool removed."""
    key = str(pool.pk)
    return Request("DELETE", f"{POOLS}/{key}", None, "organizations.node_pools.delete_nodepool", (key,))


def asked_of(cluster: Cluster, what: str, body: Mapping[str, Any] | None = None, *, verb: str = "POST") -> Request:
    """What an admin asks of a cluster, by its word in the address: `syncs`, `pause`, `differences/repair` …"""
    return Request(verb, f"{CLUSTERS}/{cluster.pk}/{what}", body)


def connected(name: str, flavour: str, source: Source) -> Request:
    """A cluster taken in; its credential stands in no text."""
    body, secrets = _reached(source)
    return Request("POST", CLUSTERS, {"name": name, "flavour": flavour, **body}, secrets=secrets)


def reconnected(cluster: Cluster, source: Source, *, adopt: bool) -> Request:
    """Another way to a cluster, or another credential."""
    body, secrets = _reached(source)
    return Request("PUT", f"{CLUSTERS}/{cluster.pk}/connection", {**body, "adopt": adopt}, secrets=secrets)


def measured_by(cluster: Cluster, *, server: str, ca: str, token: str, metric: str) -> Request:
    """Where a cluster's Prometheus is."""
    said = {"server": server, **({"ca": ca} if ca else {}), "metric": metric}
    secrets = {"/token": "PROMETHEUS_TOKEN"} if token else {}
    return Request("PUT", f"{CLUSTERS}/{cluster.pk}/metrics-source", said, secrets=secrets)


def _reached(source: Source) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """What a text may say of a connection, and from which variables it takes the rest."""
    if not isinstance(source, Entered):
        return {}, {"/kubeconfig": "CLUSTER_KUBECONFIG"}
    parts = {"server": source.server, "ca": source.ca, "tlsServerName": source.tls_server_name}
    said = {name: part for name, part in parts.items() if part} | ({"insecure": True} if source.insecure else {})
    return said, ({"/token": "CLUSTER_TOKEN"} if source.token else {})


def left(cluster: Cluster, *, forget: bool) -> Request:
    """What Rung made in a cluster deleted; or the cluster forgotten, with all of that left there."""
    return Request("DELETE", f"{CLUSTERS}/{cluster.pk}{'?force=true' if forget else ''}")


def asked_of_object(drift: Drift, *, adopted: str | None = None) -> Request:
    """An object repaired, or taken over by the uid under which it was shown."""
    named = {"kind": drift.kind, "namespace": drift.namespace, "name": drift.name}
    if adopted is not None:
        return asked_of(drift.cluster, "differences/adopt", {**named, "uid": adopted})
    return asked_of(drift.cluster, "differences/repair", named)


def key_rotated(key: AccessKey) -> Request:
    """Another secret for an access key; the answer holds it, once."""
    method = f"{KEYS_OF_CLIENT}.regenerate_access_key_secret"
    return Request("POST", f"{ACCESS_KEYS}/{key.pk}/secret", None, method, (str(key.pk),))


def key_revoked(key: AccessKey) -> Request:
    """An access key gone."""
    method = f"{KEYS_OF_CLIENT}.delete_access_key_by_id"
    return Request("DELETE", f"{ACCESS_KEYS}/{key.pk}", None, method, (str(key.pk),))


def new_key(
    *, name: str, expires_at: datetime | None, read_only: bool, project: Project | None, department: Department | None
) -> Request:
    """An access key; the answer holds its secret, once."""
    body: dict[str, Any] = {"name": name, "readOnly": read_only}
    if expires_at:
        body["expirationDate"] = f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"
    if project:
        body["projectId"] = str(project.pk)
    if department:
        body["departmentId"] = str(department.pk)
    return Request("POST", ACCESS_KEYS, body)


def project_as_it_is(project: Project, rows: Sequence[PoolQuota]) -> Request:
    """The project with its quotas as they are now, ready to be changed. Its limits of time are left out: they stay."""
    body = {
        "description": project.description,
        "defaultNodePools": project.default_node_pools or None,
        "resources": [entry_of(row.quota, row.pool) for row in _given(rows)],
    }
    return Request("PUT", f"{PROJECTS}/{project.pk}", body)


def project_document(project: Project, rows: Sequence[PoolQuota]) -> dict[str, Any]:
    """The same as a document that `rung apply` takes."""
    place = {"name": project.name, "cluster": project.cluster.name, "department": project.department.name}
    quotas = {row.pool.name: _declared(entry_of(row.quota, row.pool)) for row in _given(rows)}
    said = {"description": project.description, "nodePools": project.default_node_pools, "quotas": quotas}
    return {"apiVersion": "rung.dev/v1", "kind": "Project", "metadata": place, "spec": said}


def _given(rows: Sequence[PoolQuota]) -> list[PoolQuota]:
    """Without node pools where the project has nothing and never had."""
    return [row for row in rows if row.quota.pk]


def _declared(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A quota without its node pool, which names it there, and without what says nothing."""
    found: dict[str, Any] = {}
    for name in ("gpu", "cpu", "memory"):
        amounts = {way: entry[name][way] for way in ("deserved", "limit") if entry[name].get(way) is not None}
        if amounts:
            found[name] = {**amounts, **({"units": entry[name]["units"]} if name == "memory" else {})}
    return {**found, "overQuotaWeight": entry["gpu"]["overQuotaWeight"], "rank": entry["rank"]}


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is not said stays as it is; an empty list of levels is said: it takes them away."""
    return {key: given[name] for name, key in KEYS.items() if given.get(name) not in (None, False)}
