"""Quotas by node pool, and projects and departments in numbers, as Run:ai's clients read them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

from django.db.models import Case, F, IntegerField, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.flavours.objects import RANK_TO_PRIORITY
from portal.kit.api.lists import (
    NAME_SEARCH,
    Column,
    as_number,
    as_uuid,
    bounds_in,
    filters,
    ordering,
    without_cursor,
)
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, PAGES, operation, validated_body
from portal.kit.errors import BadRequest
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import (
    CLUSTER_ID,
    DEPARTMENT_ID,
    POOL_ID,
    POOL_NAME,
    access_for,
    visible_departments,
    visible_projects,
)
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Quota, Rank
from tenants.quotas.rules import gpu_milli, weight_of
from tenants.quotas.selectors.quota_rows import DepartmentPool, PoolQuota, department_rows_of, quota_rows_of
from tenants.quotas.selectors.quota_tree import (
    branches_of,
    lines_of,
    pool_quotas,
    pool_sums,
    pools_named,
    quotas_in_turn,
    unknown_text,
)
from tenants.quotas.serializers import (
    PoolResourcesPageSchema,
    QuotasPageSchema,
    RanksSchema,
    WhatIfRequest,
    WhatIfSchema,
    quota_json,
    sums_json,
    use_json,
    what_if_json,
)
from tenants.quotas.services.pool_quotas import RANKS, entry_json
from tenants.quotas.services.what_if import parse_edits, share_of_each, what_if

Unit = Project | Department
Units = QuerySet[Project] | QuerySet[Department]
ORDER: Final = tuple(Rank)
_PLAIN: Final = {word.lower(): ORDER.index(Rank(name)) for name, word in RANKS.items()}


def _as_rank(value: str) -> int:
    """A rank by its place, so that higher ones compare greater."""
    plain = value.replace("-", "").replace("_", "").lower()
    if plain not in _PLAIN:
        raise ValueError(value)
    return _PLAIN[plain]


COLUMNS: Final = {
    "nodePoolName": Column("pool_called", known=POOL_NAME),
    "nodePoolId": Column("pool", as_number, POOL_ID),
    "orgUnitId": Column("pk", as_number),
    "orgUnitName": Column("name"),
    "rank": Column("rank_order", _as_rank),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
}
OF_PROJECTS: Final = {**COLUMNS, "parentId": Column("department_id", as_number, DEPARTMENT_ID)}
OF_DEPARTMENTS: Final = {
    **COLUMNS,
    "gpuDeserved": Column("deserved", gpu_milli),
    "gpuOverQuotaWeight": Column("weight", weight_of),
}


class Ranks(Route):
    """Ranks of queues: who gets surplus first."""

    access = {"GET": RoutePermission()}

    @operation("get_priorities", "List ranks", RanksSchema)
    def get(self, request: Request) -> Response:
        """The lowest first, each with the number that KAI's queues carry."""
        default = ProjectQuota._meta.get_field("rank").default
        ranks = [
            {"name": RANKS[rank.value], "value": RANK_TO_PRIORITY[rank.value], "isDefault": rank.value == default}
            for rank in Rank
        ]
        return Response({"priorities": ranks})


class ProjectPools(Route):
    """Projects that the caller may see, each in every node pool."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_projects_node_pool_resources",
        "List projects' quotas by node pool",
        PoolResourcesPageSchema,
        parameters=[*PAGES, *FILTERS, NAME_SEARCH],
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(_projects(request), request, OF_PROJECTS, _project_rows)


class DepartmentPools(Route):
    """Departments where the caller has a role, each in every node pool."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_departments_node_pool_resources",
        "List departments' quotas by node pool",
        PoolResourcesPageSchema,
        parameters=[*PAGES, *FILTERS, NAME_SEARCH],
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(_departments(request), request, OF_DEPARTMENTS, _department_rows)


def _projects(request: Request) -> QuerySet[Project]:
    rows = visible_projects(actor_of(request)).select_related("cluster", "department")
    quotas = ProjectQuota.objects.order_by().filter(project=OuterRef("pk"), node_pool=OuterRef("cluster__node_pools"))
    return cast("QuerySet[Project]", _wanted(rows, quotas, request, OF_PROJECTS))


ProjectPoolCount = count_route(
    "count_projects_node_pool_resources",
    "Count projects' quotas by node pool",
    "The number of rows the filter finds.",
    _projects,
    parameters=[*FILTERS, NAME_SEARCH],
)


def _departments(request: Request) -> QuerySet[Department]:
    rows = visible_departments(actor_of(request)).select_related("cluster")
    quotas = DepartmentQuota.objects.order_by().filter(
        department=OuterRef("pk"), node_pool=OuterRef("cluster__node_pools")
    )
    return cast("QuerySet[Department]", _wanted(rows, quotas, request, OF_DEPARTMENTS))


DepartmentPoolCount = count_route(
    "count_departments_node_pool_resources",
    "Count departments' quotas by node pool",
    "The number of rows the filter finds.",
    _departments,
    parameters=[*FILTERS, NAME_SEARCH],
)


