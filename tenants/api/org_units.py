"""What the routes of departments and projects share."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from clusters.models import Cluster
from portal.core.actors import Actor
from portal.core.bodies import REFUSALS, ErrorSchema
from portal.core.errors import Refused
from portal.core.filtering import Column, Columns, as_time, as_uuid, ordering
from portal.core.paging import Part, part_of, without_cursor
from tenants.api.known import CLUSTER_ID
from tenants.api.org_figures import FIGURES, TOLD
from tenants.api.org_schemas import EntrySchema
from tenants.models import Department, Project
from tenants.services.resources import set_resources
from tenants.services.scheduling_rules import set_scheduling_rules

M = TypeVar("M", Project, Department)
COLUMNS: Final = {
    "name": Column("name"),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "createdAt": Column("created_at", as_time),
    **FIGURES,
}
SEARCH: Final = OpenApiParameter("search", str, description="Part of the name.")
WRITES: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
ENTRIES: Final = EntrySchema(many=True)


def page(rows: QuerySet[M], request: Request, columns: Columns) -> Part[M]:
    """One page, by name unless `sortBy` says otherwise. An order by figures has no cursor."""
    order = ordering(request.query_params, columns, "name")
    if order.lstrip("-") not in TOLD:
        return part_of(rows, request, order=order)
    return without_cursor(rows.order_by(order, "-pk" if order.startswith("-") else "pk"), request)


def cluster_of(key: UUID) -> Cluster:
    """The cluster of a new department or project. Raises Refused."""
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise Refused.at("/clusterId", "unknown_cluster", _("There is no such cluster."))
    return found


def set_rest(owner: Department | Project, body: Mapping[str, Any], actor: Actor) -> None:
    """Quotas and time limits of a body."""
    set_resources(owner=owner, entries=body["resources"], actor=actor, whole=True)
    if "schedulingRules" in body:
        set_scheduling_rules(owner=owner, rules=body["schedulingRules"], actor=actor)


def refuse_unsupported(body: Mapping[str, Any], *, pools: bool = True) -> None:
    """What would be lost without a word."""
    if body.get("nodeTypes"):
        raise Refused.at("/nodeTypes", "unsupported", _("Rung chooses nodes by node pools; leave this empty."))
    if body.get("enforceRunaiScheduler") is False:
        text = _("Every workload runs under the scheduler of its cluster; this is always true.")
        raise Refused.at("/enforceRunaiScheduler", "unsupported", text)
    if not pools and body.get("defaultNodePools"):
        raise Refused.at("/defaultNodePools", "unsupported", _("Set default node pools at the projects."))
