"""What a manifest would become and what would happen to it, without submitting it. Beyond Run:ai."""

import base64
import binascii
import json
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import BadRequest, Refused
from portal.core.http import actor_of
from portal.core.routes import Rule
from scheduling.priority import Effective
from tenants.models import Project
from tenants.permissions import Verb, can
from tenants.selectors import project_by_id
from workloads.api.forecasts import ForecastSchema, forecast_json
from workloads.api.schemas import NewWorkload
from workloads.api.shapes import gpus
from workloads.api.submitting import BesideAManifest
from workloads.intake import Explicit, WorkloadSpec
from workloads.services.preview import forecast
from workloads.services.reading import read_text
from workloads.services.submission import category_of, type_of


class SourcedSchema(serializers.Serializer[Any]):
    """A value, and whether it was explicit, a label's, the type's or follows from the threshold."""

    value = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """With `source`, a name the class itself uses."""
        return {**super().get_fields(), "source": serializers.CharField()}


class SourcedPrioritySchema(SourcedSchema):
    """The same with the number behind the name."""

    number = serializers.IntegerField()


class RequestedSchema(serializers.Serializer[Any]):
    """What all of its pods ask for together."""

    pods = serializers.IntegerField()
    gpus = serializers.FloatField()
    cpuCores = serializers.FloatField()
    memoryBytes = serializers.IntegerField()


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
    discarded = serializers.ListField(child=serializers.DictField())
    warnings = serializers.ListField(child=serializers.DictField())
    requested = RequestedSchema()
    manifest = serializers.DictField(help_text="As it would be stored: rebuilt from what is allowed.")
    forecast = ForecastSchema()


class Explain(BesideAManifest):
    """Ask first."""

    access = {"POST": Rule("submit", "project", reads=True)}

    @extend_schema(
        operation_id="explain_workload",
        summary="Explain a manifest without submitting it",
        description="Beyond Run:ai. Effective values with their sources, what was discarded, and a forecast.",
        request=NewWorkload,
        responses={200: ExplanationSchema, 409: ErrorSchema, 413: ErrorSchema, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """The explanation; refused as a submission would be, and not recorded."""
        body, actor = checked(NewWorkload, request.data), actor_of(request)
        project = _project(actor, body["metadata"]["projectId"])
        spec = _spec(body, project, actor)
        return Response(_explained(spec, project, actor))


def _project(actor: Actor, wanted: str) -> Project:
    found = project_by_id(int(wanted)) if wanted.isascii() and wanted.isdigit() else None
    if found is None or not can(actor, Verb.VIEW_PROJECT, project=found):
        raise Refused.at("/metadata/projectId", "unknown_id", "projectId names no project of yours.")
    return found


def _spec(body: dict[str, Any], project: Project, actor: Actor) -> WorkloadSpec:
    metadata = body["metadata"]
    explicit = Explicit(priority=metadata.get("priority"), preemptibility=metadata.get("preemptibility"))
    specs = read_text(data=_text(body), project=project, actor=actor, explicit=explicit, keep=False)
    if len(specs) != 1:
        raise Refused.at("/manifest", "one_document", f"One document is taken here, not {len(specs)}.")
    return specs[0].named(metadata["name"]) if metadata.get("name") else specs[0]


def _text(body: dict[str, Any]) -> bytes:
    """The manifest as YAML, which JSON is."""
    if ("manifest" in body) == ("manifestBase64Encoded" in body):
        message = "Exactly one of manifest and manifestBase64Encoded is needed."
        raise BadRequest.at("/manifest", "one_manifest", message)
    if "manifest" in body:
        return json.dumps(body["manifest"]).encode()
    try:
        return base64.b64decode(body["manifestBase64Encoded"], validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest.at("/manifestBase64Encoded", "not_base64", "This is not Base64.") from None


def _explained(spec: WorkloadSpec, project: Project, actor: Actor) -> dict[str, Any]:
    foreseen, total = forecast(spec=spec, project=project, actor=actor), spec.total
    return {
        "name": spec.name,
        "kind": spec.kind,
        "type": spec.type_name,
        "category": category_of(type_of(spec)),
        "projectId": str(project.pk),
        "projectName": project.name,
        **_values(spec, foreseen.effective),
        "requested": {
            "pods": spec.pods,
            "gpus": gpus(total.gpu),
            "cpuCores": total.cpu / 1000,
            "memoryBytes": total.memory,
        },
        "manifest": spec.manifest,
        "forecast": forecast_json(foreseen),
    }


def _values(spec: WorkloadSpec, effective: Effective) -> dict[str, Any]:
    level = effective.priority
    warnings = [{"code": each.code, "message": each.message} for each in effective.warnings]
    return {
        "priority": {"value": level.name, "number": level.value, "source": str(effective.priority_source)},
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
