"""Submitted manifests and native workloads as REST sends and accepts them."""

import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.serializers import EncodedText, ErrorSchema, schema
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import parse_quantity
from workloads.dictionary.serializers import DiscardedValue, WarningSchema
from workloads.forecast.serializers import ForecastSchema, PriorityForecastSchema, RequestedSchema
from workloads.intake.rules.native.fields import CHANGEABLE, FIELDS, MASTER
from workloads.intake.rules.native.objects import FRAMEWORK_OF
from workloads.intake.rules.scalars import FRACTION, GPU, full_reference
from workloads.intake.serializers.native_parts import Schema, documented
from workloads.lifecycle.serializers.workloads import WorkloadV2Metadata
from workloads.policies.serializers import ComplianceIssueSchema
from workloads.state.models import DesiredPhase, Phase, Workload

TITLES = {
    "workspaces": "Workspace",
    "trainings": "Training",
    "distributed": "Distributed",
    "inferences": "Inference",
    "distributed-inferences": "DistributedInference",
    "nim-services": "NimService",
}


@cache
def spec_schema(kind: str) -> Schema:
    """The `spec` of a kind."""
    fields: dict[str, Any] = {name: documented(name, field) for name, field in FIELDS[kind].items()}
    return schema(f"{TITLES[kind]}Spec", "Image, resources and priority.", **fields)


LEADING: Final[dict[str, Any]] = {name: documented(name, field) for name, field in MASTER.items()}
MasterSpec = schema("MasterSpec", "The leading pod.", **LEADING)


def _masters() -> dict[str, Any]:
    return {
        "masterSpec": MasterSpec(required=False, allow_null=True),
        "masterSpecSameAsWorker": serializers.BooleanField(required=False, allow_null=True),
    }


class WorkloadName(serializers.RegexField):
    """1 to 63 lower-case letters, digits and inner dashes."""

    def __init__(self, **about: Any) -> None:
        words: Any = {"invalid": _("Use lower-case letters, digits and inner dashes.")}
        super().__init__(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, error_messages=words, **about)


class NativeCreate(serializers.Serializer[Any]):
    """Where a native workload goes, and under which name."""

    name = WorkloadName()
    useGivenNameAsPrefix = serializers.BooleanField(required=False, allow_null=True, default=False)
    projectId = serializers.CharField(max_length=20)
    clusterId = serializers.UUIDField(required=False, help_text="That of the project.")
    templateId = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="Id of a template that applies in the project. It fills in omitted fields.",
    )


@cache
def new_schema(kind: str) -> Schema:
    fields: dict[str, Any] = {"spec": spec_schema(kind)(required=False, allow_null=True)}
    if kind == "distributed":
        fields |= _masters()
    return schema(f"New{TITLES[kind]}", str(NativeCreate.__doc__), NativeCreate, **fields)


@cache
def change_schema(kind: str) -> Schema:
    """The body of a PATCH: the fields that may be named; what is absent stays."""
    changeable = {name: field for name, field in FIELDS[kind].items() if name in CHANGEABLE[kind]}
    fields: dict[str, Any] = {name: documented(name, field) for name, field in changeable.items()}
    spec = schema(f"{TITLES[kind]}SpecChange", "Fields to change.", **fields)
    about = "Replicas and priority can change at any time; the pod template only while suspended."
    return schema(f"{TITLES[kind]}Change", about, spec=spec(required=False, allow_null=True))


class DryRunForecastSchema(ForecastSchema):
    """Beyond Run:ai, with `dryRun=true`: what would happen now. A model on a snapshot, no promise."""

    requested = RequestedSchema()
    estimate = serializers.BooleanField(help_text="Always true.")
    flavour = serializers.CharField(help_text="The scheduler that was modelled.")


