"""REST of access rules: list, filter, create and delete them, one or many at a time."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import (
    Column,
    as_number,
    as_text,
    as_time,
    filters,
    flag_in,
    id_number,
    ordering,
    without_cursor,
)
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import (
    FILTERS,
    PAGES,
    CountSchema,
    operation,
    validated_body,
)
from portal.kit.errors import BadRequest, NotFound, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of, note_denial
from tenants.access.models import Membership
from tenants.access.selectors import matching_text, of_cluster, visible_rules, with_api_columns
from tenants.access.serializers import access_rules as access_schemas
from tenants.access.serializers.access_rules import path_of, rule_json
from tenants.access.services import access_rules
from tenants.access.services import access_rules as memberships
from tenants.access.services.access_rules import SCOPE_TYPES, SUBJECT_TYPES, AccessRuleRequest


def as_scope(value: str) -> str:
    """Ids of scopes; UUIDs are compared without dashes."""
    return as_text(value).replace("-", "").lower()


def as_scope_type(value: str) -> str:
    """`system` is the tenant's."""
    return {"system": "tenant"}.get(value, as_text(value))


def as_subject_type(value: str) -> str:
    """`app` is the older name of a service account."""
    return {"app": "service-account"}.get(value, as_text(value))


COLUMNS: Final = {
    "subjectId": Column("subject_key"),
    "subjectType": Column("subject_type", as_subject_type),
    "roleId": Column("role__id", as_number),
    "scopeId": Column("scope_key", as_scope),
    "scopeType": Column("scope_type", as_scope_type),
    "roleName": Column("role__name"),
    "scopeName": Column("scope_name"),
    "createdAt": Column("created_at", as_time),
    "deletedAt": Column("deleted_at", as_time),
    "createdBy": Column("created_by"),
    "phase": Column("phase"),
}
SEARCH: Final = OpenApiParameter("search", str, description="Part of the subject, role or scope name.")
DELETED: Final = OpenApiParameter("includeDeleted", bool, description="Always empty: deleted rules are not stored.")
COUNTED: Final = [DELETED, FILTERS[0], SEARCH]
LISTED: Final = [
    OpenApiParameter("subjectType", str, enum=SUBJECT_TYPES),
    OpenApiParameter("subjectIdFilter", str, description="Part of the subject's id."),
    OpenApiParameter("subjectIds", str, description="Comma-separated ids."),
    OpenApiParameter("lastUpdated", str, description="Not before this time (ISO 8601)."),
    OpenApiParameter("clusterId", str, description="Rules of the cluster, its departments and its projects."),
    OpenApiParameter("scopeType", str, enum=SCOPE_TYPES),
    OpenApiParameter("scopeId", str),
    OpenApiParameter("roleId", int),
    *PAGES,
    *FILTERS,
    DELETED,
    SEARCH,
]


def filtered_rules(query: Mapping[str, str], actor: Actor) -> Q:
    """`filterBy` and `search`, which lists and counts share."""
    requested = filters(query.get("filterBy", ""), COLUMNS, actor)
    text = _text(query, "search")
    return requested & matching_text(text) if text else requested


def selected_by_parameters(query: Mapping[str, str]) -> Q:
    """The parameters of the list alone. Raises BadRequest with the parameter's name."""
    found = Q()
    for name, condition in _PARAMETERS.items():
        if text := _text(query, name):
            try:
                found &= condition(text)
            except ValueError:
                raise BadRequest.at(f"/{name}", "out_of_range", f"Not a valid {name}.") from None
    return found


def _text(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "")
    if "\x00" in text:
        raise BadRequest.at(f"/{name}", "control_characters", f"Not a valid {name}.")
    return text


def _one_of(allowed: tuple[str, ...], text: str) -> str:
    if text not in allowed:
        raise ValueError(text)
    return text


_PARAMETERS: Final[Mapping[str, Callable[[str], Q]]] = {
    "subjectType": lambda text: Q(subject_type=as_subject_type(_one_of(SUBJECT_TYPES, text))),
    "subjectIdFilter": lambda text: Q(subject_key__icontains=text),
    "subjectIds": lambda text: Q(subject_key__in=[each for each in text.split(",") if each]),
    "lastUpdated": lambda text: Q(updated_at__gte=as_time(text)),
    "clusterId": lambda text: of_cluster(str(UUID(text))),
    "scopeType": lambda text: Q(scope_type=as_scope_type(_one_of(SCOPE_TYPES, text))),
    "scopeId": lambda text: Q(scope_key=as_scope(text)),
    "roleId": lambda text: Q(role__id=as_number(text)),
}


MOST: Final = 500
"""Rules that one batch makes."""


