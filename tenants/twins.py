"""Forms of the tenants' pages as calls of the REST API that do the same."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from clusters.models import Cluster, NodePool
from portal.core.recipes import Request
from tenants.models import Department, Project

POOLS: Final = "/api/v1/node-pools"
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
    return Request("POST", "/api/v1/access-keys", body)


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is not said stays as it is; an empty list of levels is said: it takes them away."""
    return {key: given[name] for name, key in KEYS.items() if given.get(name) not in (None, False)}
