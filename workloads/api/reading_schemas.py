"""What the routes of pods, events and history answer, for the OpenAPI document. Shapes and keys are Run:ai's."""

from typing import Any

from rest_framework import serializers

from portal.core.paging import ListSchema


class ContainerSchema(serializers.Serializer[Any]):
    """A container as it was submitted."""

    name = serializers.CharField()
    image = serializers.CharField()


class PodSchema(serializers.Serializer[Any]):
    """A pod as it was last observed."""

    id = serializers.CharField()
    name = serializers.CharField()
    workloadId = serializers.CharField()
    clusterId = serializers.UUIDField()
    projectId = serializers.CharField()
    tenantId = serializers.IntegerField()
    priorityClassName = serializers.CharField(allow_blank=True)
    createdAt = serializers.DateTimeField()
    updatedAt = serializers.DateTimeField()
    completedAt = serializers.DateTimeField(allow_null=True)
    deletedAt = serializers.DateTimeField(allow_null=True)
    k8sPhase = serializers.CharField()
    k8sPhaseUpdatedAt = serializers.DateTimeField()
    containers = ContainerSchema(many=True)
    nodeName = serializers.CharField(allow_null=True)
    currentNodePool = serializers.CharField(allow_null=True)
    requestedNodePools = serializers.ListField(child=serializers.CharField())
    requestedResources = serializers.DictField()
    allocatedResources = serializers.DictField(allow_null=True)
    tolerations = serializers.ListField(child=serializers.DictField())
    projectName = serializers.CharField(required=False)
    workloadName = serializers.CharField(required=False, allow_null=True)


class PodsSchema(ListSchema):
    """One page."""

    pods = PodSchema(many=True)


class InvolvedSchema(serializers.Serializer[Any]):
    """What an event is about."""

    uid = serializers.CharField(allow_blank=True)
    kind = serializers.CharField()
    name = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)


class EventSchema(serializers.Serializer[Any]):
    """Something that was reported."""

    id = serializers.CharField()
    createdAt = serializers.DateTimeField()
    type = serializers.CharField()
    clusterId = serializers.UUIDField()
    message = serializers.CharField(allow_blank=True)
    reason = serializers.CharField()
    involvedObject = InvolvedSchema()

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField(allow_blank=True)}


class EventsSchema(ListSchema):
    """One page."""

    events = EventSchema(many=True)


class RecordMetaSchema(serializers.Serializer[Any]):
    """When, and of what kind."""

    creationTimestamp = serializers.DateTimeField()
    type = serializers.ChoiceField(choices=["Event", "PhaseUpdate"])


class PhaseUpdateSchema(serializers.Serializer[Any]):
    """The phase it went into."""

    phase = serializers.CharField()
    phaseMessage = serializers.CharField(allow_blank=True)


class RecordSpecSchema(serializers.Serializer[Any]):
    """One of the two."""

    event = EventSchema(required=False)
    phaseUpdate = PhaseUpdateSchema(required=False)


class RecordSchema(serializers.Serializer[Any]):
    """An entry of the history."""

    meta = RecordMetaSchema()
    spec = RecordSpecSchema()


class HistorySchema(ListSchema):
    """One page."""

    records = RecordSchema(many=True)


class StreamEventSchema(serializers.Serializer[Any]):
    """One event of a stream, field by field as it is written."""

    event = serializers.ChoiceField(choices=["phase", "timeline", "end"])
    id = serializers.CharField(required=False, help_text="For `Last-Event-ID`.")
    retry = serializers.IntegerField(required=False, help_text="Milliseconds to wait before asking again.")

    def get_fields(self) -> dict[str, Any]:
        """With `data`, a name the class itself uses."""
        return {**super().get_fields(), "data": serializers.CharField(help_text="JSON.")}
