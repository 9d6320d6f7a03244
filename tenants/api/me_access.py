"""The caller's own access rules: by name, by a group, or because superusers need none."""

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.actors import Actor, ActorKind
from portal.core.bodies import PAGES, REFUSALS, CountSchema
from portal.core.filtering import LARGEST_OFFSET, LARGEST_PAGE, PAGE, number_in
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.access_rules import mentioning, own_rules, with_words
from tenants.api.access_queries import SEARCH
from tenants.api.access_schemas import NestedMeRules
from tenants.api.access_shapes import own_rule, superusers_rule
from tenants.models import AccessRole, Role, User

MOST: Final = 10_000


class OwnRules(Route):
    """One's own rules."""

    access = {"GET": Rule(at="self")}

    @extend_schema(
        operation_id="get_me_access_rules",
        summary="List your own access rules",
        description="What an access key leaves of them is under `/api/v1/whoami`.",
        parameters=[*PAGES, SEARCH],
        responses={200: NestedMeRules, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, oldest first."""
        query, found = request.query_params, _own(request)
        offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
        page = found[offset : offset + number_in(query, "limit", PAGE, 1, LARGEST_PAGE)]
        rules = {"totalRecords": len(found), "displayRecords": len(page), "accessRules": page}
        return Response({"accessRules": rules})


class OwnRuleCount(Route):
    """How many."""

    access = {"GET": Rule(at="self")}

    @extend_schema(
        operation_id="count_me_access_rules",
        summary="Count your own access rules",
        parameters=[SEARCH],
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """Of those that the list has."""
        return Response({"count": len(_own(request))})


def _own(request: Request) -> list[dict[str, Any]]:
    """All of them: nobody has many."""
    actor, text = actor_of(request), request.query_params.get("search", "").replace("\x00", "\ufffd")
    rows = with_words(own_rules(actor)).order_by("pk")
    return [*_superuser(actor, text), *(own_rule(each) for each in rows.filter(mentioning(text))[:MOST])]


def _superuser(actor: Actor, text: str) -> list[dict[str, Any]]:
    if actor.kind is not ActorKind.USER or not User.objects.filter(pk=int(actor.id), is_superuser=True).exists():
        return []
    rule = superusers_rule(actor.name, AccessRole.objects.get(key=Role.PLATFORM_ADMIN))
    words = (rule["subjectId"], rule["roleName"], rule["scopeName"])
    return [rule] if any(text.lower() in word.lower() for word in words) else []
