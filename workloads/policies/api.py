"""REST of policies (v2), and scopes as bodies and queries name them. Policies do not bind manifests."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import flag_in
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission
from portal.kit.api.serializers import operation, validated_body
from portal.kit.db.read_cache import cached_reads
from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import BadRequest, NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import planned_change
from portal.kit.security.request_identity import actor_of
from tenants.access.api.authentication import reads_of
from workloads.policies.models import Owner, Policy
from workloads.policies.rules.merge import PolicyKind, Scope
from workloads.policies.selectors import effective_policy_at, owner_at, reaching_among, visible_policies
from workloads.policies.serializers import (
    POLICIES,
    SCOPES,
    PoliciesSchema,
    PolicyChange,
    PolicyCreate,
    PolicySchema,
    effective_policy_json,
    entry_json,
)
from workloads.policies.services import (
    PolicyTarget,
    change_policy,
    changed_policy,
    delete_policy,
    policy_change,
    set_policy,
)


def owner_in_body(actor: Actor, scope: Scope, key: object, *, at: str) -> Owner:
    """Whose scope a body names by its id at the pointer; absent and foreign are refused alike, at the field."""
    if scope is not Scope.TENANT and key is None:
        missing(at)
    try:
        return owner_at(actor, scope, str(key))
    except LookupError:
        message = f"{at.rpartition('/')[2]} is not a {scope} you can see."
        raise ValidationFailed.at(at, "unknown_id", message) from None


def owner_of_meta(actor: Actor, meta: Mapping[str, Any]) -> Owner:
    """The same of Run:ai's `{scope, projectId | departmentId | clusterId}`."""
    scope = Scope(meta["scope"])
    return owner_in_body(actor, scope, meta.get(f"{scope}Id"), at=f"/meta/{scope}Id")


