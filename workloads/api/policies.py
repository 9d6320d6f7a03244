"""Policies v2: what a scope presets and demands of native workloads. Manifests are exempt, as in Run:ai."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.attempts import attempt
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import Absent
from portal.core.filtering import flag_in
from portal.core.http import actor_of
from portal.core.marks import steady
from portal.core.routes import Route, Rule
from tenants.api.authentication import marks_of
from workloads.api.policy_schemas import SCOPES, NewPolicy, PoliciesSchema, PolicyChange, PolicySchema
from workloads.api.policy_shapes import entry_json, holding_json
from workloads.api.scopes import missing, owner_of_meta, word_in
from workloads.models import Policy
from workloads.policies import reaching_among
from workloads.policy_rules import Kind, Scope
from workloads.selectors.policies import holding_at, visible_policies
from workloads.selectors.scopes import owner_at
from workloads.services.policies import Target, change_policy, lift_policy, set_policy
from workloads.twins import POLICIES

WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
MANAGED: Final = Rule("manage_project", "somewhere")
PLACE: Final = [
    OpenApiParameter("scope", str, required=True, enum=SCOPES),
    OpenApiParameter("clusterId", str),
    OpenApiParameter("departmentId", str),
    OpenApiParameter("projectId", str),
]
CHECKED: Final = [
    OpenApiParameter("validateOnly", bool, description="Check and answer what it would be; nothing is kept."),
    OpenApiParameter("approveClusterDeletion", bool, description="Accepted: Rung's clusters keep no policies."),
]


class PolicyKind:
    """Path converter: the kinds of policies."""

    regex = "|".join(POLICIES.values())

    def to_python(self, value: str) -> Kind:
        """The kind of a word."""
        return next(kind for kind, word in POLICIES.items() if word == value)

    def to_url(self, value: Kind) -> str:
        """The word of a kind."""
        return POLICIES[value]


class Policies(Route):
    """Policies of all kinds and scopes."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="list_policies",
        summary="List policies",
        parameters=[
            OpenApiParameter("workloadType", str),
            OpenApiParameter("scope", str, enum=SCOPES),
            *PLACE[1:],
            OpenApiParameter("includeFallbackPolicies", bool, description="Accepted: Rung has none."),
        ],
        responses={200: PoliciesSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """What the caller may see, as the query narrows it."""
        query = request.query_params
        flag_in(query, "includeFallbackPolicies")
        wanted = {column: query[name] for name, column in _COLUMN.items() if query.get(name)}
        wanted["kind"] = word_in(query, "workloadType", [str(each) for each in Kind])
        wanted["scope"] = word_in(query, "scope", SCOPES)
        with steady(marks_of(request)):
            rows = list(visible_policies(actor_of(request)))
            found = [row for row in rows if all(str(getattr(row, of)) == key for of, key in wanted.items() if key)]
            reaching = reaching_among(rows)
            return Response({"policies": [entry_json(row, reaching(row)) for row in found]})


class OnePolicy(Route):
    """The policy of one kind at one scope."""

    access = {"GET": Rule(), "PUT": MANAGED, "PATCH": MANAGED, "DELETE": MANAGED}

    @extend_schema(
        operation_id="get_policy_v2",
        summary="Read a policy and what holds",
        description="`meta` and `policy` are null where only wider scopes have policies; 404 where none has.",
        parameters=PLACE,
        responses={200: PolicySchema, **REFUSALS},
    )
    def get(self, request: Request, kind: Kind) -> Response:
        """The scope's own policy, and the effective one with the source of each rule."""
        holding = holding_at(_named(request, kind).owner, kind)
        if not holding.rows:
            raise Absent
        return Response(holding_json(holding))

    @extend_schema(
        operation_id="overwrite_policy_v2",
        summary="Set a policy",
        description="Refused at its pointer: whatever Rung would not hold people to.",
        parameters=CHECKED,
        request=NewPolicy,
        responses={200: PolicySchema, **WRITES},
    )
    def put(self, request: Request, kind: Kind) -> Response:
        """Made, or put in the place of the one that is there."""
        actor, body = actor_of(request), checked(NewPolicy, request.data)
        target = _target(actor, kind, body["meta"])
        named = {"target": target, "name": body["meta"].get("name", ""), "document": body["policy"]}
        return _done(request, target, partial(set_policy, **named, actor=actor))

    @extend_schema(
        operation_id="update_policy_v2",
        summary="Change a policy",
        description="Absent fields stay, null takes away; `reset` clears default and rule of a field first.",
        parameters=CHECKED,
        request=PolicyChange,
        responses={200: PolicySchema, **WRITES},
    )
    def patch(self, request: Request, kind: Kind) -> Response:
        """Changed; 404 where there is none."""
        actor, body = actor_of(request), checked(PolicyChange, request.data)
        target = _target(actor, kind, body["meta"])
        named = {"target": target, "name": body["meta"].get("name"), "document": body.get("policy")}
        return _done(request, target, partial(change_policy, **named, reset=body.get("reset", []), actor=actor))

    @extend_schema(
        operation_id="delete_policy_v2",
        summary="Take a policy away",
        parameters=[*PLACE, CHECKED[1]],
        responses={204: None, **WRITES},
    )
    def delete(self, request: Request, kind: Kind) -> Response:
        """Gone; those of wider scopes go on holding."""
        lift_policy(target=_named(request, kind), actor=actor_of(request))
        return Response(status=204)


_COLUMN: Final = {"clusterId": "cluster_id", "departmentId": "department_id", "projectId": "project_id"}


def _done(request: Request, target: Target, work: Callable[[], Policy]) -> Response:
    """What holds after the work; with `validateOnly` the work is taken back."""
    if not flag_in(request.query_params, "validateOnly"):
        work()
        return Response(holding_json(holding_at(target.owner, target.kind)))
    with attempt():
        work()
        body = holding_json(holding_at(target.owner, target.kind))
        transaction.set_rollback(True)
    return Response(body)


def _named(request: Request, kind: Kind) -> Target:
    """What the query names; Absent where it is absent or foreign."""
    query = request.query_params
    scope = Scope(word_in(query, "scope", SCOPES) or missing("/scope"))
    key = query.get(f"{scope}Id", "")
    if scope is not Scope.TENANT and not key:
        missing(f"/{scope}Id")
    try:
        return Target(kind, owner_at(actor_of(request), scope, key))
    except LookupError:
        raise Absent from None


def _target(actor: Actor, kind: Kind, meta: Mapping[str, Any]) -> Target:
    return Target(kind, owner_of_meta(actor, meta))
