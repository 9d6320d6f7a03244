"""What a manifest would become and what would happen to it, without submitting it. Beyond Run:ai."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.http import actor_of
from portal.core.routes import Rule
from scheduling.priority import Effective
from tenants.models import Project
from workloads.api.forecasts import ForecastSchema, forecast_json
from workloads.api.schemas import NewWorkload
from workloads.api.shapes import gpus
from workloads.api.submitting import BesideAManifest, project_named, read_submitted
from workloads.intake import WorkloadSpec
from workloads.services.preview import forecast
from workloads.services.submission import category_of, type_of


class SourcedSchema(serializers.Serializer[Any]):
    """A value, and whether it was explicit, a label's, a policy's, the type's or follows from the threshold."""

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
        metadata = body["metadata"]
        project = project_named(actor, metadata["projectId"], metadata.get("clusterId"), at="/metadata")
        spec = read_submitted(body, project, actor, keep=False)
        return Response(_explained(spec, project, actor))


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
