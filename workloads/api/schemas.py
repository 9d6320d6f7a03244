"""What the routes take and answer: for the OpenAPI document and for checking bodies. Shapes and keys are Run:ai's."""

from typing import Any

from rest_framework import serializers

from portal.core.bodies import EncodedText
from portal.core.paging import ListSchema

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class ClusterPhaseSchema(serializers.Serializer[Any]):
    """A priority's standing on one cluster."""

    clusterId = serializers.UUIDField()
    phase = serializers.CharField()


class PrioritySchema(serializers.Serializer[Any]):
    """A dictionary entry."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    value = serializers.IntegerField()
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    aggregatedPhase = serializers.CharField()
    status = ClusterPhaseSchema(many=True)
    scopeType = serializers.CharField()
    scopeId = serializers.CharField()
    preemptionPolicy = serializers.CharField()
    preemptibility = serializers.CharField(help_text="What follows from the value alone.")
    description = serializers.CharField(allow_blank=True)

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField(allow_blank=True)}


class PrioritiesSchema(serializers.Serializer[Any]):
    """The dictionary."""

    priorities = PrioritySchema(many=True)


class CategorySchema(serializers.Serializer[Any]):
    """Build, Train or Deploy."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()


class CategoriesSchema(serializers.Serializer[Any]):
    """Every category."""

    categories = CategorySchema(many=True)


class TypeSchema(serializers.Serializer[Any]):
    """A workload type; `categoryId` and `priorityId` are empty where it has none."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    group = serializers.CharField()
    categoryId = serializers.CharField(allow_blank=True)
    priorityId = serializers.CharField(allow_blank=True)
    preemptibility = serializers.CharField(allow_null=True)
    categoryName = serializers.CharField(required=False)
    priorityName = serializers.CharField(required=False)
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    clusterStatuses = serializers.JSONField(allow_null=True)


class TypesSchema(serializers.Serializer[Any]):
    """Every workload type."""

    types = TypeSchema(many=True)


class TypeChange(serializers.Serializer[Any]):
    """A new mapping; what is absent stays."""

    categoryId = serializers.UUIDField(required=False)
    priorityId = serializers.UUIDField(required=False)
    preemptibility = serializers.ChoiceField(
        choices=["preemptible", "semi-preemptible", "non-preemptible"], required=False
    )
    resourceInterfaces = serializers.ListField(required=False, max_length=4, help_text="Accepted, not used by Rung.")


class NewType(TypeChange):
    """A withdrawn type that is offered again; without `preemptibility` it has the one it had."""

    name = serializers.CharField(max_length=63)
    group = serializers.CharField(max_length=100)
    categoryId = serializers.UUIDField()
    priorityId = serializers.UUIDField()


class NewWorkloadMetadata(serializers.Serializer[Any]):
    """Where the workload goes and what it asks for; these beat the labels of the manifest."""

    name = serializers.RegexField(NAME, required=False, max_length=63)
    useGivenNameAsPrefix = serializers.BooleanField(required=False, default=False)
    projectId = serializers.CharField(max_length=20)
    clusterId = serializers.UUIDField(required=False)
    priority = serializers.CharField(required=False, allow_null=True, max_length=63)
    category = serializers.CharField(required=False, allow_null=True, max_length=40)
    preemptibility = serializers.CharField(required=False, allow_null=True, max_length=30)


class NewWorkload(serializers.Serializer[Any]):
    """A manifest of any served kind: exactly one of the two ways to give it."""

    metadata = NewWorkloadMetadata()
    manifest = serializers.DictField(required=False)
    manifestBase64Encoded = EncodedText(required=False, help_text="Base64 of YAML.")


class WorkloadUpdateMetadata(serializers.Serializer[Any]):
    """What may be another."""

    priority = serializers.CharField(required=False, allow_null=True, max_length=63)
    category = serializers.CharField(required=False, allow_null=True, max_length=40, help_text="That of its type.")


class WorkloadUpdate(serializers.Serializer[Any]):
    """A change; what is absent stays. At most one of the two ways to give a manifest."""

    metadata = WorkloadUpdateMetadata(required=False, allow_null=True)
    manifest = serializers.DictField(required=False)
    manifestBase64Encoded = EncodedText(required=False)


class WorkloadV2Schema(serializers.Serializer[Any]):
    """A submitted manifest."""

    metadata = serializers.DictField()
    desiredPhase = serializers.ChoiceField(choices=["Running", "Stopped", "Deleted"])
    workloadManifest = serializers.DictField()
    rawManifest = serializers.DictField()


class SyncInfoSchema(serializers.Serializer[Any]):
    """Where the workload stands between Rung and its cluster."""

    status = serializers.ChoiceField(choices=["Queued", "Applying", "Deleting", "Synced", "Deleted", "Failed"])
    message = serializers.CharField(allow_blank=True)


class WorkloadV2WithSync(serializers.Serializer[Any]):
    """A submitted manifest with its sync."""

    workload = WorkloadV2Schema()
    syncInfo = SyncInfoSchema()


class WorkloadSchema(serializers.Serializer[Any]):
    """A workload of any type; further fields as Run:ai has them."""

    id = serializers.UUIDField()
    type = serializers.CharField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    projectName = serializers.CharField()
    phase = serializers.CharField()
    phaseReason = serializers.ChoiceField(
        choices=["NonPreemptibleOverQuota", "OverLimit"],
        allow_null=True,
        help_text="Run:ai's two reasons only, which its clients check; `waitingReason` has every one.",
    )
    waitingReason = serializers.CharField(
        allow_null=True, help_text="Why it waits, as its page says it: Unschedulable, WaitingForQuota, OverLimit, …"
    )
    phaseMessage = serializers.CharField(allow_blank=True)
    category = serializers.CharField(allow_blank=True)
    priorityClassName = serializers.CharField()
    priority = serializers.IntegerField()
    preemptible = serializers.BooleanField()
    createdAt = serializers.DateTimeField()


class WorkloadsSchema(ListSchema):
    """One page."""

    workloads = WorkloadSchema(many=True)


class Batch(serializers.Serializer[Any]):
    """One action on up to a hundred workloads."""

    ids = serializers.ListField(child=serializers.CharField(max_length=64), min_length=1, max_length=100)
    action = serializers.ChoiceField(choices=["delete", "suspend", "resume", "retry"])


class BatchFailure(serializers.Serializer[Any]):
    """Why one of them was left alone."""

    id = serializers.CharField()
    code = serializers.IntegerField()
    message = serializers.CharField()


class BatchResult(serializers.Serializer[Any]):
    """What became of each."""

    id = serializers.UUIDField()
    succeeded = serializers.ListField(child=serializers.CharField())
    failed = BatchFailure(many=True)