class NativeSchema(serializers.Serializer[Any]):
    """A native workload as it is now."""

    name = serializers.CharField()
    requestedName = serializers.CharField()
    workloadId = serializers.UUIDField()
    projectId = serializers.CharField()
    departmentId = serializers.CharField()
    clusterId = serializers.UUIDField()
    createdBy = serializers.CharField()
    createdAt = serializers.DateTimeField()
    deletedAt = serializers.DateTimeField(allow_null=True)
    desiredPhase = serializers.ChoiceField(choices=DesiredPhase.values)
    actualPhase = serializers.ChoiceField(choices=Phase.values)
    prioritySource = serializers.CharField(help_text="Beyond Run:ai: explicit, label, pod template, policy or type.")
    effectivePreemptibility = serializers.CharField(help_text="Beyond Run:ai: may be semi-preemptible.")
    preemptibilitySource = serializers.CharField(help_text="Beyond Run:ai: explicit, label, policy, type or threshold.")
    discarded = DiscardedValue(many=True, help_text="Beyond Run:ai: ignored values.")
    warnings = WarningSchema(many=True, help_text="Beyond Run:ai.")
    templateId = serializers.UUIDField(allow_null=True)
    templateSources = serializers.DictField(
        child=serializers.CharField(),
        help_text="Beyond Run:ai: by pointer, such as /spec/image, the template or asset that set the value.",
    )
    forecast = DryRunForecastSchema(required=False)


@cache
def native_schema(kind: str) -> Schema:
    fields: dict[str, Any] = {"spec": spec_schema(kind)()}
    if kind == "distributed":
        fields |= _masters()
    return schema(f"{TITLES[kind]}Workload", str(NativeSchema.__doc__), NativeSchema, **fields)


class SubmissionErrorSchema(ErrorSchema):
    """A refused native submission."""

    complianceIssues = ComplianceIssueSchema(many=True, required=False)
    forecast = DryRunForecastSchema(required=False)


class NimServiceCreateMetadata(serializers.Serializer[Any]):
    """Where the service goes."""

    name = WorkloadName()
    useGivenNameAsPrefix = serializers.BooleanField(required=False, allow_null=True, default=False)
    projectId = serializers.CharField(max_length=20)


class NimServiceCreate(serializers.Serializer[Any]):
    """A NIM service."""

    metadata = NimServiceCreateMetadata()
    spec = spec_schema("nim-services")()


class NimServiceSchema(serializers.Serializer[Any]):
    """A NIM service as it is now."""

    metadata = WorkloadV2Metadata()
    desiredPhase = serializers.ChoiceField(choices=["Running", "Stopped", "Deleted"])
    spec = spec_schema("nim-services")()
    forecast = DryRunForecastSchema(required=False)


Spec = dict[str, Any]


_SIDES: Final = (
    ("requests", "cpu", "cpuCoreRequest"),
    ("limits", "cpu", "cpuCoreLimit"),
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
        "createdAt": rfc3339(workload.created_at),
        "deletedAt": rfc3339(workload.deleted_at),
        "desiredPhase": workload.desired_phase,
        "actualPhase": workload.phase,
        "spec": effective_spec(workload),
        "prioritySource": workload.priority_source,
        "effectivePreemptibility": workload.preemptibility,
        "preemptibilitySource": workload.preemptibility_source,
        "discarded": workload.discarded,
        "warnings": workload.warnings,
        "templateId": sent.get("templateId"),
        "templateSources": sent.get("templateSources", {}),
    }
    if workload.type.name == "Distributed":
        body["masterSpec"] = _with_registries(sent["masterSpec"]) if sent.get("masterSpec") else None
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
        **(_spec_of_manifest(workload) if sent is None else _with_registries(sent)),
        "priorityClass": workload.priority.name,
        "preemptibility": two_modes(workload.preemptibility),
        "category": workload.classification,
        "nodePools": workload.node_pools,
    }


def _with_registries(part: Spec) -> Spec:
    """As it was sent, with each image as it was resolved."""
    groups = {name: _with_registries(part[name]) for name in ("leader", "worker") if isinstance(part.get(name), dict)}
    image = {"image": full_reference(part["image"])} if isinstance(part.get("image"), str) else {}
    return {**part, **groups, **image}


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
    return found | {name: _written(name, str(amount)) for name, amount in sides.items() if amount is not None}


