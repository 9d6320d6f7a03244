"""What the routes of clusters, nodes and node pools take and answer: for checking bodies and for the document."""

from typing import Any

from rest_framework import serializers

STRATEGY = r"^(spread|binpack)$"


class StatusSchema(serializers.Serializer[Any]):
    """How Rung stands with a cluster."""

    state = serializers.ChoiceField(
        choices=["WaitingToConnect", "Connected", "Disconnected", "MissingPrerequisites", "ServiceIssues", "Unknown"]
    )
    conditions = serializers.ListField(child=serializers.DictField())
    platform = serializers.DictField()


class ClusterSchema(serializers.Serializer[Any]):
    """A cluster. Beyond Run:ai: its scheduler (`flavour`), and whether it is simulated."""

    uuid = serializers.UUIDField()
    tenantId = serializers.IntegerField()
    name = serializers.CharField()
    createdAt = serializers.DateTimeField()
    lastLiveness = serializers.DateTimeField(allow_null=True, required=False)
    deleteRequestedAt = serializers.DateTimeField(allow_null=True, required=False)
    flavour = serializers.CharField()
    simulated = serializers.BooleanField()
    status = StatusSchema(required=False)


class ClusterChange(serializers.Serializer[Any]):
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
    conditions = serializers.ListField(child=serializers.DictField())
    taints = serializers.ListField(child=serializers.DictField())
    gpuInfo = serializers.DictField(required=False)


class NodesSchema(serializers.Serializer[Any]):
    """One page."""

    nodes = NodeSchema(many=True)


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


class PoolChange(serializers.Serializer[Any]):
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
        max_length=64, required=False, allow_null=True, help_text="A pool says its levels itself: `topologyLevels`."
    )
    topologyLevels = serializers.ListField(
        child=serializers.CharField(max_length=317),
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Beyond Run:ai: keys of node labels, widest first; a gang may ask for one value. [] takes them away.",
    )
    isDefault = serializers.BooleanField(
        required=False, allow_null=True, help_text="Beyond Run:ai: it is used where nobody names a pool."
    )


class NewPool(PoolChange):
    """A node pool: the nodes that carry one label."""

    name = serializers.CharField(max_length=63)
    clusterId = serializers.UUIDField()
    labelKey = serializers.CharField(max_length=317)
    labelValue = serializers.CharField(max_length=63)


class PoolSchema(serializers.Serializer[Any]):
    """A node pool."""

    id = serializers.CharField()
    name = serializers.CharField()
    labelKey = serializers.CharField()
    labelValue = serializers.CharField()
    clusterId = serializers.UUIDField()
    clusterName = serializers.CharField()
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
    status = serializers.DictField()


class PoolsSchema(serializers.Serializer[Any]):
    """One page."""

    nodepools = PoolSchema(many=True)


class RankSchema(serializers.Serializer[Any]):
    """A rank of queues."""

    name = serializers.CharField()
    value = serializers.IntegerField()
    isDefault = serializers.BooleanField()


class RanksSchema(serializers.Serializer[Any]):
    """Ranks, the lowest first."""

    priorities = RankSchema(many=True)


class PoolResourcesSchema(serializers.Serializer[Any]):
    """A department's or project's quota and use in one node pool."""

    id = serializers.CharField()
    orgUnitId = serializers.CharField()
    orgUnitName = serializers.CharField()
    parentId = serializers.CharField(allow_null=True)
    clusterId = serializers.UUIDField()
    nodePoolId = serializers.CharField()
    nodePoolName = serializers.CharField()
    rank = serializers.CharField()
    resources = serializers.DictField()
    quotaStatus = serializers.DictField()


class PoolResourcesPageSchema(serializers.Serializer[Any]):
    """One page; `next` is the offset of the following one."""

    nodePoolResources = PoolResourcesSchema(many=True)
    next = serializers.IntegerField(allow_null=True)
