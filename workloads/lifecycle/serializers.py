"""Workloads, their pods, events and history over REST, under Run:ai's keys. Plain functions, because lists are hot."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rest_framework import serializers

from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import schema
from portal.kit.pages.api_snippets import ApiRequest
from scheduling.model.preemptibility import Preemptibility
from tenants.organisation.models import Project
from workloads.forecast.serializers import gpus
from workloads.lifecycle.services.actions import EndingWorkload
from workloads.state.models import EventType, Phase, Workload, WorkloadEvent
from workloads.state.rules import WAITING
from workloads.state.selectors.workloads import ran_seconds, waited_seconds


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
_CHANNELS: Final = {"cli": "CLI", "ui": "Control-plane", "api": "Control-plane", "admin": "Control-plane"}
PENDING_REASONS: Final = frozenset({"NonPreemptibleOverQuota", "OverLimit"})
"""Their client's enum is closed, and fails on any other; `waitingReason` has every reason."""
_NOT_SUSPENDABLE: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.STOPPED, Phase.STOPPING, Phase.DELETING})


def pod_json(pod: ObservedPod, workload: Workload | None, project: Project, *, full: bool) -> dict[str, Any]:
    """Pod1. `workload` is None for a pod whose workload Rung keeps no more."""
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
        "containers": _containers(pod, workload),
        "nodeName": pod.node_name or None,
        "currentNodePool": pod.pool_name or None,
        "requestedNodePools": workload.node_pools if workload else [],
        "requestedResources": _requested(pod),
        "allocatedResources": {"gpu": gpus(pod.gpu_milli), "cpu": pod.cpu_milli / 1000} if holds else None,
        "tolerations": [],
        **names,
    }


def _requested(row: ObservedPod | Workload) -> dict[str, Any]:
    """GPUs in devices, CPU in cores, memory in bytes as text."""
    return {
        "gpu": {"request": gpus(row.gpu_milli), "limit": gpus(row.gpu_milli)},
        "cpu": {"request": row.cpu_milli / 1000},
        "cpuMemory": {"request": str(row.memory_bytes)},
    }


def _phase_since(pod: ObservedPod) -> Any:
    """The last change that was observed of it."""
    return (pod.ended_at if pod.phase in POD_ENDED else None) or pod.started_at or pod.created_at


def _containers(pod: ObservedPod, workload: Workload | None) -> list[dict[str, str]]:
    """As they were submitted; a controller may have added others."""
    roles = (workload.spec.get("roles") or []) if workload else []
    own = [role for role in roles if role["name"] == pod.role] or roles
    named = {name: image for role in own for name, image in _images(role)}
    return [{"name": name, "image": image} for name, image in named.items()]


def _images(role: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """A container whose kind chooses the image itself has none of its own, so which image is whose is not known."""
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
        "involvedObject": _involved(event.object_uid, event.kind, event.name, event.namespace),
    }


def _involved(uid: str, kind: str, name: str, namespace: str) -> dict[str, str]:
    return {"uid": uid, "kind": kind, "name": name, "namespace": namespace}


def record_json(entry: WorkloadEvent, workload: Workload) -> dict[str, Any]:
    """A record of the history: a change of phase, or something that happened."""
    is_phase = entry.type == EventType.PHASE
    update = {"phaseUpdate": {"phase": entry.phase, "phaseMessage": entry.message}}
    spec = update if is_phase else {"event": _timeline_record(entry, workload)}
    meta = {"creationTimestamp": rfc3339(entry.at), "type": "PhaseUpdate" if is_phase else "Event"}
    return {"meta": meta, "spec": spec}


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
        "involvedObject": _involved(str(workload.pk), workload.type.name, workload.name, project.namespace),
    }


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
        help_text="Only Run:ai's two reasons, which its clients validate; `waitingReason` has all reasons.",
    )
    waitingReason = serializers.CharField(
        allow_null=True, help_text="Why the workload waits: Unschedulable, WaitingForQuota, OverLimit, …"
    )
    phaseMessage = serializers.CharField(allow_blank=True)
    category = serializers.CharField(allow_blank=True)
    priorityClassName = serializers.CharField()
    priority = serializers.IntegerField()
    preemptible = serializers.BooleanField()
    images = serializers.ListField(child=serializers.CharField(), help_text="With their registry, as it was resolved.")
    createdAt = serializers.DateTimeField()


WorkloadsSchema = schema("WorkloadsSchema", "One page.", ListSchema, workloads=WorkloadSchema(many=True))


class Batch(serializers.Serializer[Any]):
    """One action on up to a hundred workloads."""

    ids = serializers.ListField(child=serializers.CharField(max_length=64), min_length=1, max_length=100)
    action = serializers.ChoiceField(choices=["delete", "suspend", "resume", "retry"])


class BatchFailure(serializers.Serializer[Any]):
    """Why one of them was left alone."""

    id = serializers.CharField()
    code = serializers.IntegerField()
    message = serializers.CharField()


