"""REST of manifests of any kind (v2): submit, read, change, delete, clone and explain."""

from dataclasses import replace
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import flag_in
from portal.kit.api.routes import RoutePermission
from portal.kit.api.serializers import operation, validated_body
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api.authentication import reads_of
from tenants.organisation.models import Project
from workloads.dictionary.rules.resolution import Effective
from workloads.dictionary.selectors import category_of
from workloads.dictionary.serializers import DiscardedValue, WarningSchema
from workloads.forecast.serializers import (
    ForecastSchema,
    RequestedSchema,
    forecast_json,
    priority_forecast_json,
    requested_json,
)
from workloads.forecast.services.storage import stored_forecast
from workloads.intake import WorkloadSpec
from workloads.intake.services import refusals
from workloads.lifecycle.selectors.workloads import priority_change_effect, warnings_for
from workloads.lifecycle.services import actions
from workloads.lifecycle.services.actions import clone_spec
from workloads.lifecycle.services.changes import WorkloadChange, change
from workloads.policies.services import type_of
from workloads.state.models import DesiredPhase, Workload
from workloads.state.selectors.workloads import workload_or_404
from workloads.submission.api.submissions import (
    ManifestRoute,
    Submission,
    project_named,
    read_body,
    read_submitted,
    sent_manifest,
)
from workloads.submission.serializers import (
    ChangedWorkload,
    WorkloadCreate,
    WorkloadName,
    WorkloadUpdate,
    WorkloadV2Schema,
    WorkloadV2WithSync,
    workload_v2_json,
)


class ManifestCollection(ManifestRoute, Submission):
    """Submit a manifest."""

    @operation(
        "create_workload_v2",
        "Submit a workload as a manifest",
        WorkloadV2Schema,
        202,
        description="`metadata.priority` and `metadata.preemptibility` override the labels of the manifest. With "
        "`dryRun=true` the response includes a `forecast` (beyond Run:ai).",
        request=WorkloadCreate,
    )
    def post(self, request: Request) -> Response:
        """Accepted with the effective values and their sources; refused with a pointer per field."""
        with cached_reads(reads_of(request)):
            body, project, spec = read_body(WorkloadCreate, request.data, actor_of(request))
            workload = self.accept(request, spec=spec, project=project, raw=sent_manifest(body))
        return Response(_answer(workload) | self.forecast_body, status=202)