def _wanted(
    rows: Units,
    quotas: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota],
    request: Request,
    columns: Mapping[str, Column],
) -> Units:
    """A row per unit and pool of its cluster, with what its quota there says, or its defaults."""
    query, plain = request.query_params, ProjectQuota()
    place = Case(
        *(When(rank=rank, then=Value(number)) for number, rank in enumerate(ORDER)), output_field=IntegerField()
    )
    found = rows.annotate(pool=F("cluster__node_pools"), pool_called=F("cluster__node_pools__name")).exclude(pool=None)
    found = found.annotate(
        rank_order=Coalesce(Subquery(quotas.annotate(place=place).values("place")[:1]), ORDER.index(Rank(plain.rank))),
        deserved=Coalesce(Subquery(quotas.values("gpu_deserved")[:1]), 0),
        weight=Coalesce(Subquery(quotas.values("over_quota_weight")[:1]), float(plain.over_quota_weight)),
    )
    found = found.filter(filters(query.get("filterBy", ""), columns, actor_of(request)))
    search = query.get("search", "").replace("\x00", "")
    return found.filter(name__icontains=search) if search else found


Read = Callable[[Sequence[Any]], Mapping[tuple[int, int], PoolQuota | DepartmentPool]]


def _page(rows: Units, request: Request, columns: Mapping[str, Column], read: Read) -> Response:
    path = ordering(request.query_params, columns, "name")
    units: QuerySet[Any] = rows.order_by(path, "pk", "cluster__node_pools__name")
    part = without_cursor(units, request)
    found = read(list({unit.pk: unit for unit in part.rows}.values()))
    resources = [_row(unit, found[unit.pk, unit.pool]) for unit in part.rows]
    return Response({"nodePoolResources": resources, "next": part.next})


def _project_rows(units: Sequence[Project]) -> Mapping[tuple[int, int], PoolQuota]:
    return {(unit, row.pool.pk): row for unit, rows in quota_rows_of(units).items() for row in rows}


def _department_rows(units: Sequence[Department]) -> Mapping[tuple[int, int], DepartmentPool]:
    return {(unit, row.pool.pk): row for unit, rows in department_rows_of(units).items() for row in rows}


def _row(unit: Unit, row: PoolQuota | DepartmentPool) -> dict[str, Any]:
    entry = entry_json(_quota(row), row.pool)
    return {
        "id": f"{unit.pk}-{row.pool.pk}",
        "orgUnitId": str(unit.pk),
        "orgUnitName": unit.name,
        "parentId": str(unit.department_id) if isinstance(unit, Project) else None,
        "clusterId": str(unit.cluster_id),
        "nodePoolId": str(row.pool.pk),
        "nodePoolName": row.pool.name,
        "rank": entry["rank"],
        "resources": {name: entry[name] for name in ("gpu", "cpu", "memory")},
        "quotaStatus": use_json(row.usage),
    }


def _quota(row: PoolQuota | DepartmentPool) -> Quota:
    return row.quota


NAMES: Final = [
    OpenApiParameter(name, str, description=f"Only this {title}, by name.")
    for name, title in (("cluster", "cluster"), ("pool", "node pool"), ("department", "department"))
]


class Quotas(Route):
    """Departments and projects with their quotas, use and shares, pool by pool. Beyond Run:ai."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_quotas", "List quotas with use and shares", QuotasPageSchema, parameters=[*PAGES, *NAMES, NAME_SEARCH]
    )
    def get(self, request: Request) -> Response:
        """One page: by cluster and pool, each department followed by its projects."""
        access = access_for(actor_of(request))
        bounds = bounds_in(request.query_params)
        pools = pools_named(access, text_in(request, "cluster"), text_in(request, "pool"))
        department, search = text_in(request, "department"), text_in(request, "search")
        narrow = search or department  # rows can be in any pool
        quotas_of = pool_quotas(pools) if narrow else quotas_in_turn(pools)
        found = list(islice(lines_of(quotas_of, access, search=search, department=department), bounds.stop + 1))
        if department and not found and not search:
            names = {branch.department.name for each in pool_quotas(pools) for branch in branches_of(each, access)}
            text = unknown_text("department", department, names)
            raise BadRequest.at("/department", "unknown_name", text, allowed=sorted(names))
        page = found[bounds]
        shown = {quotas.pool.pk: quotas for quotas, _branch, _line in page}
        shares = {key: share_of_each(quotas) for key, quotas in shown.items()}
        rows = [
            quota_json(line, branch, quotas.pool, shares[quotas.pool.pk].get(line.key)) for quotas, branch, line in page
        ]
        following = bounds.stop if len(found) > bounds.stop else None
        return Response({"quotas": rows, "pools": [sums_json(sums) for sums in pool_sums(pools)], "next": following})


class QuotaWhatIf(Route):
    """What other quotas of a node pool would do. Nothing is stored. Beyond Run:ai."""

    access = {"POST": RoutePermission(reads=True)}

    @operation(
        "quotas_what_if", "Compare other quotas of a node pool", WhatIfSchema, request=WhatIfRequest, also=(400, 422)
    )
    def post(self, request: Request) -> Response:
        """Sums, shares, what becomes reclaimable, and the non-preemptible overhang."""
        access, body = access_for(actor_of(request)), validated_body(WhatIfRequest, request.data)
        pools = pools_named(access, body.get("cluster", ""), body["pool"])
        if len(pools) > 1:
            names = [pool.cluster.name for pool in pools]
            raise BadRequest.at("/cluster", "ambiguous", _("Name the cluster."), allowed=names)
        (quotas,) = pool_quotas(pools)
        return Response(what_if_json(what_if(quotas, parse_edits(quotas, body["quotas"], access), access)))


def text_in(request: Request, name: str) -> str:
    return request.query_params.get(name, "").replace("\x00", "")
