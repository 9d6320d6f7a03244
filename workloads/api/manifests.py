"""Any Kubernetes kind as a manifest: Run:ai's v2 submission, read and delete."""

import base64
import binascii
from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import BadRequest, Refused
from portal.core.http import actor_of
from portal.core.marks import steady
from portal.core.repeats import checked_key
from portal.core.routes import Route, Rule
from tenants.api.authentication import marks_of
from tenants.models import Project
from tenants.permissions import Verb, can, grants_read_once
from tenants.selectors import project_by_id
from workloads.api.schemas import NewWorkload, WorkloadV2Schema, WorkloadV2WithSync
from workloads.api.shapes import workload_v2_json
from workloads.intake import Explicit, WorkloadSpec
from workloads.models import DesiredPhase, Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle
from workloads.services.reading import read_manifest, read_text
from workloads.services.submission import submit

ANSWERS: Final = {409: ErrorSchema, 413: ErrorSchema, 422: ErrorSchema, **REFUSALS}


class Manifests(Route):
    """Submit a manifest."""

    access = {"POST": Rule("submit", "project")}
    own_repeats = True

    @extend_schema(
        operation_id="create_workload_v2",
        summary="Submit a workload as a manifest",
        description="`metadata.priority` and `metadata.preemptibility` beat the labels of the manifest.",
        request=NewWorkload,
        responses={202: WorkloadV2Schema, **ANSWERS},
    )
    def post(self, request: Request) -> Response:
        """Accepted with the effective values and their sources; refused with a pointer per field."""
        body = checked(NewWorkload, request.data)
        metadata, actor = body["metadata"], actor_of(request)
        with steady(marks_of(request)), grants_read_once():
            project = _project(actor, metadata)
            spec = _read(body, project, actor)
            workload = submit(spec=spec, project=project, actor=actor, raw=body.get("manifest"), key=_key(request))
        return Response(_answer(workload), status=202)


class OneManifest(Route):
    """A submitted manifest by id."""

    access = {"GET": Rule("view_project", "project"), "DELETE": Rule("manage_workload", "project")}

    @extend_schema(
        operation_id="get_workload_v2_by_id",
        summary="Read a submitted manifest",
        responses={200: WorkloadV2WithSync, **REFUSALS},
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """The manifest with its sync; 404 if absent or not yours."""
        workload = workload_or_404(actor_of(request), workload_id)
        return Response({"workload": _answer(workload), "syncInfo": _sync_info(workload)})

    @extend_schema(
        operation_id="delete_workload_v2", summary="Delete a workload", responses={202: WorkloadV2Schema, **REFUSALS}
    )
    def delete(self, request: Request, workload_id: str) -> Response:
        """Accepted; twice is once."""
        actor = actor_of(request)
        workload = lifecycle.delete(workload=workload_or_404(actor, workload_id), actor=actor)
        return Response(_answer(workload), status=202)


def _project(actor: Actor, metadata: dict[str, Any]) -> Project:
    """The project the body names; one that is absent or foreign is refused alike, at its field."""
    wanted = metadata["projectId"]
    found = project_by_id(int(wanted)) if wanted.isascii() and wanted.isdigit() else None
    if found is None or not can(actor, Verb.VIEW_PROJECT, project=found):
        raise Refused.at("/metadata/projectId", "unknown_id", "projectId names no project of yours.")
    if str(metadata.get("clusterId", found.cluster_id)) != str(found.cluster_id):
        raise Refused.at("/metadata/clusterId", "wrong_cluster", f"{found.name} is on cluster {found.cluster_id}.")
    return found


def _read(body: dict[str, Any], project: Project, actor: Actor) -> WorkloadSpec:
    metadata = body["metadata"]
    explicit = Explicit(priority=metadata.get("priority"), preemptibility=metadata.get("preemptibility"))
    if ("manifest" in body) == ("manifestBase64Encoded" in body):
        message = "Exactly one of manifest and manifestBase64Encoded is needed."
        raise BadRequest.at("/manifest", "one_manifest", message)
    if "manifest" in body:
        manifest = _with_name(body["manifest"], metadata)
        return read_manifest(manifest=manifest, project=project, actor=actor, explicit=explicit)
    specs = read_text(data=_decoded(body["manifestBase64Encoded"]), project=project, actor=actor, explicit=explicit)
    if len(specs) != 1:
        raise Refused.at("/manifestBase64Encoded", "one_document", f"One document is taken here, not {len(specs)}.")
    return specs[0].named(metadata["name"]) if metadata.get("name") else specs[0]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest.at("/manifestBase64Encoded", "not_base64", "This is not Base64.") from None


def _with_name(manifest: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """`metadata.name` beats the manifest's own; as a prefix it is completed at submission. Intake judges it."""
    name, own = metadata.get("name"), manifest.get("metadata", {})
    if not name or not isinstance(own, dict):
        return manifest
    kept = {key: value for key, value in own.items() if key not in {"name", "generateName"}}
    return {**manifest, "metadata": {**kept, "generateName" if metadata["useGivenNameAsPrefix"] else "name": name}}


def _key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    return None if key is None else checked_key(key)


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