class ManifestDetail(ManifestRoute):
    """A submitted manifest by id."""

    access = {
        "GET": RoutePermission("view_project", "project"),
        "PUT": RoutePermission("manage_workload", "project"),
        "DELETE": RoutePermission("manage_workload", "project"),
    }

    @operation("get_workload_v2_by_id", "Read a submitted manifest", WorkloadV2WithSync, also=(409, 413, 422))
    def get(self, request: Request, workload_id: str) -> Response:
        """The manifest with its sync; 404 if absent or not yours."""
        workload = workload_or_404(actor_of(request), workload_id)
        beside = {"syncInfo": _sync_info(workload), "cautions": list(map(str, warnings_for(workload)))}
        return Response({"workload": _answer(workload), **beside})

    @operation(
        "update_workload_v2",
        "Change a submitted workload",
        ChangedWorkload,
        202,
        description="Priority and replicas can change at any time; the pod template only while the workload is "
        "suspended. Preemptibility cannot change.",
        request=WorkloadUpdate,
    )
    def put(self, request: Request, workload_id: str) -> Response:
        """Accepted; refused at what cannot be changed now."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        wanted = _wanted(workload, validated_body(WorkloadUpdate, request.data), actor)
        expected = _expected(workload, wanted.priority, actor) if flag_in(request.query_params, "dryRun") else {}
        return Response(_answer(change(workload=workload, wanted=wanted, actor=actor)) | expected, status=202)

    @operation("delete_workload_v2", "Delete a workload", WorkloadV2Schema, 202)
    def delete(self, request: Request, workload_id: str) -> Response:
        """Accepted; twice is once."""
        actor = actor_of(request)
        workload = actions.delete(workload=workload_or_404(actor, workload_id), actor=actor)
        return Response(_answer(workload), status=202)


def _expected(workload: Workload, priority: str | None, actor: Actor) -> dict[str, Any]:
    """What another priority would do to it and to others, where it takes effect at once."""
    found = actions.forecast_of_priority(workload=workload, priority=priority, actor=actor) if priority else None
    return {"priorityForecast": priority_forecast_json(found, priority_change_effect(workload))} if found else {}


def _wanted(workload: Workload, body: dict[str, Any], actor: Actor) -> WorkloadChange:
    """What is to be another: the same workload as the new manifest has it, under its own name."""
    metadata, described = body.get("metadata") or {}, not {"manifest", "manifestBase64Encoded"}.isdisjoint(body)
    priority = metadata.get("priority")
    with refusals(project=workload.project, actor=actor, workload=workload):
        _check_category(metadata.get("category"), workload)
        if not described:
            return WorkloadChange(priority=priority)
        _check_not_native(workload)
        named = {**body, "metadata": {"name": workload.name}}
        spec = read_submitted(named, workload.project, actor, keep=False, workload=workload)
        if priority is None:
            _check_requested_priority(spec, workload)
        return WorkloadChange(spec, sent_manifest(body), priority, ["/manifest"])


def _check_category(wanted: str | None, workload: Workload) -> None:
    if wanted is not None and wanted.casefold() != workload.classification.casefold():
        message = "This is fixed at submission. Submit a new workload instead."
        raise ValidationFailed.at("/category", "fixed", message, allowed=(workload.classification,))


def _check_not_native(workload: Workload) -> None:
    if workload.type.native:
        message = f"{workload.name} is a {workload.type.title}: use the route of its kind."
        raise ValidationFailed.at("/manifest", "native", message)


def _check_requested_priority(spec: WorkloadSpec, workload: Workload) -> None:
    """A label, else the pod template, may repeat the priority of the workload."""
    requested = spec.request
    label = (("/metadata/labels/priorityClassName", requested.label_priority),) if requested.label_priority else ()
    for pointer, name in (*label, *requested.pod_priority_class)[:1]:
        if name != workload.priority.name:
            message = "Change the priority in metadata.priority: the manifest's is only read at submission."
            raise ValidationFailed.at(pointer, "fixed", message, allowed=(workload.priority.name,))


def _answer(workload: Workload) -> dict[str, Any]:
    spec = workload.spec
    group, _, version = str(spec["api_version"]).rpartition("/")
    return workload_v2_json(workload, manifest=spec["manifest"], group_version=(group, version))


def _sync_info(workload: Workload) -> dict[str, str]:
    if workload.apply_error:
        return {"status": "Failed", "message": workload.apply_error}
    deleting = workload.desired_phase == DesiredPhase.DELETED
    if workload.applied_generation < workload.generation:
        return {"status": "Deleting" if deleting else "Queued", "message": ""}
    return {"status": "Deleted" if deleting else "Synced", "message": ""}


class CloneRequest(serializers.Serializer[Any]):
    """What differs from the original; all of it may be absent."""

    name = WorkloadName(required=False, help_text="Default: a generated name.")
    projectId = serializers.CharField(required=False, max_length=20, help_text="Default: that of the original.")
    priority = serializers.CharField(required=False, max_length=63)
    preemptibility = serializers.CharField(required=False, max_length=30)


class Clone(Submission):
    """Submit a copy. A repeat gets the stored response: without a name in the request, each copy has another one."""

    own_repeats = False

    @operation(
        "clone_workload",
        "Submit a copy of a workload",
        WorkloadV2Schema,
        202,
        description="Beyond Run:ai. Defaults are resolved again; explicit choices of the original are kept. With "
        "`dryRun=true` the response includes a `forecast`.",
        request=CloneRequest,
    )
    def post(self, request: Request, workload_id: str) -> Response:
        """Accepted with the effective values and their sources."""
        actor = actor_of(request)
        original = workload_or_404(actor, workload_id)
        wanted = validated_body(CloneRequest, request.data)
        project = project_named(actor, wanted["projectId"]) if "projectId" in wanted else original.project
        spec = _changed(clone_spec(workload=original, actor=actor), wanted, moved=project != original.project)
        made = self.accept(request, spec=spec, project=project, raw={})
        group, _, version = spec.api_version.rpartition("/")
        body = workload_v2_json(made, manifest=made.spec["manifest"], group_version=(group, version))
        return Response(body | self.forecast_body, status=202)


def _changed(spec: WorkloadSpec, wanted: dict[str, Any], *, moved: bool) -> WorkloadSpec:
    """The same with what the caller chose. Node pools are those of its cluster: elsewhere they are chosen again."""
    request = replace(
        spec.request,
        explicit_priority=wanted.get("priority", spec.request.explicit_priority),
        explicit_preemptibility=wanted.get("preemptibility", spec.request.explicit_preemptibility),
    )
    spec = replace(spec, request=request, node_pools=() if moved else spec.node_pools)
    return spec.named(wanted["name"]) if "name" in wanted else spec


class SourcedSchema(serializers.Serializer[Any]):
    """A value with its source: explicit, label, pod template, policy, type or threshold."""

    value = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField()}


class SourcedPrioritySchema(SourcedSchema):
    """The same with the number behind the name."""

    number = serializers.IntegerField()


class ExplanationSchema(serializers.Serializer[Any]):
    """A manifest as Rung understands it."""

    name = serializers.CharField()
    kind = serializers.CharField()
    type = serializers.CharField()
    category = serializers.CharField(allow_blank=True)
    projectId = serializers.CharField()
    projectName = serializers.CharField()
    priority = SourcedPrioritySchema()
    preemptibility = SourcedSchema()
    discarded = DiscardedValue(many=True)
    warnings = WarningSchema(many=True)
    requested = RequestedSchema()
    manifest = serializers.DictField(help_text="As it would be stored, rebuilt from the allowed fields.")
    forecast = ForecastSchema()


class Explain(ManifestRoute):
    """Ask first."""

    access = {"POST": RoutePermission("submit", "project", reads=True)}

    @operation(
        "explain_workload",
        "Explain a manifest without submitting it",
        ExplanationSchema,
        description="Beyond Run:ai. Returns effective values with sources, ignored values and a forecast: of this "
        "manifest alone, as if no other one were submitted with it.",
        request=WorkloadCreate,
    )
    def post(self, request: Request) -> Response:
        """The explanation; refused as a submission would be, and not recorded."""
        actor = actor_of(request)
        _body, project, spec = read_body(WorkloadCreate, request.data, actor, keep=False)
        return Response(_explained(spec, project, actor))


def _explained(spec: WorkloadSpec, project: Project, actor: Actor) -> dict[str, Any]:
    previewed = stored_forecast(spec=spec, project=project, actor=actor)
    return {
        "name": spec.name,
        "kind": spec.kind,
        "type": spec.type_name,
        "category": spec.classification or category_of(type_of(spec)),
        "projectId": str(project.pk),
        "projectName": project.name,
        **_values(spec, previewed.effective),
        "requested": requested_json(spec),
        "manifest": spec.manifest,
        "forecast": forecast_json(previewed),
    }


def _values(spec: WorkloadSpec, effective: Effective) -> dict[str, Any]:
    priority = effective.priority
    warnings = [{"code": each.code, "message": each.message} for each in effective.warnings]
    return {
        "priority": {"value": priority.name, "number": priority.value, "source": str(effective.priority_source)},
        "preemptibility": {
            "value": str(effective.preemptibility),
            "source": str(effective.preemptibility_source),
        },
        "discarded": [
            {"field": each.field, "source": str(each.source), "value": each.value, "because": each.because}
            for each in effective.discarded
        ],
        "warnings": [*warnings, *({"code": "intake", "message": message} for message in spec.warnings)],
    }
