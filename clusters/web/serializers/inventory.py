"""Clusters, nodes and node pools as JSON: schemas, Run:ai's form, and REST calls that do what forms of pages do."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.utils import timezone
from rest_framework import serializers

from clusters.connection.rules.connection_form_data import ConnectionFormData
from clusters.connection.services.registration import ConnectionSource
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.sync.models import Drift, SyncRun, SyncState
from clusters.sync.selectors import STALE_AFTER, comparison_of
from clusters.sync.services.disconnect import TRIGGER
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import TypedJson, schema
from portal.kit.pages.api_snippets import ApiRequest

STRATEGY = r"^(spread|binpack)$"


class ClusterConditionSchema(serializers.Serializer[Any]):
    """One thing that holds, or does not."""

    type = serializers.CharField()
    status = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    lastTransitionTime = serializers.DateTimeField(allow_null=True)


class PlatformSchema(serializers.Serializer[Any]):
    """What the cluster runs."""

    kubeVersion = serializers.CharField(allow_null=True)


class NodeConditionSchema(serializers.Serializer[Any]):
    """A condition of a node."""

    type = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    message = serializers.CharField(required=False, allow_blank=True)


class NodeTaintSchema(serializers.Serializer[Any]):
    """A taint of a node."""

    key = serializers.CharField()
    effect = serializers.CharField()
    value = serializers.CharField(required=False, allow_null=True, allow_blank=True)


class GpuInfoSchema(serializers.Serializer[Any]):
    """The GPUs of a node."""

    gpuType = serializers.CharField(allow_blank=True)
    gpuCount = serializers.IntegerField()


class PoolConditionSchema(serializers.Serializer[Any]):
    """A condition of a node pool."""

    type = serializers.CharField()
    reason = serializers.CharField(required=False, allow_blank=True)
    message = serializers.CharField(required=False, allow_blank=True)
    status = serializers.CharField(required=False)


class StatusSchema(serializers.Serializer[Any]):
    """The state of Rung's connection to a cluster."""

    state = serializers.ChoiceField(
        choices=["WaitingToConnect", "Connected", "Disconnected", "MissingPrerequisites", "ServiceIssues", "Unknown"]
    )
    conditions = ClusterConditionSchema(many=True)
    platform = PlatformSchema()


class ClusterSchema(serializers.Serializer[Any]):
    """A cluster. Beyond Run:ai: its scheduler (`flavour`), whether it is simulated, and an option."""

    uuid = serializers.UUIDField()
    tenantId = serializers.IntegerField()
    name = serializers.CharField()
    createdAt = serializers.DateTimeField()
    lastLiveness = serializers.DateTimeField(allow_null=True, required=False)
    deleteRequestedAt = serializers.DateTimeField(allow_null=True, required=False)
    flavour = serializers.CharField()
    simulated = serializers.BooleanField()
    deferPreemptors = serializers.BooleanField()
    status = StatusSchema(required=False)


class ClusterUpdate(serializers.Serializer[Any]):
    """A cluster's new name."""

    name = serializers.CharField(max_length=63)


class NodeSchema(serializers.Serializer[Any]):
    """A node as it was last observed."""

    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=["Ready", "NotReady", "Unknown"])
    nodePool = serializers.CharField(allow_blank=True)
    clusterUuid = serializers.UUIDField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    conditions = NodeConditionSchema(many=True)
    taints = NodeTaintSchema(many=True)
    gpuInfo = GpuInfoSchema(required=False)


NodesSchema = schema("NodesSchema", "One page.", nodes=NodeSchema(many=True))


class PlacementSchema(serializers.Serializer[Any]):
    """Where the next pod goes. Rung chooses by GPUs."""

    cpu = serializers.RegexField(STRATEGY, required=False, allow_null=True)
    gpu = serializers.RegexField(STRATEGY, required=False, allow_null=True)


class SchedulingSchema(serializers.Serializer[Any]):
    """How a pool is scheduled."""

    placementStrategy = PlacementSchema(required=False, allow_null=True)
    minGuaranteedRuntime = serializers.CharField(
        max_length=40, required=False, allow_null=True, allow_blank=True, help_text="Departments and projects have it."
    )


