"""Suspend, resume, delete: one by one on the native routes, or a batch of any type."""

import uuid
from collections.abc import Callable
from typing import ClassVar, Final

from django.urls.converters import StringConverter
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, AcceptedSchema, ErrorSchema, checked
from portal.core.errors import Absent, RungError
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.schemas import Batch, BatchResult
from workloads.models import Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle

KINDS: Final = {
    "workspaces": frozenset({"Workspace"}),
    "trainings": frozenset({"Training"}),
    "distributed": frozenset({"Distributed"}),
    "inferences": frozenset({"Inference", "NIMInference", "HuggingFaceInference"}),
    "distributed-inferences": frozenset({"DistributedInference"}),
}
ACTIONS: Final[dict[str, Callable[..., Workload]]] = {
    "suspend": lifecycle.stop,
    "resume": lifecycle.resume,
    "delete": lifecycle.delete,
}
ANSWERS: Final = {202: AcceptedSchema, 409: ErrorSchema, 422: ErrorSchema, **REFUSALS}


class NativeKind(StringConverter):
    """The native kinds that have routes of their own."""

    regex = "|".join(KINDS)


class StoppableKind(StringConverter):
    """Those of them that can be suspended."""

    regex = "workspaces|trainings|distributed"


class KindAction(Route):
    """One action on one native workload, found only under its own kind."""

    action: ClassVar[str]

    def act(self, request: Request, kind: str, workload_id: str) -> Response:
        """Do it, or answer 404 where the id belongs to another kind."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        if workload.type.name not in KINDS[kind]:
            raise Absent
        ACTIONS[self.action](workload=workload, actor=actor)
        return Response({"code": 202, "message": f"{self.action} of {workload.name} was accepted."}, status=202)


class Suspend(KindAction):
    """Stop a workload and keep its history."""

    access = {"POST": Rule("manage_workload", "project")}

    action = "suspend"

    @extend_schema(
        operation_id="suspend_workload", summary="Suspend a native workload", request=None, responses=ANSWERS
    )
    def post(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted; 409 when it has ended or is stopped already."""
        return self.act(request, kind, workload_id)


class Resume(KindAction):
    """Start a suspended workload again."""

    access = {"POST": Rule("manage_workload", "project")}

    action = "resume"

    @extend_schema(operation_id="resume_workload", summary="Resume a native workload", request=None, responses=ANSWERS)
    def post(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted; 409 unless it is stopped."""
        return self.act(request, kind, workload_id)


class Removal(KindAction):
    """Delete a native workload."""

    access = {"DELETE": Rule("manage_workload", "project")}

    action = "delete"

    @extend_schema(operation_id="delete_native_workload", summary="Delete a native workload", responses=ANSWERS)
    def delete(self, request: Request, kind: str, workload_id: str) -> Response:
        """Accepted; twice is once."""
        return self.act(request, kind, workload_id)


class BatchAction(Route):
    """One action on up to a hundred workloads of any type."""

    access = {"POST": Rule("manage_workload", "somewhere")}

    @extend_schema(
        operation_id="batch_workloads",
        summary="Suspend, resume or delete several workloads",
        request=Batch,
        responses={200: BatchResult, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """Each on its own: what fails is told apart, unknown ids included."""
        wanted = checked(Batch, request.data)
        actor, done, failed = actor_of(request), [], []
        for workload_id in wanted["ids"]:
            refusal = _try(wanted["action"], workload_id, actor)
            if refusal is None:
                done.append(workload_id)
            else:
                failed.append({"id": workload_id, "code": refusal.status, "message": refusal.message})
        return Response({"id": str(uuid.uuid4()), "succeeded": done, "failed": failed})


def _try(action: str, workload_id: str, actor: Actor) -> RungError | None:
    try:
        ACTIONS[action](workload=workload_or_404(actor, workload_id), actor=actor)
    except RungError as refusal:
        return refusal
    return None