def _written(name: str, amount: str) -> float | str:
    """Cores as a number, memory as a quantity."""
    return float(parse_quantity(amount)) if name.startswith("cpuCore") else amount


class WorkloadCreateMetadata(serializers.Serializer[Any]):
    """Where the workload goes and what it asks for; these beat the labels of the manifest."""

    name = WorkloadName(required=False)
    useGivenNameAsPrefix = serializers.BooleanField(required=False, default=False)
    projectId = serializers.CharField(max_length=20)
    clusterId = serializers.UUIDField(required=False)
    priority = serializers.CharField(required=False, allow_null=True, max_length=63)
    category = serializers.CharField(required=False, allow_null=True, max_length=40)
    preemptibility = serializers.CharField(required=False, allow_null=True, max_length=30)


class WorkloadCreate(serializers.Serializer[Any]):
    """A manifest of any served kind: exactly one of the two ways to give it."""

    metadata = WorkloadCreateMetadata()
    manifest = serializers.DictField(required=False)
    manifestBase64Encoded = EncodedText(required=False, help_text="Base64 of YAML.")


class WorkloadUpdateMetadata(serializers.Serializer[Any]):
    """What may be another."""

    priority = serializers.CharField(required=False, allow_null=True, max_length=63)
    category = serializers.CharField(required=False, allow_null=True, max_length=40, help_text="As at submission.")


class WorkloadUpdate(serializers.Serializer[Any]):
    """A change; what is absent stays. At most one of the two ways to give a manifest."""

    metadata = WorkloadUpdateMetadata(required=False, allow_null=True)
    manifest = serializers.DictField(required=False)
    manifestBase64Encoded = EncodedText(required=False)


class WorkloadV2Schema(serializers.Serializer[Any]):
    """A submitted manifest."""

    metadata = WorkloadV2Metadata()
    desiredPhase = serializers.ChoiceField(choices=["Running", "Stopped", "Deleted"])
    workloadManifest = serializers.DictField()
    rawManifest = serializers.DictField()


class ChangedWorkload(WorkloadV2Schema):
    """A submitted manifest after a change."""

    priorityForecast = PriorityForecastSchema(required=False, help_text="Beyond Run:ai: of a dry run, while it waits.")


class SyncInfoSchema(serializers.Serializer[Any]):
    """The state of the workload between Rung and its cluster."""

    status = serializers.ChoiceField(choices=["Queued", "Applying", "Deleting", "Synced", "Deleted", "Failed"])
    message = serializers.CharField(allow_blank=True)


class WorkloadV2WithSync(serializers.Serializer[Any]):
    """A submitted manifest with its sync."""

    workload = WorkloadV2Schema()
    syncInfo = SyncInfoSchema()
    cautions = serializers.ListField(child=serializers.CharField(), help_text="Beyond Run:ai: scheduler limits.")


# Their client's enum is closed: a third mode is reported as what may happen to the workload.
_TWO_MODES: Final = {Preemptibility.SEMI_PREEMPTIBLE.value: Preemptibility.PREEMPTIBLE.value}


def two_modes(preemptibility: str) -> str:
    """Run:ai's closed enum."""
    return _TWO_MODES.get(preemptibility, preemptibility)


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
        "createdAt": rfc3339(workload.created_at),
        "createdBy": workload.submitted_by,
        "updatedAt": rfc3339(workload.updated_at),
        "updatedBy": workload.submitted_by,
        "priority": workload.priority.name,
        "prioritySource": workload.priority_source,
        "category": workload.classification,
        "preemptibility": two_modes(workload.preemptibility),
        "effectivePreemptibility": workload.preemptibility,
        "preemptibilitySource": workload.preemptibility_source,
        "discarded": workload.discarded,
        "warnings": workload.warnings,
        "deletedAt": rfc3339(workload.deleted_at),
    }