class AccessRules(Route):
    """Rules of the places where the caller may look at access; new ones."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_members", "project")}

    @operation(
        "get_access_rules",
        "List access rules",
        access_schemas.RulesSchema,
        description="Rules in the scopes where you may view access; your own are under `me`. Deleted rules are "
        "only in the audit log, regardless of `includeDeleted`.",
        parameters=LISTED,
    )
    def get(self, request: Request) -> Response:
        """One page, oldest first unless `sortBy` says otherwise."""
        query = request.query_params
        flag_in(query, "includeDeleted")
        rows = _visible(request).filter(selected_by_parameters(query)).order_by(ordering(query, COLUMNS, "pk"), "pk")
        page = without_cursor(rows, request).rows
        return Response(
            {
                "totalRecords": rows.count(),
                "displayRecords": len(page),
                "accessRules": [rule_json(each) for each in page],
            }
        )

    @operation(
        "create_access_rule",
        "Create an access rule",
        access_schemas.RuleSchema,
        201,
        description="Adds to other roles held in the scope; a duplicate answers 409. You cannot grant more than "
        "you have.",
        request=access_schemas.RuleCreate,
    )
    def post(self, request: Request) -> Response:
        """It counts from the subject's next request on."""
        requested = _rule_request(validated_body(access_schemas.RuleCreate, request.data))
        made = access_rules.create_rule(requested=requested, actor=actor_of(request))
        return Response(rule_json(made), status=201)


class AccessRuleDetail(Route):
    """A rule by id."""

    access = {"GET": RoutePermission("view_access", "project"), "DELETE": RoutePermission("manage_members", "project")}

    @operation("get_access_rule", "Read an access rule", access_schemas.RuleDetailSchema)
    def get(self, request: Request, rule_id: int) -> Response:
        """The rule and the path of its scope; 404 beyond the caller's reach."""
        rule = _rule(actor_of(request), rule_id)
        return Response({**rule_json(rule), "scopePath": path_of(rule)})

    @operation("delete_access_rule", "Delete an access rule", status=204)
    def delete(self, request: Request, rule_id: int) -> Response:
        """It counts no longer from the subject's next request on; 409 for the last platform admin's."""
        actor = actor_of(request)
        memberships.revoke(membership=_rule(actor, rule_id), actor=actor)
        return Response(status=204)


class AccessRuleCount(Route):
    """How many rules the same filter finds."""

    access = {"GET": RoutePermission()}

    @operation("count_access_rules", "Count access rules", CountSchema, parameters=COUNTED)
    def get(self, request: Request) -> Response:
        """Of those that the list has."""
        flag_in(request.query_params, "includeDeleted")
        return Response({"count": _visible(request).count()})


class AccessRuleBatch(Route):
    """Several rules at once."""

    access = {"POST": RoutePermission()}

    @operation(
        "access_rules_batch",
        "Delete several access rules",
        access_schemas.RuleBatchResult,
        request=access_schemas.RuleBatch,
    )
    def post(self, request: Request) -> Response:
        """Each on its own: failures are listed separately, unknown ids included."""
        wanted = validated_body(access_schemas.RuleBatch, request.data)
        actor, done, failed = actor_of(request), [], []
        act = memberships.revoke if wanted["action"] == "delete" else access_rules.check_revoke
        for key in wanted["ids"]:
            try:
                act(membership=_rule(actor, _number(key)), actor=actor)
                done.append(key)
            except RungError as refusal:
                note_denial(request, refusal, {"rule": key})
                failed.append({"id": key, "code": refusal.status, "message": refusal.message})
        return Response({"id": str(uuid.uuid4()), "succeeded": done, "failed": failed})


class AccessRuleBatchCreate(Route):
    """One role for several subjects in several scopes."""

    access = {"POST": RoutePermission()}

    @operation(
        "access_rules_batch_create",
        "Create several access rules",
        access_schemas.RulesCreated,
        request=access_schemas.RulesCreation,
    )
    def post(self, request: Request) -> Response:
        """Each on its own: failures are listed separately."""
        body = validated_body(access_schemas.RulesCreation, request.data)["payload"]
        shared = {"roleId": body["roleId"], "clusterId": body.get("clusterId")}
        if len(body["subjects"]) * len(body["scopes"]) > MOST:
            raise ValidationFailed.at(
                "/payload", "too_many", _("At most %(most)s rules at once.") % {"most": MOST}, most=MOST
            )
        requested = [_rule_request({**shared, **who, **where}) for who in body["subjects"] for where in body["scopes"]]
        made, refused = access_rules.create_rules(requested=requested, actor=actor_of(request))
        for each, no in refused:
            note_denial(request, no, each.as_json())
        failed = [{"payload": each.as_json(), "code": no.status, "message": no.message} for each, no in refused]
        return Response({"succeeded": [rule_json(each) for each in made], "failed": failed})


def _visible(request: Request) -> QuerySet[Membership]:
    actor = actor_of(request)
    return with_api_columns(visible_rules(actor)).filter(filtered_rules(request.query_params, actor))


def _rule(actor: Actor, rule_id: int) -> Membership:
    found = with_api_columns(visible_rules(actor)).filter(Q(pk=rule_id)).first()
    if found is None:
        raise NotFound
    return found


def _number(key: str) -> int:
    number = id_number(key)
    if number is None:
        raise NotFound
    return number


def _rule_request(body: Mapping[str, Any]) -> AccessRuleRequest:
    return AccessRuleRequest(
        subject_type=body["subjectType"],
        subject_id=body["subjectId"],
        role_id=body["roleId"],
        scope_type=body["scopeType"],
        scope_id=body["scopeId"],
        cluster_id=body.get("clusterId") or "",
    )