class OptimizationSchema(serializers.Serializer[Any]):
    """What Run:ai's own runtime does on nodes; not supported: leave it off."""

    swapEnabled = serializers.BooleanField(required=False, allow_null=True)
    cpuSwapMemorySize = serializers.CharField(max_length=40, required=False, allow_null=True)
    reservedGpuMemoryForSwapOperations = serializers.CharField(max_length=40, required=False, allow_null=True)
    nodeLevelSchedulerEnabled = serializers.BooleanField(required=False, allow_null=True)


class NodePoolUpdate(serializers.Serializer[Any]):
    """What may be changed of a node pool."""

    labelKey = serializers.CharField(max_length=317, required=False)
    labelValue = serializers.CharField(max_length=63, required=False)
    overProvisioningRatio = serializers.IntegerField(required=False, allow_null=True, help_text="Always 1.")
    placementStrategy = PlacementSchema(required=False, allow_null=True, help_text="Deprecated.")
    schedulingConfiguration = SchedulingSchema(required=False, allow_null=True)
    gpuResourceOptimization = OptimizationSchema(required=False, allow_null=True)
    gpuNetworkAccelerationDetection = serializers.ChoiceField(
        choices=["Use", "DontUse", "Auto"], required=False, allow_null=True
    )
    gpuNetworkAccelerationLabelKey = serializers.CharField(max_length=317, required=False, allow_null=True)
    networkTopologyId = serializers.CharField(
        max_length=64, required=False, allow_null=True, help_text="Not supported: use `topologyLevels`."
    )
    topologyLevels = serializers.ListField(
        child=serializers.CharField(max_length=317),
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Beyond Run:ai: node label keys, widest first; [] removes them.",
    )
    isDefault = serializers.BooleanField(
        required=False, allow_null=True, help_text="Beyond Run:ai: default node pool of the cluster."
    )


class NodePoolCreate(NodePoolUpdate):
    """A node pool: the nodes that carry one label."""

    name = serializers.CharField(max_length=63)
    clusterId = serializers.UUIDField()
    labelKey = serializers.CharField(max_length=317)
    labelValue = serializers.CharField(max_length=63)


class PoolStatusSchema(serializers.Serializer[Any]):
    """The settings that hold, and the nodes of the pool."""

    schedulingConfiguration = SchedulingSchema(required=False)
    conditions = PoolConditionSchema(many=True)
    nodes = serializers.ListField(child=serializers.CharField())


class PoolSchema(serializers.Serializer[Any]):
    """A node pool."""

    id = serializers.CharField()
    name = serializers.CharField()
    labelKey = serializers.CharField()
    labelValue = serializers.CharField()
    clusterId = serializers.UUIDField()
    clusterName = serializers.CharField(source="cluster.name")
    tenantId = serializers.IntegerField()
    isDefault = serializers.BooleanField()
    phase = serializers.ChoiceField(choices=["Empty", "Unschedulable", "Ready"])
    phaseMessage = serializers.CharField(allow_blank=True)
    createdBy = serializers.CharField(allow_blank=True)
    createdAt = serializers.DateTimeField()
    updatedBy = serializers.CharField(allow_blank=True)
    updatedAt = serializers.DateTimeField()
    schedulingConfiguration = SchedulingSchema(required=False)
    topologyLevels = serializers.ListField(
        child=serializers.CharField(), help_text="Beyond Run:ai: keys of node labels, widest first."
    )
    status = TypedJson(as_=PoolStatusSchema())


PoolsSchema = schema("PoolsSchema", "One page.", nodepools=PoolSchema(many=True))


LACKS_RIGHTS: Final = "Its account lacks permissions"


def clusters_json(
    clusters: Iterable[Cluster], *, removals: Mapping[UUID, datetime], full: bool
) -> list[dict[str, Any]]:
    """DisplayedCluster, with keys of Rung's own: its scheduler, whether it is simulated, an option."""
    return [_cluster(each, removals.get(each.pk), full=full) for each in clusters]


def removals_requested() -> Mapping[UUID, datetime]:
    """By cluster: when the removal that goes on, or is done, was asked for."""
    runs = SyncRun.objects.filter(cluster__state=ClusterState.PAUSED, trigger=TRIGGER).order_by("started_at", "id")
    latest = {cluster: (state, at) for cluster, state, at in runs.values_list("cluster", "state", "started_at")}
    wanted = {SyncState.RUNNING, SyncState.SUCCEEDED}
    return {cluster: at for cluster, (state, at) in latest.items() if state in wanted}


