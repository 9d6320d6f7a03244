"""Workloads as REST sends and accepts them. Plain functions, because lists are hot."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from django.http import HttpResponse
from rest_framework import serializers

from portal.kit.api.lists import ListSchema
from portal.kit.api.parsers import TENANT_ID, csv_response, csv_text, rfc3339
from portal.kit.api.serializers import schema
from portal.kit.pages.api_snippets import ApiRequest
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import decimal_text
from workloads.dictionary.serializers import DiscardedValue, WarningSchema
from workloads.forecast.serializers import gpus
from workloads.lifecycle.services.actions import EndingWorkload
from workloads.state.models import Phase, Workload
from workloads.state.rules import WAITING
from workloads.state.selectors.workloads import ran_seconds, waited_seconds


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
    phaseMessage = serializers.CharField(
        allow_blank=True,
        help_text="Of a waiting workload the scheduler's last message, which may be old. See also `/waiting`.",
    )
    category = serializers.CharField(allow_blank=True)
    priorityClassName = serializers.CharField()
    priority = serializers.IntegerField()
    preemptible = serializers.BooleanField()
    images = serializers.ListField(child=serializers.CharField(), help_text="With their registry, as it was resolved.")
    createdAt = serializers.DateTimeField()
    gpuHoursAtRisk = serializers.FloatField(
        allow_null=True,
        help_text="What an eviction now would lose; null if it holds no GPU or is never evicted. Beyond Run:ai.",
    )
    gpuHoursAtRiskBasis = serializers.ChoiceField(
        choices=["checkpoint", "median", "start"],
        allow_null=True,
        help_text="`checkpoint`: since its last reported one. `median`: it reports none, and counts as the median of "
        "comparable running workloads that do. `start`: since its start, as too few workloads report checkpoints.",
    )


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


_CHANNELS: Final = {"cli": "CLI", "ui": "Control-plane", "api": "Control-plane", "admin": "Control-plane"}


def workload_json(workload: Workload) -> dict[str, Any]:
    """Workload of the generic list. Needs project, its department and type selected, and costs (`with_costs`)."""
    return _identity(workload) | _status(workload) | _resources(workload)


_FILE: Final[Mapping[str, Callable[[Workload], object]]] = {
    "id": lambda row: row.pk,
    "name": lambda row: row.name,
    "project": lambda row: row.project.name,
    "department": lambda row: row.project.department.name,
    "cluster": lambda row: row.project.cluster.name,
    "type": lambda row: row.type.name,
    "priority": lambda row: row.priority.name,
    "priorityValue": lambda row: row.priority_value,
    "preemptibility": lambda row: row.preemptibility,
    "phase": lambda row: row.shown_phase,
    "waitingReason": lambda row: row.phase_reason if row.phase in WAITING else "",
    "gpus": lambda row: decimal_text(row.gpu_milli),
    "allocatedGpus": lambda row: decimal_text(row.allocated_gpu_milli),
    "nodePool": lambda row: row.pool_name,
    "submittedBy": lambda row: row.submitted_by,
    "createdAt": lambda row: rfc3339(row.created_at),
    "startedAt": lambda row: rfc3339(row.started_at),
    "completedAt": lambda row: rfc3339(row.completed_at),
    "deletedAt": lambda row: rfc3339(row.deleted_at),
    "evictions": lambda row: row.preempted_count,
}


def workloads_file(rows: Iterable[Workload]) -> HttpResponse:
    """A CSV file of workloads, with project, department, cluster, type and priority."""
    cells = (["" if (value := read(row)) is None else str(value) for read in _FILE.values()] for row in rows)
    return csv_response(csv_text(tuple(_FILE), cells), name="workloads")


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
        "actionsSupport": {"delete": True, "suspend": workload.phase not in _ENDED},
    }


def _resources(workload: Workload) -> dict[str, Any]:
    cost = workload.cost_at_risk
    requested = {
        "gpu": {"request": gpus(workload.gpu_milli), "limit": gpus(workload.gpu_milli)},
        "cpu": {"request": workload.cpu_milli / 1000},
        "cpuMemory": {"request": str(workload.memory_bytes)},
    }
    return {
        "requestedNodePools": workload.node_pools,
        "currentNodePools": [workload.pool_name] if workload.pool_name else [],
        "workloadRequestedResources": requested,
        "podsRequestedResources": requested,
        "allocatedResources": {"gpu": gpus(workload.allocated_gpu_milli)},
        "gpuHoursAtRisk": round(cost.gpu_hours, 3) if cost else None,
        "gpuHoursAtRiskBasis": cost.basis if cost else None,
        "requestedPods": {"number": workload.pod_count},
        "images": list(workload.images),
        "sourceApi": None if workload.type.native else "WorkloadsV2",
    }


PENDING_REASONS: Final = frozenset({"NonPreemptibleOverQuota", "OverLimit"})
"""Their client's enum is closed, and fails on any other; `waitingReason` has every reason."""
_ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.STOPPED, Phase.STOPPING, Phase.DELETING})


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


class KindOfObject(serializers.Serializer[Any]):
    """Group, version and kind of the object."""

    group = serializers.CharField(allow_blank=True)
    version = serializers.CharField()
    kind = serializers.CharField()


class WorkloadV2Metadata(serializers.Serializer[Any]):
    """What a workload is called, where it runs, and its effective values. The sources are beyond Run:ai."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    projectId = serializers.CharField()
    projectName = serializers.CharField()
    departmentId = serializers.CharField()
    departmentName = serializers.CharField()
    clusterId = serializers.UUIDField()
    tenantId = serializers.IntegerField()
    gvk = KindOfObject()
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    updatedAt = serializers.DateTimeField()
    updatedBy = serializers.CharField()
    priority = serializers.CharField()
    prioritySource = serializers.CharField()
    category = serializers.CharField(allow_blank=True)
    preemptibility = serializers.CharField()
    effectivePreemptibility = serializers.CharField(help_text="Beyond Run:ai: may be semi-preemptible.")
    preemptibilitySource = serializers.CharField()
    discarded = DiscardedValue(many=True)
    warnings = WarningSchema(many=True)
    deletedAt = serializers.DateTimeField(allow_null=True)