class BatchEffect(serializers.Serializer[Any]):
    """What a suspension or a deletion would cost one workload, as the page asks before it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    projectName = serializers.CharField()
    phase = serializers.CharField()
    ends = serializers.BooleanField(help_text="false: it would be refused, or nothing would change.")
    message = serializers.CharField(help_text="What it holds and when it saved last; or why nothing would change.")
    gpus = serializers.FloatField(help_text="Devices that it holds now.")
    gpuHoursLost = serializers.FloatField(help_text="Since its last declared checkpoint, or its start.")


class BatchResult(serializers.Serializer[Any]):
    """What became of each."""

    id = serializers.UUIDField()
    succeeded = serializers.ListField(child=serializers.CharField())
    failed = BatchFailure(many=True)
    effects = BatchEffect(many=True, required=False, help_text="With dryRun, for `suspend` and `delete`.")


def ending_json(ending: EndingWorkload) -> dict[str, Any]:
    """`BatchEffect`."""
    workload = ending.workload
    return {
        "id": str(workload.pk),
        "name": workload.name,
        "projectName": workload.project.name,
        "phase": workload.phase,
        "ends": ending.ends,
        "message": ending.said,
        "gpus": gpus(workload.allocated_gpu_milli),
        "gpuHoursLost": round(ending.lost_seconds / 3600, 3),
    }


def workload_json(workload: Workload) -> dict[str, Any]:
    """Workload of the generic list. Needs project, its department and type selected."""
    return _identity(workload) | _status(workload) | _resources(workload)


def _identity(workload: Workload) -> dict[str, Any]:
    project = workload.project
    return {
        "id": str(workload.pk),
        "type": workload.type.name,
        "name": workload.name,
        "tenantId": TENANT_ID,
        "clusterId": str(project.cluster_id),
        "projectId": str(project.pk),
        "projectName": project.name,
        "departmentId": str(project.department_id),
        "departmentName": project.department.name,
        "namespace": project.namespace,
        "createdAt": rfc3339(workload.created_at),
        "updatedAt": rfc3339(workload.updated_at),
        "deletedAt": rfc3339(workload.deleted_at),
        "submittedBy": workload.submitted_by,
        "source": _CHANNELS.get(workload.channel, "Other"),
    }


def _status(workload: Workload) -> dict[str, Any]:
    return {
        "phase": workload.phase,
        "phaseUpdatedAt": rfc3339(workload.phase_at),
        "phaseReason": workload.phase_reason if workload.phase_reason in PENDING_REASONS else None,
        "waitingReason": (workload.phase_reason or None) if workload.phase in WAITING else None,
        "phaseMessage": workload.phase_message,
        "k8sPhase": workload.phase,
        "k8sPhaseUpdatedAt": rfc3339(workload.phase_at),
        "conditions": [],
        "runningPods": workload.running_pods,
        "category": workload.classification,
        "priorityClassName": workload.priority.name,
        "priority": workload.priority_value,
        "prioritySource": workload.priority_source,
        "preemptible": workload.preemptibility != Preemptibility.NON_PREEMPTIBLE.value,
        "preemptibilitySource": workload.preemptibility_source,
        "completedAt": rfc3339(workload.completed_at),
        "totalPendingTimeSeconds": int(waited_seconds(workload)),
        "totalRunningTimeSeconds": int(ran_seconds(workload)),
        "actionsSupport": {"delete": True, "suspend": workload.phase not in _NOT_SUSPENDABLE},
    }


def _resources(workload: Workload) -> dict[str, Any]:
    requested = _requested(workload)
    return {
        "requestedNodePools": workload.node_pools,
        "currentNodePools": [workload.pool_name] if workload.pool_name else [],
        "workloadRequestedResources": requested,
        "podsRequestedResources": requested,
        "allocatedResources": {"gpu": gpus(workload.allocated_gpu_milli)},
        "requestedPods": {"number": workload.pod_count},
        "images": list(workload.images),
        "sourceApi": None if workload.type.native else "WorkloadsV2",
    }


def action_request(workload: Workload, action: str) -> ApiRequest:
    """`suspend`, `resume`, `retry` or `delete` of one workload, of whatever type."""
    return batch_action_request([workload], action)


def batch_action_request(rows: Iterable[Workload], action: str) -> ApiRequest:
    named = {str(each.pk): f"{each.project.name}/{each.name}" for each in rows}
    body = {"ids": list(named), "action": action}
    words = (action, *named.values(), *(("--yes",) if action == "delete" else ()))
    return ApiRequest("POST", "/api/v1/workloads/batch", body, "workloads.workloads_batch.batch_workloads", rung=words)


def priority_change_request(workload: Workload, name: str) -> ApiRequest:
    """Another priority for a workload; its preemptibility stays."""
    return ApiRequest("PUT", f"/api/v2/workloads/{workload.pk}", {"metadata": {"priority": name}})
