"""REST of inferences: change them; submit, read and change NVIDIA NIM services."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import AcceptedSchema, operation, validated_body
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import BadRequest, Problem, RungError, ValidationFailed, raise_with
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api.authentication import reads_of
from workloads.intake.rules.native.objects import TYPES
from workloads.intake.rules.native.reader import COUNTS
from workloads.intake.services import read_scaled, refusals
from workloads.lifecycle.services.changes import WorkloadChange, change
from workloads.state.models import Workload
from workloads.state.services import locked
from workloads.submission.api.native import NativeFields, act, at_native_fields, of_kind, read_body
from workloads.submission.api.submissions import ANSWERS, project_named, remaining_sources
from workloads.submission.serializers import (
    NimServiceCreate,
    NimServiceSchema,
    change_schema,
    effective_spec,
    metadata_v2,
    native_body,
    native_json,
    native_schema,
)

FIXED = {
    "preemptibility": "This is resolved at submission and fixed. Submit a new workload instead.",
    "nodePools": "This is fixed at submission. Submit a new workload instead.",
    "category": "This is fixed at submission. Submit a new workload instead.",
}


class Served(Route):
    """One workload that serves."""

    kind: ClassVar[str]
    access = {
        "GET": RoutePermission("view_project", "project"),
        "PATCH": RoutePermission("manage_workload", "project"),
        "DELETE": RoutePermission("manage_workload", "project"),
    }

    def found(self, request: Request, ids: Mapping[str, str]) -> Workload:
        return of_kind(actor_of(request), self.kind, next(iter(ids.values())))

    def get(self, request: Request, **ids: str) -> Response:
        """As it was sent, with the effective values; 404 if it is absent, not yours, or of another kind."""
        return Response(native_json(self.found(request, ids)))

    def delete(self, request: Request, **ids: str) -> Response:
        """Accepted; twice is once."""
        return act("delete", actor_of(request), self.kind, next(iter(ids.values())))

    def patch(self, request: Request, **ids: str) -> Response:
        """Accepted: replicas and priority at any time, the rest while it is suspended."""
        actor, workload = actor_of(request), self.found(request, ids)
        requested = validated_body(change_schema(self.kind), request.data).get("spec") or {}
        return Response(native_json(changed(self.kind, workload, requested, actor)), status=202)


def _documented(kind: str, get: str, update: str, remove: str, what: str) -> Any:
    """The operations as the client's methods are called."""
    answer = native_schema(kind)
    return extend_schema_view(
        get=extend_schema(operation_id=get, summary=f"Read {what}", responses={200: answer, **ANSWERS}),
        patch=extend_schema(
            operation_id=update,
            summary=f"WorkloadChange {what}",
            request=change_schema(kind),
            responses={202: answer, **ANSWERS},
        ),
        delete=extend_schema(operation_id=remove, summary=f"Delete {what}", responses={202: AcceptedSchema, **ANSWERS}),
    )


@_documented("inferences", "get_inference", "update_inference_spec", "delete_inference", "an inference")
class InferenceDetail(Served):
    """An inference by id."""

    kind = "inferences"


@_documented(
    "distributed-inferences",
    "get_distributed_inference",
    "update_distributed_inference_spec",
    "delete_distributed_inference",
    "a distributed inference",
)
class DistributedInferenceDetail(Served):
    """A distributed inference by id."""

    kind = "distributed-inferences"


def changed(kind: str, workload: Workload, requested: Mapping[str, Any], actor: Actor) -> Workload:
    """The workload with these fields of its `spec` as asked, the others as the locked row has them; null clears one.

    Refused at the field.
    """
    with locked(workload):
        return _changed(kind, workload, requested, actor)


def _changed(kind: str, workload: Workload, requested: Mapping[str, Any], actor: Actor) -> Workload:
    now = effective_spec(workload)
    named = {name: value for name, value in requested.items() if value != now.get(name)}
    with refusals(project=workload.project, actor=actor, workload=workload):
        _check_fixed_fields(named)
    priority = named.pop("priorityClass", None)
    wanted = WorkloadChange(priority=priority)
    if named:
        wanted = replace(_reshaped(kind, workload, named, actor), priority=priority)
    try:
        return change(workload=workload, wanted=wanted, actor=actor)
    except (BadRequest, ValidationFailed) as error:
        raise _at_spec(error) from error


