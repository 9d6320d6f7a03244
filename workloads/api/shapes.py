"""Rows to Run:ai's JSON. Plain functions, because lists are hot; `schemas.py` documents the same shapes."""

from typing import Any, Final

from clusters.models import Cluster
from portal.core.wire import TENANT_ID, stamp
from scheduling.priority import Preemptibility, by_value
from workloads.lifecycle import WAITING
from workloads.models import Category, Phase, Priority, Workload, WorkloadType
from workloads.selectors.life import ran_seconds, waited_seconds

READY: Final = "Ready"
GIBIBYTE: Final = 1024**3

# Their client's enum is closed: a third mode is told as what may happen to the workload.
_TWO_MODES: Final = {Preemptibility.SEMI_PREEMPTIBLE.value: Preemptibility.PREEMPTIBLE.value}
_CHANNELS: Final = {"cli": "CLI", "ui": "Control-plane", "api": "Control-plane", "admin": "Control-plane"}


def gpus(milli: int) -> float:
    """GPU devices from thousandths."""
    return milli / 1000


def two_modes(preemptibility: str) -> str:
    """Run:ai's closed enum."""
    return _TWO_MODES.get(preemptibility, preemptibility)


def priority_json(priority: Priority, clusters: list[Cluster], changing: set[str]) -> dict[str, Any]:
    """WorkloadPriority; one status entry per cluster. `changing`: ids of clusters that are not in step yet."""
    phases = [
        {"clusterId": str(each.pk), "phase": "Updating" if str(each.pk) in changing else READY} for each in clusters
    ]
    return {
        "id": str(priority.pk),
        "name": priority.name,
        "value": priority.value,
        "source": priority.source,
        "createdAt": stamp(priority.created_at),
        "updatedAt": stamp(priority.updated_at),
        "aggregatedPhase": "Updating" if changing else READY,
        "status": phases,
        "scopeType": "tenant",
        "scopeId": str(TENANT_ID),
        "preemptionPolicy": priority.preemption_policy,
        "preemptibility": by_value(priority.value).value,
        "description": priority.description,
    }


def category_json(category: Category) -> dict[str, Any]:
    """WorkloadCategory."""
    return {
        "id": str(category.pk),
        "name": category.name,
        "description": category.description,
        "createdAt": stamp(category.created_at),
        "createdBy": "Run:ai",
    }


def type_json(kind: WorkloadType) -> dict[str, Any]:
    """WorkloadTypeConfig. A type without category or priority answers empty strings, which their client can read."""
    body = {
        "id": str(kind.pk),
        "name": kind.name,
        "group": kind.group,
        "categoryId": str(kind.category_id or ""),
        "priorityId": str(kind.priority_id or ""),
        "preemptibility": kind.preemptibility or None,
        "createdAt": stamp(kind.created_at),
        "createdBy": "Run:ai",
        "updatedAt": stamp(kind.updated_at),
        "updatedBy": kind.updated_by or "Run:ai",
        "clusterStatuses": None,
    }
    if kind.category:
        body["categoryName"] = kind.category.name
    if kind.priority:
        body["priorityName"] = kind.priority.name
    return body


def workload_json(workload: Workload) -> dict[str, Any]:
    """Workload of the generic list. Needs project, its department and type selected."""
    return _identity(workload) | _standing(workload) | _resources(workload)


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
        "createdAt": stamp(workload.created_at),
        "updatedAt": stamp(workload.updated_at),
        "deletedAt": stamp(workload.deleted_at),
        "submittedBy": workload.submitted_by,
        "source": _CHANNELS.get(workload.channel, "Other"),
    }


def _standing(workload: Workload) -> dict[str, Any]:
    return {
        "phase": workload.phase,
        "phaseUpdatedAt": stamp(workload.phase_at),
        "phaseReason": workload.phase_reason if workload.phase_reason in PENDING_REASONS else None,
        "waitingReason": (workload.phase_reason or None) if workload.phase in WAITING else None,
        "phaseMessage": workload.phase_message,
        "k8sPhase": workload.phase,
        "k8sPhaseUpdatedAt": stamp(workload.phase_at),
        "conditions": [],
        "runningPods": workload.running_pods,
        "category": workload.category,
        "priorityClassName": workload.priority.name,
        "priority": workload.priority_value,
        "prioritySource": workload.priority_source,
        "preemptible": workload.preemptibility != Preemptibility.NON_PREEMPTIBLE.value,
        "preemptibilitySource": workload.preemptibility_source,
        "completedAt": stamp(workload.completed_at),
        "totalPendingTimeSeconds": int(waited_seconds(workload)),
        "totalRunningTimeSeconds": int(ran_seconds(workload)),
        "actionsSupport": {"delete": True, "suspend": workload.phase not in _ENDED},
    }


def _resources(workload: Workload) -> dict[str, Any]:
    asked = {
        "gpu": {"request": gpus(workload.gpu_milli), "limit": gpus(workload.gpu_milli)},
        "cpu": {"request": workload.cpu_milli / 1000},
        "cpuMemory": {"request": str(workload.memory_bytes)},
    }
    return {
        "requestedNodePools": workload.node_pools,
        "currentNodePools": [workload.pool_name] if workload.pool_name else [],
        "workloadRequestedResources": asked,
        "podsRequestedResources": asked,
        "allocatedResources": {"gpu": gpus(workload.allocated_gpu_milli)},
        "requestedPods": {"number": workload.pod_count},
        "sourceApi": None if workload.type.native else "WorkloadsV2",
    }


def workload_v2_json(workload: Workload, *, manifest: dict[str, Any], group_version: tuple[str, str]) -> dict[str, Any]:
    """WorkloadV2: what was asked (`rawManifest`) and what Rung made of it (`workloadManifest`)."""
    group, version = group_version
    return {
        "metadata": metadata_v2(workload, gvk=(group, version, str(manifest.get("kind", workload.type.name)))),
        "desiredPhase": workload.desired_phase,
        "workloadManifest": manifest,
        "rawManifest": workload.raw or manifest,
    }


def metadata_v2(workload: Workload, *, gvk: tuple[str, str, str]) -> dict[str, Any]:
    """WorkloadV2Metadata."""
    project = workload.project
    group, version, kind = gvk
    return {
        "id": str(workload.pk),
        "name": workload.name,
        "projectId": str(project.pk),
        "projectName": project.name,
        "departmentId": str(project.department_id),
        "departmentName": project.department.name,
        "clusterId": str(project.cluster_id),
        "tenantId": TENANT_ID,
        "gvk": {"group": group, "version": version, "kind": kind},
        "createdAt": stamp(workload.created_at),
        "createdBy": workload.submitted_by,
        "updatedAt": stamp(workload.updated_at),
        "updatedBy": workload.submitted_by,
        "priority": workload.priority.name,
        "prioritySource": workload.priority_source,
        "category": workload.category,
        "preemptibility": two_modes(workload.preemptibility),
        "preemptibilitySource": workload.preemptibility_source,
        "discarded": workload.discarded,
        "warnings": workload.warnings,
        "deletedAt": stamp(workload.deleted_at),
    }


PENDING_REASONS: Final = frozenset({"NonPreemptibleOverQuota", "OverLimit"})
"""Their client's enum is closed, and fails on any other; `waitingReason` has every reason."""
_ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.STOPPED, Phase.STOPPING, Phase.DELETING})
