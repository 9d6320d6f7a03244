"""Another workload like this one. Beyond Run:ai."""

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.schemas import NAME, WorkloadV2Schema
from workloads.api.shapes import workload_v2_json
from workloads.api.submitting import project_named
from workloads.intake import WorkloadSpec
from workloads.selectors import workload_or_404
from workloads.services.lifecycle import clone_spec
from workloads.services.submission import submit


class CloneRequest(serializers.Serializer[Any]):
    """What differs from the original; all of it may be absent."""

    name = serializers.RegexField(NAME, required=False, max_length=63, help_text="A free one is made when absent.")
    projectId = serializers.CharField(required=False, max_length=20, help_text="The original's when absent.")
    priority = serializers.CharField(required=False, max_length=63)
    preemptibility = serializers.CharField(required=False, max_length=30)


class Clone(Route):
    """Submit a copy."""

    access = {"POST": Rule("submit", "project")}

    @extend_schema(
        operation_id="clone_workload",
        summary="Submit a copy of a workload",
        description="Beyond Run:ai. Defaults are resolved anew; what was chosen for the original is chosen again.",
        request=CloneRequest,
        responses={202: WorkloadV2Schema, 409: ErrorSchema, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request, workload_id: str) -> Response:
        """Accepted with the effective values and their sources."""
        actor = actor_of(request)
        original = workload_or_404(actor, workload_id)
        wanted = checked(CloneRequest, request.data)
        project = project_named(actor, wanted["projectId"], None) if "projectId" in wanted else original.project
        spec = _changed(clone_spec(workload=original, actor=actor), wanted, moved=project != original.project)
        made = submit(spec=spec, project=project, actor=actor)
        group, _, version = spec.api_version.rpartition("/")
        body = workload_v2_json(made, manifest=made.spec["manifest"], group_version=(group, version))
        return Response(body, status=202)


def _changed(spec: WorkloadSpec, wanted: dict[str, Any], *, moved: bool) -> WorkloadSpec:
    """The same with what the caller chose. Node pools are those of its cluster: elsewhere they are chosen anew."""
    request = replace(
        spec.request,
        explicit_priority=wanted.get("priority", spec.request.explicit_priority),
        explicit_preemptibility=wanted.get("preemptibility", spec.request.explicit_preemptibility),
    )
    spec = replace(spec, request=request, node_pools=() if moved else spec.node_pools)
    return spec.named(wanted["name"]) if "name" in wanted else spec
