"""A native workload as Run:ai's read models have it: what was sent, with the effective values written over it."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from portal.core.wire import stamp
from workloads.api.shapes import two_modes
from workloads.intake.native.objects import FRAMEWORK_OF
from workloads.intake.resources import FRACTION, GPU
from workloads.models import Workload

Spec = dict[str, Any]
_SIDES: Final = (
    ("requests", "memory", "cpuMemoryRequest"),
    ("limits", "memory", "cpuMemoryLimit"),
)


def native_json(workload: Workload) -> dict[str, Any]:
    """Workspace1, Training1, DistributedWorkload, Inference1 or DistributedInference, by its type."""
    project, sent = workload.project, native_body(workload)
    body = {
        "name": workload.name,
        "requestedName": str(sent.get("name") or workload.name),
        "workloadId": str(workload.pk),
        "projectId": str(project.pk),
        "departmentId": str(project.department_id),
        "clusterId": str(project.cluster_id),
        "createdBy": workload.submitted_by,
        "createdAt": stamp(workload.created_at),
        "deletedAt": stamp(workload.deleted_at),
        "desiredPhase": workload.desired_phase,
        "actualPhase": workload.phase,
        "spec": effective_spec(workload),
        "prioritySource": workload.priority_source,
        "preemptibilitySource": workload.preemptibility_source,
        "discarded": workload.discarded,
        "warnings": workload.warnings,
        "templateId": sent.get("templateId"),
        "templateSources": sent.get("templateSources", {}),
    }
    if workload.type.name == "Distributed":
        body["masterSpec"] = sent.get("masterSpec")
        body["masterSpecSameAsWorker"] = sent.get("masterSpecSameAsWorker")
    return body


def native_body(workload: Workload) -> Mapping[str, Any]:
    """What was sent, where it came as a native body; empty where a form or a manifest made it."""
    raw = workload.raw
    return raw if isinstance(raw.get("spec"), dict) and "apiVersion" not in raw else {}


def effective_spec(workload: Workload) -> Spec:
    """Its `spec`, with what priority, preemptibility, category and pools became."""
    sent = native_body(workload).get("spec")
    return {
        **(_spec_of_manifest(workload) if sent is None else sent),
        "priorityClass": workload.priority.name,
        "preemptibility": two_modes(workload.preemptibility),
        "category": workload.category,
        "nodePools": workload.node_pools,
    }


def _spec_of_manifest(workload: Workload) -> Spec:
    """What a form or a copy asked for, as far as native fields can say it."""
    manifest = workload.spec["manifest"]
    body = manifest["spec"]
    kind = manifest["kind"]
    if kind in FRAMEWORK_OF:
        return _of_roles(kind, body)
    if kind == "LeaderWorkerSet":
        return _of_group(body)
    counts = {name: body[name] for name in ("parallelism", "completions") if name in body}
    if kind == "Deployment":
        count = body.get("replicas", 1)
        counts = {"autoscaling": {"minReplicas": count, "maxReplicas": count}}
    return {**_part(body["template"]), **counts}


def _of_roles(kind: str, body: Spec) -> Spec:
    roles = next(value for name, value in body.items() if name.endswith("ReplicaSpecs"))
    role = roles.get("Worker") or next(iter(roles.values()))
    workers = roles.get("Worker", {}).get("replicas", 1)
    return {**_part(role["template"]), "distributedFramework": FRAMEWORK_OF[kind], "numWorkers": workers}


def _of_group(body: Spec) -> Spec:
    group = body["leaderWorkerTemplate"]
    worker = _part(group["workerTemplate"])
    leader = _part(group["leaderTemplate"]) if "leaderTemplate" in group else worker
    counts = {"workers": group.get("size", 1) - 1, "replicas": body.get("replicas", 1)}
    return {**counts, "leader": leader, "worker": worker}


def _part(template: Spec) -> Spec:
    main = template["spec"]["containers"][0]
    lines = {name: shlex.join(main[name]) for name in ("command", "args") if main.get(name)}
    plain = [{"name": each["name"], "value": each["value"]} for each in main.get("env", []) if "value" in each]
    found = {**lines, "image": main["image"], "environmentVariables": plain, "compute": _compute(template, main)}
    return found | ({"workingDir": main["workingDir"]} if main.get("workingDir") else {})


def _compute(template: Spec, main: Spec) -> Spec:
    resources = main.get("resources", {})
    share = template.get("metadata", {}).get("annotations", {}).get(FRACTION)
    found: Spec = {"gpuDevicesRequest": 1 if share else int(resources.get("limits", {}).get(GPU, 0))}
    if share:
        found |= {"gpuRequestType": "portion", "gpuPortionRequest": float(share)}
    sides = {name: resources.get(side, {}).get(resource) for side, resource, name in _SIDES}
    return found | {name: str(amount) for name, amount in sides.items() if amount is not None}
