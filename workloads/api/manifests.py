"""Any Kubernetes kind as a manifest: Run:ai's v2 submission, read, change and delete."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import checked
from portal.core.errors import Refused
from portal.core.http import actor_of
from portal.core.marks import steady
from portal.core.routes import Rule
from tenants.api.authentication import marks_of
from tenants.permissions import grants_read_once
from workloads.api.schemas import NewWorkload, WorkloadUpdate, WorkloadV2Schema, WorkloadV2WithSync
from workloads.api.shapes import workload_v2_json
from workloads.api.submitting import ANSWERS, BesideAManifest, Submission, project_named, read_submitted
from workloads.models import DesiredPhase, Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle
from workloads.services.changing import Change, change
from workloads.services.reading import refusals, refuse_category


class Manifests(BesideAManifest, Submission):
    """Submit a manifest."""

    @extend_schema(
        operation_id="create_workload_v2",
        summary="Submit a workload as a manifest",
        description="`metadata.priority` and `metadata.preemptibility` beat the labels of the manifest. With "
        "`dryRun=true` the answer has a `forecast` beside it (beyond Run:ai).",
        request=NewWorkload,
        responses={202: WorkloadV2Schema, **ANSWERS},
    )
    def post(self, request: Request) -> Response:
        """Accepted with the effective values and their sources; refused with a pointer per field."""
        body = checked(NewWorkload, request.data)
        metadata, actor = body["metadata"], actor_of(request)
        with steady(marks_of(request)), grants_read_once():
            project = project_named(actor, metadata["projectId"], metadata.get("clusterId"), at="/metadata")
            spec = read_submitted(body, project, actor)
            workload = self.accept(request, spec=spec, project=project, raw=body.get("manifest") or {})
        return Response(_answer(workload) | self.foreseen, status=202)


class OneManifest(BesideAManifest):
    """A submitted manifest by id."""

    access = {
        "GET": Rule("view_project", "project"),
        "PUT": Rule("manage_workload", "project"),
        "DELETE": Rule("manage_workload", "project"),
    }

    @extend_schema(
        operation_id="get_workload_v2_by_id",
        summary="Read a submitted manifest",
        responses={200: WorkloadV2WithSync, **ANSWERS},
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """The manifest with its sync; 404 if absent or not yours."""
        workload = workload_or_404(actor_of(request), workload_id)
        return Response({"workload": _answer(workload), "syncInfo": _sync_info(workload)})

    @extend_schema(
        operation_id="update_workload_v2",
        summary="Change a submitted workload",
        description="Another priority, or as many replicas, at any time; what describes its pods only while it is "
        "suspended. Its preemptibility stays.",
        request=WorkloadUpdate,
        responses={202: WorkloadV2Schema, **ANSWERS},
    )
    def put(self, request: Request, workload_id: str) -> Response:
        """Accepted; refused at what cannot be changed now."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        wanted = _wanted(workload, checked(WorkloadUpdate, request.data), actor)
        return Response(_answer(change(workload=workload, wanted=wanted, actor=actor)), status=202)

    @extend_schema(
        operation_id="delete_workload_v2", summary="Delete a workload", responses={202: WorkloadV2Schema, **ANSWERS}
    )
    def delete(self, request: Request, workload_id: str) -> Response:
        """Accepted; twice is once."""
        actor = actor_of(request)
        workload = lifecycle.delete(workload=workload_or_404(actor, workload_id), actor=actor)
        return Response(_answer(workload), status=202)


def _wanted(workload: Workload, body: dict[str, Any], actor: Actor) -> Change:
    """What is to be another: the same workload as the new manifest has it, under its own name."""
    metadata, described = body.get("metadata") or {}, not {"manifest", "manifestBase64Encoded"}.isdisjoint(body)
    priority = metadata.get("priority")
    with refusals(project=workload.project, actor=actor, workload=workload):
        refuse_category(metadata.get("category"), workload.category)
        if not described:
            return Change(priority=priority)
        _refuse_native(workload)
        named = {**body, "metadata": {"name": workload.name}}
        spec = read_submitted(named, workload.project, actor, keep=False, workload=workload)
        _refuse_wish(spec.request.label_priority, workload, priority)
        return Change(spec, body.get("manifest"), priority, ["/manifest"])


def _refuse_native(workload: Workload) -> None:
    if workload.type.native:
        message = f"{workload.name} is a {workload.type.title}: it is changed by the route of its kind."
        raise Refused.at("/manifest", "native", message)


def _refuse_wish(wished: str | None, workload: Workload, priority: str | None) -> None:
    if priority is None and wished is not None and wished != workload.priority.name:
        message = "Another priority is named in metadata.priority: a label of a submitted workload is read no more."
        raise Refused.at("/metadata/labels/priorityClassName", "fixed", message, allowed=(workload.priority.name,))


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
