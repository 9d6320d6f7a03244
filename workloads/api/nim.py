"""NVIDIA NIM services (v2): submit, read and change the inference of a NIM's own image."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import checked
from portal.core.http import actor_of
from portal.core.marks import steady
from portal.core.routes import Route, Rule
from tenants.api.authentication import marks_of
from tenants.permissions import grants_read_once
from workloads.api.native import NativeFields, of_kind, read_body
from workloads.api.native_schemas import NewNimService, NimServiceSchema, change_schema
from workloads.api.native_shapes import effective_spec
from workloads.api.serving import changed
from workloads.api.shapes import metadata_v2
from workloads.api.submitting import ANSWERS, project_named
from workloads.models import Workload

KIND = "nim-services"


class NimServices(NativeFields):
    """A NIM service comes in."""

    @extend_schema(
        operation_id="create_nim_service",
        summary="Submit a NIM service",
        request=NewNimService,
        responses={202: NimServiceSchema, **ANSWERS},
    )
    def post(self, request: Request) -> Response:
        """Accepted with the effective values; refused at its fields."""
        sent, actor = checked(NewNimService, request.data), actor_of(request)
        with steady(marks_of(request)), grants_read_once():
            metadata = sent["metadata"]
            project = project_named(actor, metadata["projectId"], None, at="/metadata")
            body = {**metadata, "spec": sent["spec"]}
            spec = read_body(KIND, body, project, actor)
            workload = self.taken(request, spec, project, body)
        return Response(nim_json(workload) | self.foreseen, status=202)


class OneNimService(Route):
    """A NIM service by id."""

    access = {"GET": Rule("view_project", "project"), "PATCH": Rule("manage_workload", "project")}

    @extend_schema(
        operation_id="get_nim_service_by_id",
        summary="Read a NIM service",
        responses={200: NimServiceSchema, **ANSWERS},
    )
    def get(self, request: Request, nim_service_id: str) -> Response:
        """As it was sent, with the effective values; 404 if it is absent, not yours, or of another kind."""
        return Response(nim_json(of_kind(actor_of(request), KIND, nim_service_id)))

    @extend_schema(
        operation_id="update_nim_service_spec",
        summary="Change a NIM service",
        request=change_schema(KIND),
        responses={202: NimServiceSchema, **ANSWERS},
    )
    def patch(self, request: Request, nim_service_id: str) -> Response:
        """Accepted: replicas and priority at any time, the rest while it is suspended."""
        actor = actor_of(request)
        workload = of_kind(actor, KIND, nim_service_id)
        asked = checked(change_schema(KIND), request.data).get("spec") or {}
        return Response(nim_json(changed(KIND, workload, asked, actor)), status=202)


def nim_json(workload: Workload) -> dict[str, Any]:
    """NimServiceResponse."""
    group, _, version = str(workload.spec["api_version"]).rpartition("/")
    return {
        "metadata": metadata_v2(workload, gvk=(group, version, str(workload.spec["kind"]))),
        "desiredPhase": workload.desired_phase,
        "spec": effective_spec(workload),
    }
