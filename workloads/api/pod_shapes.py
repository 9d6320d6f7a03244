"""Pods, events and history to Run:ai's JSON. What Rung does not know is left out, never made up."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.models import ClusterEvent, ObservedPod
from portal.core.wire import TENANT_ID, stamp
from tenants.models import Project
from workloads.api.shapes import gpus
from workloads.models import EventType, Workload, WorkloadEvent

ENDED: Final = frozenset({"Succeeded", "Failed"})


def pod_json(pod: ObservedPod, workload: Workload | None, project: Project, *, full: bool) -> dict[str, Any]:
    """Pod1. `workload` is None for a pod whose workload Rung keeps no more."""
    amounts = {
        "gpu": {"request": gpus(pod.gpu_milli), "limit": gpus(pod.gpu_milli)},
        "cpu": {"request": pod.cpu_milli / 1000},
        "cpuMemory": {"request": str(pod.memory_bytes)},
    }
    holds = bool(pod.node_name) and pod.phase not in ENDED and pod.gone_at is None
    names = {"projectName": project.name, "workloadName": workload.name if workload else None} if full else {}
    return {
        "id": pod.uid,
        "name": pod.name,
        "workloadId": pod.owner_id,
        "clusterId": str(pod.cluster_id),
        "projectId": str(project.pk),
        "tenantId": TENANT_ID,
        "priorityClassName": pod.priority_class,
        "createdAt": stamp(pod.created_at),
        "updatedAt": stamp(pod.observed_at),
        "completedAt": stamp(pod.ended_at) if pod.phase in ENDED else None,
        "deletedAt": stamp(pod.gone_at),
        "k8sPhase": pod.phase,
        "k8sPhaseUpdatedAt": stamp(_phase_since(pod)),
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
    if pod.phase in ENDED and pod.ended_at:
        return pod.ended_at
    return pod.started_at or pod.created_at


def _containers(pod: ObservedPod, workload: Workload | None) -> list[dict[str, str]]:
    """As they were submitted; a controller may have added others."""
    roles = (workload.spec.get("roles") or []) if workload else []
    own = [role for role in roles if role["name"] == pod.role] or roles
    named = {name: image for role in own for name, image in _images(role)}
    return [{"name": name, "image": image} for name, image in named.items()]


def _images(role: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """A container whose kind chooses the image itself has none of its own, and then nobody knows which is whose."""
    names, images = role["containers"], role["images"]
    return zip(names, images if len(images) == len(names) else [""] * len(names), strict=True)


def event_json(event: ClusterEvent) -> dict[str, Any]:
    """Event2. Its message has been cleaned by whoever read it for an actor."""
    return {
        "id": event.uid,
        "createdAt": stamp(event.at),
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
    spec = {"phaseUpdate": _phase_update(entry)} if is_phase else {"event": _told(entry, workload)}
    meta = {"creationTimestamp": stamp(entry.at), "type": "PhaseUpdate" if is_phase else "Event"}
    return {"meta": meta, "spec": spec}


def _phase_update(entry: WorkloadEvent) -> Mapping[str, str]:
    return {"phase": entry.phase, "phaseMessage": entry.message}


def _told(entry: WorkloadEvent, workload: Workload) -> dict[str, Any]:
    project = workload.project
    return {
        "id": str(entry.pk),
        "createdAt": stamp(entry.at),
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