def _cluster(cluster: Cluster, removal: datetime | None, *, full: bool) -> dict[str, Any]:
    return {
        "uuid": str(cluster.pk),
        "tenantId": TENANT_ID,
        "name": cluster.name,
        "createdAt": rfc3339(cluster.created_at),
        "lastLiveness": rfc3339(cluster.observed_at),
        "deleteRequestedAt": rfc3339(removal),
        "flavour": cluster.flavour,
        "simulated": cluster.is_simulated,
        "deferPreemptors": cluster.defer_preemptors,
        **({"status": _status(cluster)} if full else {}),
    }


def _status(cluster: Cluster) -> dict[str, Any]:
    return {
        "state": state_of(cluster),
        "conditions": [_observed(cluster), _synced(cluster), *_paused(cluster), *_takes_no_work(cluster)],
        "platform": {"kubeVersion": cluster.version or None},
    }


def state_of(cluster: Cluster) -> str:
    """One of Run:ai's words for the state of the connection."""
    if cluster.state == ClusterState.PAUSED:
        return "MissingPrerequisites" if cluster.paused_reason.startswith(LACKS_RIGHTS) else "Disconnected"
    if cluster.observed_at is None:
        return "WaitingToConnect"
    if not _is_seen(cluster):
        return "Disconnected"
    return "ServiceIssues" if cluster.failures or cluster.breaker_reason else "Connected"


def _is_seen(cluster: Cluster) -> bool:
    return cluster.observed_at is not None and timezone.now() - cluster.observed_at <= STALE_AFTER


def _observed(cluster: Cluster) -> dict[str, Any]:
    """Since when is not kept: its time is the last moment that is on record."""
    seen = _is_seen(cluster)
    at = cluster.observed_at or cluster.created_at
    text = "" if seen else "Not observed since." if cluster.observed_at else "Not observed yet."
    return _condition("Observed", "Seen" if seen else "NotSeen", text, at, is_true=seen)


def _synced(cluster: Cluster) -> dict[str, Any]:
    """Unknown where the last complete comparison says nothing of now. Its time is that comparison's."""
    compared = comparison_of(cluster)
    text = f"The last {cluster.failures} sync runs failed." if cluster.failures else compared.why
    at = compared.at or cluster.created_at
    if compared.state == "unknown":
        return _condition("Synced", "NotCompared", text, at, is_true=None)
    done = compared.state == "synced"
    return _condition("Synced", "HoldsWhatIsWanted" if done else "ChangesAreDue", text, at, is_true=done)


def _paused(cluster: Cluster) -> list[dict[str, Any]]:
    if cluster.state != ClusterState.PAUSED:
        return []
    at = cluster.observed_at or cluster.created_at
    return [_condition("Paused", "Paused", cluster.paused_reason, at, is_true=True)]


def _takes_no_work(cluster: Cluster) -> list[dict[str, Any]]:
    """Why no work is sent to it, while its circuit breaker is open."""
    if not cluster.breaker_reason:
        return []
    at = cluster.breaker_since or cluster.created_at
    return [_condition("TakesWork", "TriedAgain", cluster.breaker_reason, at, is_true=False)]


def _condition(name: str, reason: str, message: str, at: datetime, *, is_true: bool | None) -> dict[str, Any]:
    return {
        "type": name,
        "status": "Unknown" if is_true is None else str(is_true),
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(at),
    }


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
    body = {"server": server, **({"ca": ca} if ca else {}), "metric": metric}
    secrets = {"/token": "PROMETHEUS_TOKEN"} if token else {}
    return ApiRequest("PUT", f"{CLUSTERS}/{cluster.pk}/metrics-source", body, secrets=secrets)


def _connection_body(source: ConnectionSource) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """What a text may say of a connection, and from which variables it takes the rest."""
    if not isinstance(source, ConnectionFormData):
        return {}, {"/kubeconfig": "CLUSTER_KUBECONFIG"}
    parts = {"server": source.server, "ca": source.ca, "tlsServerName": source.tls_server_name}
    body = {name: part for name, part in parts.items() if part} | ({"insecure": True} if source.insecure else {})
    return body, ({"/token": "CLUSTER_TOKEN"} if source.token else {})


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