def word_in(query: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """One of the words, however their client writes it: `Scope.PROJECT`, `DistributedInference`; empty for none."""
    requested = query.get(name, "").rpartition(".")[2].replace("_", "").lower()
    found = next((each for each in known if each.lower() == requested), "")
    if requested and not found:
        raise BadRequest.at(f"/{name}", "out_of_range", f"{name} is one of {', '.join(known)}.", allowed=known)
    return found


def missing(pointer: str) -> str:
    """Refuse what lacks a field that it needs."""
    raise BadRequest.at(pointer, "required", f"{pointer.rpartition('/')[2]} is needed.")


MANAGED: Final = RoutePermission("manage_project", "somewhere")
PLACE: Final = [
    OpenApiParameter("scope", str, required=True, enum=SCOPES),
    OpenApiParameter("clusterId", str),
    OpenApiParameter("departmentId", str),
    OpenApiParameter("projectId", str),
]
CHECKED: Final = [
    OpenApiParameter("validateOnly", bool, description="Validate and return the result without saving."),
    OpenApiParameter("approveClusterDeletion", bool, description="Accepted: Rung's clusters keep no policies."),
]


class PolicyKindConverter:
    """Path converter: the kinds of policies."""

    regex = "|".join(POLICIES.values())

    def to_python(self, value: str) -> PolicyKind:
        return next(kind for kind, word in POLICIES.items() if word == value)

    def to_url(self, value: PolicyKind) -> str:
        return POLICIES[value]


class Policies(Route):
    """Policies of all kinds and scopes."""

    access = {"GET": RoutePermission()}

    @operation(
        "list_policies",
        "List policies",
        PoliciesSchema,
        parameters=[
            OpenApiParameter("workloadType", str),
            OpenApiParameter("scope", str, enum=SCOPES),
            *PLACE[1:],
            OpenApiParameter("includeFallbackPolicies", bool, description="Accepted: Rung has none."),
        ],
    )
    def get(self, request: Request) -> Response:
        """What the caller may see, as the query narrows it."""
        query = request.query_params
        flag_in(query, "includeFallbackPolicies")
        wanted = {column: query[name] for name, column in _COLUMN.items() if query.get(name)}
        wanted["kind"] = word_in(query, "workloadType", [str(each) for each in PolicyKind])
        wanted["scope"] = word_in(query, "scope", SCOPES)
        with cached_reads(reads_of(request)):
            rows = list(visible_policies(actor_of(request)))
            found = [row for row in rows if all(str(getattr(row, of)) == key for of, key in wanted.items() if key)]
            reaching = reaching_among(rows)
            return Response({"policies": [entry_json(row, reaching(row)) for row in found]})


class PolicyDetail(Route):
    """The policy of one kind at one scope."""

    access = {"GET": RoutePermission(), "PUT": MANAGED, "PATCH": MANAGED, "DELETE": MANAGED}

    @operation(
        "get_policy_v2",
        "Read a policy and the effective policy",
        PolicySchema,
        description="`meta` and `policy` are null where only wider scopes have policies; 404 where none has.",
        parameters=PLACE,
    )
    def get(self, request: Request, kind: PolicyKind) -> Response:
        """The scope's own policy, and the effective one with the source of each rule."""
        holding = effective_policy_at(_named(request, kind).owner, kind)
        if not holding.rows:
            raise NotFound
        return Response(effective_policy_json(holding))

    @operation(
        "overwrite_policy_v2",
        "Add a policy",
        PolicySchema,
        description="Rules that Rung cannot enforce are rejected, with their pointer.",
        parameters=CHECKED,
        request=PolicyCreate,
    )
    def put(self, request: Request, kind: PolicyKind) -> Response:
        """Made, or put in the place of the one that is there."""
        actor, body = actor_of(request), validated_body(PolicyCreate, request.data)
        target = _target(actor, kind, body["meta"])
        named = {"target": target, "name": body["meta"].get("name", ""), "document": body["policy"]}
        return _done(request, target, partial(set_policy, **named, actor=actor))

    @operation(
        "update_policy_v2",
        "Change a policy",
        PolicySchema,
        description="Absent fields stay, null removes; `reset` first clears the default and rule of a field.",
        parameters=CHECKED,
        request=PolicyChange,
    )
    def patch(self, request: Request, kind: PolicyKind) -> Response:
        """Changed; 404 where there is none."""
        actor, body = actor_of(request), validated_body(PolicyChange, request.data)
        target = _target(actor, kind, body["meta"])
        named = {"target": target, "name": body["meta"].get("name"), "document": body.get("policy")}
        return _done(request, target, partial(change_policy, **named, reset=body.get("reset", []), actor=actor))

    def planned(self, request: Request, kind: PolicyKind) -> PlannedWrite:
        """The policy that the body makes; without a body: its removal."""
        if request.method == "DELETE":
            return "policy", policy_change(_named(request, kind), "", None)
        form = PolicyCreate if request.method == "PUT" else PolicyChange
        body = validated_body(form, request.data)
        target = _target(actor_of(request), kind, body["meta"])
        name, document = body["meta"].get("name"), body.get("policy")
        if request.method == "PATCH":
            name, document = changed_policy(target, document, name=name, reset=body.get("reset", []))
        return "policy", policy_change(target, name or "", document)

    def current(self, request: Request, kind: PolicyKind) -> Response:
        """Of the scope that the query names, or the body."""
        if request.method == "DELETE":
            return self.get(request, kind)
        place = validated_body(PolicyCreate if request.method == "PUT" else PolicyChange, request.data)["meta"]
        holding = effective_policy_at(_target(actor_of(request), kind, place).owner, kind)
        if not holding.rows:
            raise NotFound
        return Response(effective_policy_json(holding))

    @operation("delete_policy_v2", "Delete a policy", status=204, parameters=[*PLACE, CHECKED[1]])
    def delete(self, request: Request, kind: PolicyKind) -> Response:
        """Gone; those of wider scopes go on holding."""
        delete_policy(target=_named(request, kind), actor=actor_of(request))
        return Response(status=204)


_COLUMN: Final = {"clusterId": "cluster_id", "departmentId": "department_id", "projectId": "project_id"}


def _done(request: Request, target: PolicyTarget, work: Callable[[], Policy]) -> Response:
    """What holds after the work; with `validateOnly` the work is taken back."""
    if not flag_in(request.query_params, "validateOnly"):
        work()
        return Response(effective_policy_json(effective_policy_at(target.owner, target.kind)))
    with rollback_scope(), planned_change():
        work()
        body = effective_policy_json(effective_policy_at(target.owner, target.kind))
        transaction.set_rollback(True)
    return Response(body)


def _named(request: Request, kind: PolicyKind) -> PolicyTarget:
    """What the query names; Absent where it is absent or foreign."""
    query = request.query_params
    scope = Scope(word_in(query, "scope", SCOPES) or missing("/scope"))
    key = query.get(f"{scope}Id", "")
    if scope is not Scope.TENANT and not key:
        missing(f"/{scope}Id")
    try:
        return PolicyTarget(kind, owner_at(actor_of(request), scope, key))
    except LookupError:
        raise NotFound from None


def _target(actor: Actor, kind: PolicyKind, meta: Mapping[str, Any]) -> PolicyTarget:
    return PolicyTarget(kind, owner_of_meta(actor, meta))
