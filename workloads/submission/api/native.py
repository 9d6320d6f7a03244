"""Run:ai's native workloads (v1): submit, read, delete, suspend and resume each kind, and change what serves.

A refused field is 400 here, as in Run:ai's contract, with `complianceIssues` beside Rung's `errors`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.urls.converters import StringConverter
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import AcceptedSchema, operation, validated_body
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import BadRequest, Conflict, NotFound, RungError, ValidationFailed, raise_with
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api.authentication import reads_of
from tenants.organisation.models import Project
from workloads.intake import NativeBody, ReadSpec, WorkloadSpec
from workloads.intake.rules.native.reader import native_pointer
from workloads.intake.services import SubmissionRefused, read_native_body
from workloads.lifecycle.api.workloads import ACTIONS
from workloads.policies.serializers import issue_json
from workloads.state.models import Workload
from workloads.state.selectors.workloads import workload_or_404
from workloads.submission.api.submissions import (
    ANSWERS,
    NATIVE_TYPES,
    PLACEHOLDER,
    Submission,
    from_template,
    names_project,
    naming_sources,
    project_named,
    read_on_cluster,
    relocated_error,
)
from workloads.submission.selectors import check_rest
from workloads.submission.serializers import SubmissionErrorSchema, native_json, native_schema, new_schema

REFUSED: Final = {**ANSWERS, 400: SubmissionErrorSchema}


class NativeFields(Submission):
    """What comes in has native fields."""

    def read(self, kind: str, body: Mapping[str, Any], project: Project, actor: Actor) -> WorkloadSpec:
        """What a body asks for. Its refusal also names what the project refuses of the rest of it."""
        try:
            return read_native_body(native=native_of(kind, body), project=project, actor=actor)
        except SubmissionRefused as error:
            rest = error.read
            raise_with(error, lambda: self.check_rest(rest, project))

    def check_rest(self, read: ReadSpec | None, project: Project) -> None:
        """What the project refuses, at native fields."""
        try:
            check_rest(read, project)
        except (BadRequest, ValidationFailed, Conflict) as error:
            raise at_native_fields(error) from error

    def check_fields(self, kind: str, sent: object, placed: object, actor: Actor, *, at: str = "") -> None:
        """The fields of a body whose shape is refused; those of a template are not known then.

        `placed`: the part of it, found below `at`, that names its project.
        """
        if not (isinstance(sent, dict) and isinstance(placed, dict)) or sent.get("templateId") is not None:
            return
        if not names_project(placed):
            return
        project = project_named(actor, str(placed["projectId"]), at=at)
        parts = {name: sent.get(name) for name in ("spec", "masterSpec")}
        shaped = {name: part for name, part in parts.items() if isinstance(part, dict)}
        spec = self.read(kind, {"name": PLACEHOLDER, **shaped}, project, actor)
        self.check_rest(ReadSpec(spec), project)

    def taken(self, request: Request, spec: WorkloadSpec, project: Project, raw: Mapping[str, Any]) -> Workload:
        """Submitted; what is refused then is said of the native fields."""
        try:
            return self.accept(request, spec=spec, project=project, raw=raw)
        except (BadRequest, ValidationFailed, Conflict) as error:
            raise at_native_fields(error) from error


class NativeSubmission(NativeFields):
    """A native workload comes in."""

    kind: ClassVar[str]

    def post(self, request: Request) -> Response:
        """Accepted with the effective values; refused at its fields."""
        actor = actor_of(request)
        with cached_reads(reads_of(request)):
            body = self._body(request, actor)
            project = project_named(actor, body["projectId"])
            filled = from_template(self.kind, body, project)
            with naming_sources(filled):
                wanted = {**body, **filled}
                spec = read_on_cluster(
                    project,
                    body.get("clusterId"),
                    read=lambda: self.read(self.kind, wanted, project, actor),
                    check=self.check_rest,
                )
                workload = self.taken(request, spec, project, {**dict(request.data), **filled})
        return Response(native_json(workload) | self.forecast_body, status=202)

    def _body(self, request: Request, actor: Actor) -> dict[str, Any]:
        """The body as its schema has it. Its refusal also names what else is wrong with it."""
        try:
            return validated_body(new_schema(self.kind), request.data)
        except ValidationFailed as error:
            raise_with(error, lambda: self.check_fields(self.kind, request.data, request.data, actor))

    def handle_exception(self, exc: Exception) -> Response:
        """A refused field is 400 here."""
        return super().handle_exception(as_bad_request(exc) if isinstance(exc, ValidationFailed) else exc)


def _documented(kind: str, operation: str, what: str) -> Any:
    """`operation`: as the client's method is called."""
    answers = {202: native_schema(kind), **REFUSED}
    about = "With `dryRun=true` the response includes a `forecast` (beyond Run:ai)."
    return extend_schema_view(
        post=extend_schema(
            operation_id=operation,
            summary=f"Submit {what}",
            description=about,
            request=new_schema(kind),
            responses=answers,
        )
    )


