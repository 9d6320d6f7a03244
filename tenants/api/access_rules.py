"""Access rules: who has which role where. There is no change of a rule: delete it and make another."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, CountSchema, ErrorSchema, checked
from portal.core.errors import Absent, Refused, RungError
from portal.core.filtering import flag_in, id_number, ordering
from portal.core.http import actor_of
from portal.core.paging import without_cursor
from portal.core.refusals import note
from portal.core.routes import Route, Rule
from tenants.access_rules import visible_rules, with_words
from tenants.api import access_schemas
from tenants.api.access_queries import COLUMNS, COUNTED, LISTED, chosen, found_by
from tenants.api.access_shapes import path_of, rule_json
from tenants.models import Membership
from tenants.services import access_rules, memberships
from tenants.services.access_rules import Asked

WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
MOST: Final = 500
"""Rules that one batch makes."""


class AccessRules(Route):
    """Rules of the places where the caller may look at access; new ones."""

    access = {"GET": Rule(), "POST": Rule("manage_members", "project")}

    @extend_schema(
        operation_id="get_access_rules",
        summary="List access rules",
        description="Those of the places where you may look at access; your own are under `me`. Deleted rules are not "
        "kept as rules, whatever `includeDeleted` says: the audit log tells of them.",
        parameters=LISTED,
        responses={200: access_schemas.RulesSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, oldest first unless `sortBy` says otherwise."""
        query = request.query_params
        flag_in(query, "includeDeleted")
        rows = _visible(request).filter(chosen(query)).order_by(ordering(query, COLUMNS, "pk"), "pk")
        page = without_cursor(rows, request).rows
        return Response(
            {
                "totalRecords": rows.count(),
                "displayRecords": len(page),
                "accessRules": [rule_json(each) for each in page],
            }
        )

    @extend_schema(
        operation_id="create_access_rule",
        summary="Make an access rule",
        description="Beside other roles held there; the same again is 409. Nobody gives more than they hold.",
        request=access_schemas.NewRule,
        responses={201: access_schemas.RuleSchema, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """It counts from the subject's next request on."""
        asked = _asked(checked(access_schemas.NewRule, request.data))
        made = access_rules.create_rule(asked=asked, actor=actor_of(request))
        return Response(rule_json(made), status=201)


class OneAccessRule(Route):
    """A rule by id."""

    access = {"GET": Rule("view_access", "project"), "DELETE": Rule("manage_members", "project")}

    @extend_schema(
        operation_id="get_access_rule",
        summary="Read an access rule",
        responses={200: access_schemas.OneRuleSchema, **REFUSALS},
    )
    def get(self, request: Request, rule_id: int) -> Response:
        """The rule and the path of its scope; 404 beyond the caller's reach."""
        rule = _rule(actor_of(request), rule_id)
        return Response({**rule_json(rule), "scopePath": path_of(rule)})

    @extend_schema(operation_id="delete_access_rule", summary="Delete an access rule", responses={204: None, **WRITES})
    def delete(self, request: Request, rule_id: int) -> Response:
        """It counts no longer from the subject's next request on; 409 for the last platform admin's."""
        actor = actor_of(request)
        memberships.revoke(membership=_rule(actor, rule_id), actor=actor)
        return Response(status=204)


class AccessRuleCount(Route):
    """How many rules the same filter finds."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="count_access_rules",
        summary="Count access rules",
        parameters=COUNTED,
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Of those that the list has."""
        flag_in(request.query_params, "includeDeleted")
        return Response({"count": _visible(request).count()})


class AccessRuleBatch(Route):
    """Several rules at once."""

    access = {"POST": Rule()}

    @extend_schema(
        operation_id="access_rules_batch",
        summary="Delete several access rules",
        request=access_schemas.RuleBatch,
        responses={200: access_schemas.RuleBatchResult, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """Each on its own: what fails is told apart, unknown ids included."""
        wanted = checked(access_schemas.RuleBatch, request.data)
        actor, done, failed = actor_of(request), [], []
        act = memberships.revoke if wanted["action"] == "delete" else access_rules.try_revoke
        for key in wanted["ids"]:
            try:
                act(membership=_rule(actor, _number(key)), actor=actor)
                done.append(key)
            except RungError as refusal:
                note(request, refusal, {"rule": key})
                failed.append({"id": key, "code": refusal.status, "message": refusal.message})
        return Response({"id": str(uuid.uuid4()), "succeeded": done, "failed": failed})


class AccessRuleBatchCreate(Route):
    """One role for several subjects in several scopes."""

    access = {"POST": Rule()}

    @extend_schema(
        operation_id="access_rules_batch_create",
        summary="Make several access rules",
        request=access_schemas.RulesCreation,
        responses={200: access_schemas.RulesCreated, **WRITES},
    )
    def post(self, request: Request) -> Response:
        """Each on its own: what fails is told apart."""
        body = checked(access_schemas.RulesCreation, request.data)["payload"]
        shared = {"roleId": body["roleId"], "clusterId": body.get("clusterId")}
        if len(body["subjects"]) * len(body["scopes"]) > MOST:
            raise Refused.at("/payload", "too_many", _("At most %(most)s rules at once.") % {"most": MOST}, most=MOST)
        asked = [_asked({**shared, **who, **where}) for who in body["subjects"] for where in body["scopes"]]
        made, refused = access_rules.create_rules(asked=asked, actor=actor_of(request))
        for each, no in refused:
            note(request, no, each.as_json())
        failed = [{"payload": each.as_json(), "code": no.status, "message": no.message} for each, no in refused]
        return Response({"succeeded": [rule_json(each) for each in made], "failed": failed})


def _visible(request: Request) -> QuerySet[Membership]:
    actor = actor_of(request)
    return with_words(visible_rules(actor)).filter(found_by(request.query_params, actor))


def _rule(actor: Actor, rule_id: int) -> Membership:
    found = with_words(visible_rules(actor)).filter(Q(pk=rule_id)).first()
    if found is None:
        raise Absent
    return found


def _number(key: str) -> int:
    number = id_number(key)
    if number is None:
        raise Absent
    return number


def _asked(body: Mapping[str, Any]) -> Asked:
    return Asked(
        subject_type=body["subjectType"],
        subject_id=body["subjectId"],
        role_id=body["roleId"],
        scope_type=body["scopeType"],
        scope_id=body["scopeId"],
        cluster_id=body.get("clusterId") or "",
    )