def _reshaped(kind: str, workload: Workload, named: Mapping[str, Any], actor: Actor) -> WorkloadChange:
    """What was sent, with the named fields over it; of what came by another door, its object with another count."""
    sent, fields = native_body(workload), [f"/spec/{name}" for name in named]
    if not sent or workload.type.name != TYPES[kind]:
        return WorkloadChange(*read_scaled(workload=workload, kind=kind, spec=named, actor=actor), fields=fields)
    spec_now = {**_without_counts(sent["spec"], named), **named}
    body = {**sent, **remaining_sources(sent, named), "spec": spec_now}
    spec = read_body(kind, body, workload.project, actor, workload=workload).named(workload.name)
    return WorkloadChange(spec, body, fields=fields)


def _without_counts(sent: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What was sent, but for the number of replicas where that is given in one of its two ways."""
    again = COUNTS if COUNTS & named.keys() else frozenset[str]()
    return {name: value for name, value in sent.items() if name not in again}


def _check_fixed_fields(named: Mapping[str, Any]) -> None:
    problems = [Problem(f"/spec/{name}", "fixed", FIXED[name]) for name in FIXED if name in named]
    if problems:
        raise ValidationFailed(problems[0].message, code="fixed", problems=problems)


def _at_spec(error: RungError) -> RungError:
    """At fields of the body: those of the change are named already."""
    return error if error.code == "pods_run" else at_native_fields(error)


KIND = "nim-services"


class NimServices(NativeFields):
    """A NIM service comes in."""

    @operation("create_nim_service", "Submit a NIM service", NimServiceSchema, 202, request=NimServiceCreate)
    def post(self, request: Request) -> Response:
        """Accepted with the effective values; refused at its fields."""
        actor = actor_of(request)
        with cached_reads(reads_of(request)):
            sent = self._body(request.data, actor)
            metadata = sent["metadata"]
            project = project_named(actor, metadata["projectId"], at="/metadata")
            body = {**metadata, "spec": sent["spec"]}
            spec = self.read(KIND, body, project, actor)
            workload = self.taken(request, spec, project, body)
        return Response(nim_json(workload) | self.forecast_body, status=202)

    def _body(self, data: Any, actor: Actor) -> dict[str, Any]:
        """As its schema has it. Its refusal also names what else is wrong with it."""
        try:
            return validated_body(NimServiceCreate, data)
        except ValidationFailed as error:
            placed = data.get("metadata") if isinstance(data, dict) else None
            raise_with(error, lambda: self.check_fields(KIND, data, placed, actor, at="/metadata"))


class NimServiceDetail(Route):
    """A NIM service by id."""

    access = {"GET": RoutePermission("view_project", "project"), "PATCH": RoutePermission("manage_workload", "project")}

    @operation("get_nim_service_by_id", "Read a NIM service", NimServiceSchema, also=(409, 413, 422))
    def get(self, request: Request, nim_service_id: str) -> Response:
        """As it was sent, with the effective values; 404 if it is absent, not yours, or of another kind."""
        return Response(nim_json(of_kind(actor_of(request), KIND, nim_service_id)))

    @operation("update_nim_service_spec", "Change a NIM service", NimServiceSchema, 202, request=change_schema(KIND))
    def patch(self, request: Request, nim_service_id: str) -> Response:
        """Accepted: replicas and priority at any time, the rest while it is suspended."""
        actor = actor_of(request)
        workload = of_kind(actor, KIND, nim_service_id)
        requested = validated_body(change_schema(KIND), request.data).get("spec") or {}
        return Response(nim_json(changed(KIND, workload, requested, actor)), status=202)


def nim_json(workload: Workload) -> dict[str, Any]:
    group, _, version = str(workload.spec["api_version"]).rpartition("/")
    return {
        "metadata": metadata_v2(workload, gvk=(group, version, str(workload.spec["kind"]))),
        "desiredPhase": workload.desired_phase,
        "spec": effective_spec(workload),
    }
