"""What serves can be changed after it was submitted: `PATCH` of inferences and distributed inferences."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import AcceptedSchema, checked
from portal.core.errors import BadRequest, Problem, Refused, RungError
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from workloads.api.native import act, at_native_fields, of_kind, read_body
from workloads.api.native_schemas import change_schema, native_schema
from workloads.api.native_shapes import effective_spec, native_body, native_json
from workloads.api.submitting import ANSWERS
from workloads.api.templated import still_said
from workloads.intake.native import TYPES
from workloads.intake.native.reader import COUNTS
from workloads.models import Workload
from workloads.services.changing import Change, change
from workloads.services.locking import locked
from workloads.services.reading import read_scaled, refusals

FIXED = {
    "preemptibility": "It is resolved when a workload is submitted and stays: submit another one.",
    "nodePools": "They are chosen when a workload is submitted: submit another one.",
    "category": "It is that of its type.",
}


class Served(Route):
    """One workload that serves."""

    kind: ClassVar[str]
    access = {
        "GET": Rule("view_project", "project"),
        "PATCH": Rule("manage_workload", "project"),
        "DELETE": Rule("manage_workload", "project"),
    }

    def found(self, request: Request, ids: Mapping[str, str]) -> Workload:
        """The workload of the address."""
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
        asked = checked(change_schema(self.kind), request.data).get("spec") or {}
        return Response(native_json(changed(self.kind, workload, asked, actor)), status=202)


def _documented(kind: str, get: str, update: str, remove: str, what: str) -> Any:
    """The operations as the client's methods are called."""
    answer = native_schema(kind)
    return extend_schema_view(
        get=extend_schema(operation_id=get, summary=f"Read {what}", responses={200: answer, **ANSWERS}),
        patch=extend_schema(
            operation_id=update,
            summary=f"Change {what}",
            request=change_schema(kind),
            responses={202: answer, **ANSWERS},
        ),
        delete=extend_schema(operation_id=remove, summary=f"Delete {what}", responses={202: AcceptedSchema, **ANSWERS}),
    )


@_documented("inferences", "get_inference", "update_inference_spec", "delete_inference", "an inference")
class OneInference(Served):
    """An inference by id."""

    kind = "inferences"


@_documented(
    "distributed-inferences",
    "get_distributed_inference",
    "update_distributed_inference_spec",
    "delete_distributed_inference",
    "a distributed inference",
)
class OneGroup(Served):
    """A distributed inference by id."""

    kind = "distributed-inferences"


def changed(kind: str, workload: Workload, asked: Mapping[str, Any], actor: Actor) -> Workload:
    """The workload with these fields of its `spec` as asked, the others as the locked row has them; null clears one.

    Refused at the field.
    """
    with locked(workload):
        return _changed(kind, workload, asked, actor)


def _changed(kind: str, workload: Workload, asked: Mapping[str, Any], actor: Actor) -> Workload:
    now = effective_spec(workload)
    named = {name: value for name, value in asked.items() if value != now.get(name)}
    with refusals(project=workload.project, actor=actor, workload=workload):
        _refuse_fixed(named)
    priority = named.pop("priorityClass", None)
    wanted = Change(priority=priority)
    if named:
        wanted = replace(_reshaped(kind, workload, named, actor), priority=priority)
    try:
        return change(workload=workload, wanted=wanted, actor=actor)
    except (BadRequest, Refused) as error:
        raise _at_spec(error) from error


def _reshaped(kind: str, workload: Workload, named: Mapping[str, Any], actor: Actor) -> Change:
    """What was sent, with the named fields over it; of what came by another door, its object with another count."""
    sent, fields = native_body(workload), [f"/spec/{name}" for name in named]
    if not sent or workload.type.name != TYPES[kind]:
        return Change(*read_scaled(workload=workload, kind=kind, spec=named, actor=actor), fields=fields)
    spec_now = {**_without_counts(sent["spec"], named), **named}
    body = {**sent, **still_said(sent, named), "spec": spec_now}
    spec = read_body(kind, body, workload.project, actor, workload=workload).named(workload.name)
    return Change(spec, body, fields=fields)


def _without_counts(sent: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What was sent, but for the number of replicas where that is named anew in one of its two ways."""
    again = COUNTS if COUNTS & named.keys() else frozenset[str]()
    return {name: value for name, value in sent.items() if name not in again}


def _refuse_fixed(named: Mapping[str, Any]) -> None:
    problems = [Problem(f"/spec/{name}", "fixed", FIXED[name]) for name in FIXED if name in named]
    if problems:
        raise Refused(problems[0].message, code="fixed", problems=problems)


def _at_spec(error: RungError) -> RungError:
    """At fields of the body: those of the change are named already."""
    return error if error.code == "pods_run" else at_native_fields(error)
