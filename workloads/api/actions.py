"""Suspend, resume, retry, delete: a batch of any type."""

import uuid
from collections.abc import Callable
from typing import Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import RungError
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.schemas import Batch, BatchResult
from workloads.models import Workload
from workloads.selectors import workload_or_404
from workloads.services import lifecycle

ACTIONS: Final[dict[str, Callable[..., Workload]]] = {
    "suspend": lifecycle.stop,
    "resume": lifecycle.resume,
    "retry": lifecycle.retry,
    "delete": lifecycle.delete,
}


class BatchAction(Route):
    """One action on up to a hundred workloads of any type."""

    access = {"POST": Rule("manage_workload", "somewhere")}

    @extend_schema(
        operation_id="batch_workloads",
        summary="Suspend, resume, retry or delete several workloads",
        request=Batch,
        responses={200: BatchResult, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """Each on its own: refusals are listed beside it, unknown ids included. What is met already succeeds.

        `retry` is beyond Run:ai: it hands workloads that failed to apply to their clusters again.
        """
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
