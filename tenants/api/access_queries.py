"""Query parameters of the lists of access rules."""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter

from portal.core.actors import Actor
from portal.core.bodies import FILTERS, PAGES
from portal.core.errors import BadRequest
from portal.core.filtering import Column, as_number, as_text, as_time, filters
from tenants.access_rules import mentioning, of_cluster
from tenants.services.access_rules import SCOPE_TYPES, SUBJECT_TYPES


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
SEARCH: Final = OpenApiParameter("search", str, description="Part of the subject, the role's or the scope's name.")
DELETED: Final = OpenApiParameter("includeDeleted", bool, description="Deleted rules are not kept: there are none.")
COUNTED: Final = [DELETED, FILTERS[0], SEARCH]
LISTED: Final = [
    OpenApiParameter("subjectType", str, enum=SUBJECT_TYPES),
    OpenApiParameter("subjectIdFilter", str, description="Part of the subject's id."),
    OpenApiParameter("subjectIds", str, description="Comma list of ids."),
    OpenApiParameter("lastUpdated", str, description="Not before this time, ISO 8601."),
    OpenApiParameter("clusterId", str, description="Of a cluster, its departments and its projects."),
    OpenApiParameter("scopeType", str, enum=SCOPE_TYPES),
    OpenApiParameter("scopeId", str),
    OpenApiParameter("roleId", int),
    *PAGES,
    *FILTERS,
    DELETED,
    SEARCH,
]


def found_by(query: Mapping[str, str], actor: Actor) -> Q:
    """`filterBy` and `search`, which lists and counts share."""
    asked = filters(query.get("filterBy", ""), COLUMNS, actor)
    text = _text(query, "search")
    return asked & mentioning(text) if text else asked


def chosen(query: Mapping[str, str]) -> Q:
    """The parameters of the list alone. Raises BadRequest with the parameter's name."""
    found = Q()
    for name, condition in _CHOSEN.items():
        if text := _text(query, name):
            try:
                found &= condition(text)
            except ValueError:
                raise BadRequest.at(f"/{name}", "out_of_range", f"This is no {name}.") from None
    return found


def _text(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "")
    if "\x00" in text:
        raise BadRequest.at(f"/{name}", "control_characters", f"This is no {name}.")
    return text


def _one_of(allowed: tuple[str, ...], text: str) -> str:
    if text not in allowed:
        raise ValueError(text)
    return text


_CHOSEN: Final[Mapping[str, Callable[[str], Q]]] = {
    "subjectType": lambda text: Q(subject_type=as_subject_type(_one_of(SUBJECT_TYPES, text))),
    "subjectIdFilter": lambda text: Q(subject_key__icontains=text),
    "subjectIds": lambda text: Q(subject_key__in=[each for each in text.split(",") if each]),
    "lastUpdated": lambda text: Q(updated_at__gte=as_time(text)),
    "clusterId": lambda text: of_cluster(str(UUID(text))),
    "scopeType": lambda text: Q(scope_type=as_scope_type(_one_of(SCOPE_TYPES, text))),
    "scopeId": lambda text: Q(scope_key=as_scope(text)),
    "roleId": lambda text: Q(role__id=as_number(text)),
}
