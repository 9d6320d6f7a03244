"""Pods, events and history as REST sends them. Keys are Run:ai's; what Rung does not know is left out."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rest_framework import serializers

from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import schema
from tenants.organisation.models import Project
from workloads.forecast.serializers import gpus
from workloads.state.models import EventType, Workload, WorkloadEvent


class ContainerSchema(serializers.Serializer[Any]):
    """A container as it was submitted."""

    name = serializers.CharField()
    image = serializers.CharField()


class RequestAndLimitSchema(serializers.Serializer[Any]):
    """Devices or cores."""

    request = serializers.FloatField(required=False, allow_null=True)
    limit = serializers.FloatField(required=False, allow_null=True)


class MemoryRequestSchema(serializers.Serializer[Any]):
    """A quantity."""

    request = serializers.CharField(required=False, allow_null=True)
    limit = serializers.CharField(required=False, allow_null=True)


class PodResourcesSchema(serializers.Serializer[Any]):
    """What a pod asks for."""

    gpu = RequestAndLimitSchema(required=False)
    cpu = RequestAndLimitSchema(required=False)
    cpuMemory = MemoryRequestSchema(required=False)


class AllocatedSchema(serializers.Serializer[Any]):
    """What it holds: devices and cores."""

    gpu = serializers.FloatField(required=False)
    cpu = serializers.FloatField(required=False)


class ObservedTolerationSchema(serializers.Serializer[Any]):
    """A taint that the pod tolerates. None is observed: the list is empty."""

    key = serializers.CharField(required=False)
    operator = serializers.CharField(required=False)
    value = serializers.CharField(required=False)
    effect = serializers.CharField(required=False)


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
    terminatingUntil = serializers.DateTimeField(
        allow_null=True, help_text="End of its grace period; null if it is not terminating. Beyond Run:ai."
    )
    containers = ContainerSchema(many=True)
    nodeName = serializers.CharField(allow_null=True)
    currentNodePool = serializers.CharField(allow_null=True)
    requestedNodePools = serializers.ListField(child=serializers.CharField())
    requestedResources = PodResourcesSchema()
    allocatedResources = AllocatedSchema(allow_null=True)
    tolerations = ObservedTolerationSchema(many=True)
    projectName = serializers.CharField(required=False)
    workloadName = serializers.CharField(required=False, allow_null=True)


PodsSchema = schema("PodsSchema", "One page.", ListSchema, pods=PodSchema(many=True))


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


EventsSchema = schema("EventsSchema", "One page.", ListSchema, events=EventSchema(many=True))


class RecordMetaSchema(serializers.Serializer[Any]):
    """When, and of what kind."""

    creationTimestamp = serializers.DateTimeField()
    type = serializers.ChoiceField(choices=["Event", "PhaseUpdate"])


class PhaseUpdateSchema(serializers.Serializer[Any]):
    """The phase it went into."""

    phase = serializers.CharField()
    phaseMessage = serializers.CharField(allow_blank=True)

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField(help_text="Who did it. Beyond Run:ai.")}


class RecordSpecSchema(serializers.Serializer[Any]):
    """One of the two."""

    event = EventSchema(required=False)
    phaseUpdate = PhaseUpdateSchema(required=False)


class RecordSchema(serializers.Serializer[Any]):
    """An entry of the history."""

    meta = RecordMetaSchema()
    spec = RecordSpecSchema()


HistorySchema = schema("HistorySchema", "One page.", ListSchema, records=RecordSchema(many=True))


class StreamEventSchema(serializers.Serializer[Any]):
    """One event of a stream, field by field as it is written."""

    event = serializers.ChoiceField(choices=["phase", "timeline", "end"])
    id = serializers.CharField(required=False, help_text="For `Last-Event-ID`.")
    retry = serializers.IntegerField(required=False, help_text="Milliseconds to wait before asking again.")

    def get_fields(self) -> dict[str, Any]:
        """With `data`, a name the class itself uses."""
        return {**super().get_fields(), "data": serializers.CharField(help_text="JSON.")}


class ChangeEventSchema(StreamEventSchema):
    """One event of the change feed, field by field as it is written."""

    event = serializers.ChoiceField(choices=["ready", "change", "reset", "end"])


POD_ENDED: Final = frozenset({"Succeeded", "Failed"})


def pod_json(pod: ObservedPod, workload: Workload | None, project: Project, *, full: bool) -> dict[str, Any]:
    """Pod1. `workload` is None for a pod whose workload Rung keeps no more."""
    amounts = {
        "gpu": {"request": gpus(pod.gpu_milli), "limit": gpus(pod.gpu_milli)},
        "cpu": {"request": pod.cpu_milli / 1000},
        "cpuMemory": {"request": str(pod.memory_bytes)},
    }
    holds = bool(pod.node_name) and pod.phase not in POD_ENDED and pod.gone_at is None
    names = {"projectName": project.name, "workloadName": workload.name if workload else None} if full else {}
    return {
        "id": pod.uid,
        "name": pod.name,
        "workloadId": pod.owner_id,
        "clusterId": str(pod.cluster_id),
        "projectId": str(project.pk),
        "tenantId": TENANT_ID,
        "priorityClassName": pod.priority_class,
        "createdAt": rfc3339(pod.created_at),
        "updatedAt": rfc3339(pod.observed_at),
        "completedAt": rfc3339(pod.ended_at) if pod.phase in POD_ENDED else None,
        "deletedAt": rfc3339(pod.gone_at),
        "k8sPhase": pod.phase,
        "k8sPhaseUpdatedAt": rfc3339(_phase_since(pod)),
        "terminatingUntil": rfc3339(pod.deletion_at if pod.gone_at is None else None),
        "containers": _containers(pod, workload),
        "nodeName": pod.node_name or None,
        "currentNodePool": pod.pool_name or None,
        "requestedNodePools": workload.node_pools if workload else [],
        "requestedResources": amounts,
        "allocatedResources": {"gpu": gpus(pod.gpu_milli), "cpu": pod.cpu_milli / 1000} if holds else None,
        "tolerations": [],
        **names,
    }


def _phase_since(pod: ObservedPod) -> Any:
    """The last change that was seen of it."""
    if pod.phase in POD_ENDED and pod.ended_at:
        return pod.ended_at
    return pod.started_at or pod.created_at


def _containers(pod: ObservedPod, workload: Workload | None) -> list[dict[str, str]]:
    """As they were submitted; a controller may have added others."""
    roles = (workload.spec.get("roles") or []) if workload else []
    own = [role for role in roles if role["name"] == pod.role] or roles
    named = {name: image for role in own for name, image in _images(role)}
    return [{"name": name, "image": image} for name, image in named.items()]


def _images(role: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """A container whose kind chooses the image itself has none of its own, and then it is unknown which is whose."""
    names, images = role["containers"], role["images"]
    return zip(names, images if len(images) == len(names) else [""] * len(names), strict=True)


def event_json(event: ClusterEvent) -> dict[str, Any]:
    """Event2. Its message was cleaned when it was read for an actor."""
    return {
        "id": event.uid,
        "createdAt": rfc3339(event.at),
        "type": event.type,
        "clusterId": str(event.cluster_id),
        "message": event.message,
        "reason": event.reason,
        "source": event.source,
        "involvedObject": {
            "uid": event.object_uid,
            "kind": event.kind,
            "name": event.name,
            "namespace": event.namespace,
        },
    }


def record_json(entry: WorkloadEvent, workload: Workload) -> dict[str, Any]:
    """A record of the history: a change of phase, or something that happened."""
    is_phase = entry.type == EventType.PHASE
    spec = {"phaseUpdate": _phase_update(entry)} if is_phase else {"event": _timeline_record(entry, workload)}
    meta = {"creationTimestamp": rfc3339(entry.at), "type": "PhaseUpdate" if is_phase else "Event"}
    return {"meta": meta, "spec": spec}


def _phase_update(entry: WorkloadEvent) -> Mapping[str, str]:
    return {"phase": entry.phase, "phaseMessage": entry.message, "source": entry.actor or "rung"}


def _timeline_record(entry: WorkloadEvent, workload: Workload) -> dict[str, Any]:
    project = workload.project
    return {
        "id": str(entry.pk),
        "createdAt": rfc3339(entry.at),
        "type": "Warning" if entry.type == EventType.PREEMPTION else "Normal",
        "clusterId": str(project.cluster_id),
        "message": entry.message or entry.reason,
        "reason": entry.reason or entry.type,
        "source": entry.actor or "rung",
        "involvedObject": {
            "uid": str(workload.pk),
            "kind": workload.type.name,
            "name": workload.name,
            "namespace": project.namespace,
        },
    }