@_documented("workspaces", "create_workspace1", "a workspace")
class Workspaces(NativeSubmission):
    """Interactive work: one pod that runs until it is stopped."""

    kind = "workspaces"


@_documented("trainings", "create_training1", "a training")
class Trainings(NativeSubmission):
    """A job that ends."""

    kind = "trainings"


@_documented("distributed", "create_distributed", "a distributed training")
class DistributedTrainings(NativeSubmission):
    """A gang: all of its pods start together."""

    kind = "distributed"


@_documented("inferences", "create_inference1", "an inference")
class Inferences(NativeSubmission):
    """A model that is served by a fixed number of replicas."""

    kind = "inferences"


@_documented("distributed-inferences", "create_distributed_inference", "a distributed inference")
class DistributedInferences(NativeSubmission):
    """Replicas of a leader with its workers."""

    kind = "distributed-inferences"


class StoppableKind(StringConverter):
    """The native kinds that can be suspended by a route of their own."""

    regex = "workspaces|trainings|distributed"


class NativeWorkloadDetail(Route):
    """A native workload by id, found only under its own kind."""

    access = {
        "GET": RoutePermission("view_project", "project"),
        "DELETE": RoutePermission("manage_workload", "project"),
    }

    @operation("get_native_workload", "Read a native workload", native_schema("distributed"), also=(409, 413, 422))
    def get(self, request: Request, kind: str, workload_id: str) -> Response:
        """As it was sent, with the effective values; 404 if it is absent, not yours, or of another kind."""
        return Response(native_json(of_kind(actor_of(request), kind, workload_id)))

    @operation("delete_native_workload", "Delete a native workload", AcceptedSchema, 202)
    def delete(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted; twice is once."""
        return act("delete", actor_of(request), kind, workload_id)


class Suspend(Route):
    """Stop a workload and keep its history."""

    access = {"POST": RoutePermission("manage_workload", "project")}

    @operation("suspend_workload", "Suspend a native workload", AcceptedSchema, 202)
    def post(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted, also when it has ended or is stopped already; 409 when it is deleted."""
        return act("suspend", actor_of(request), kind, workload_id)


class Resume(Route):
    """Start a suspended workload again."""

    access = {"POST": RoutePermission("manage_workload", "project")}

    @operation("resume_workload", "Resume a native workload", AcceptedSchema, 202)
    def post(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted, also when it runs already; 409 when it has ended or is deleted."""
        return act("resume", actor_of(request), kind, workload_id)


class Retry(Route):
    """Hand a workload that failed to apply to its cluster again."""

    access = {"POST": RoutePermission("manage_workload", "project")}

    @operation("retry_workload", "Retry a native workload (beyond Run:ai)", AcceptedSchema, 202)
    def post(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted, also when it was retried already; 409 when it did not fail to apply or is deleted."""
        return act("retry", actor_of(request), kind, workload_id)


def act(action: str, actor: Actor, kind: str, workload_id: str) -> Response:
    """One action on one native workload."""
    workload = of_kind(actor, kind, workload_id)
    ACTIONS[action](workload=workload, actor=actor)
    return Response({"code": 202, "message": f"{action} of {workload.name} was accepted."}, status=202)


def of_kind(actor: Actor, kind: str, workload_id: str) -> Workload:
    """The workload. NotFound where the id belongs to another kind."""
    workload = workload_or_404(actor, workload_id)
    if workload.type.name not in NATIVE_TYPES[kind]:
        raise NotFound
    return workload


def read_body(
    kind: str, body: Mapping[str, Any], project: Project, actor: Actor, *, workload: Workload
) -> WorkloadSpec:
    """What a native body asks for; `workload` is to become it."""
    return read_native_body(native=native_of(kind, body), project=project, actor=actor, workload=workload)


def native_of(kind: str, body: Mapping[str, Any]) -> NativeBody:
    """A body whose shape is known to be right."""
    return NativeBody(
        kind=kind,
        name=body["name"],
        spec=body.get("spec") or {},
        prefix=bool(body.get("useGivenNameAsPrefix")),
        master=body.get("masterSpec"),
        master_same=body.get("masterSpecSameAsWorker"),
    )


def at_native_fields(error: RungError) -> RungError:
    """What the service says of the object, said of the native body."""
    return relocated_error(error, native_pointer)


class NativeRefused(BadRequest):
    """A field of a native submission is refused: 400 with `complianceIssues`, as Run:ai's clients read it."""

    @property
    def beside(self) -> Mapping[str, Any]:
        return {"complianceIssues": [issue_json(problem) for problem in self.problems]}


def as_bad_request(error: ValidationFailed) -> RungError:
    """A refused field is 400. What is about no field stays what it is."""
    if not any(each.pointer for each in error.problems):
        return error
    return NativeRefused(error.message, code=error.code, problems=error.problems)
