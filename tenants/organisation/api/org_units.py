"""Columns, filters and checks that the REST of departments and projects share."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db.models import Case, CharField, F, FloatField, Model, OuterRef, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Cast, Coalesce
from django.utils.translation import gettext as _
from rest_framework.request import Request

from clusters.inventory.models import Cluster
from clusters.watch.models import Average, ObservedPod
from clusters.watch.selectors import Metric
from portal.kit.api.lists import Column, Columns, PageSlice, as_time, as_uuid, ordering, part_of, without_cursor
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.selectors import CLUSTER_ID
from tenants.organisation.models import Department, Project
from tenants.organisation.serializers import EntrySchema
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.rules import gpu_milli
from tenants.quotas.serializers import warnings_json
from tenants.quotas.services.pool_quotas import set_resources
from tenants.quotas.services.runtime_rules import set_scheduling_rules
from tenants.usage.selectors import DEPARTMENT, PROJECT

M = TypeVar("M", Project, Department)
SPANS: Final = {"24h": "day", "7d": "week", "30d": "month"}
NOT_MEASURED: Final = ("avgGpuUtilization", "avgGpuMemoryUtilization")


FIGURES: Final[Mapping[str, Column]] = {
    "totalGpuQuota": Column("told_quota", gpu_milli),
    "gpuAllocated": Column("told_held", gpu_milli),
    **{f"avgGpuAllocation{span}": Column(f"told_{field}", gpu_milli) for span, field in SPANS.items()},
    **{f"{name}{span}": Column("told_nothing", gpu_milli) for name in NOT_MEASURED for span in SPANS},
}
"""What projects and departments have in common. Nothing is known of utilization: it equals nothing."""
PHASE: Final = Column("told_phase")
COMPUTED_PATHS: Final = frozenset(column.path for column in (*FIGURES.values(), PHASE))
"""Paths that are no columns of a table."""


def with_figures(rows: QuerySet[M], query: Mapping[str, str]) -> QuerySet[M]:
    """The rows with those figures that the filter or the order names."""
    asked = f"{query.get('filterBy', '')} {query.get('sortBy', '')}".lower().replace("_", "")
    named = {column.path for name, column in (*FIGURES.items(), ("phase", PHASE)) if name.lower() in asked}
    makers = _OF_PROJECTS if rows.model is Project else _OF_DEPARTMENTS
    return rows.annotate(**{path: makers[path]() for path in named if path in makers})


def _held_in_namespace() -> Any:
    pods = ObservedPod.objects.holding().order_by()
    held = pods.filter(cluster=OuterRef("cluster"), namespace=OuterRef("namespace"))
    return Coalesce(Subquery(held.values("namespace").annotate(sum=Sum("gpu_milli")).values("sum")), 0)


def _held_by_projects() -> Any:
    projects = Project.objects.filter(department=OuterRef("pk")).annotate(held=_held_in_namespace()).order_by()
    return Coalesce(Subquery(projects.values("department").annotate(sum=Sum("held")).values("sum")), 0)


def _deserved(model: type[Model], owner: str) -> Callable[[], Any]:
    def make() -> Any:
        quotas = model._default_manager.filter(**{owner: OuterRef("pk")}).order_by()
        return Coalesce(Subquery(quotas.values(owner).annotate(sum=Sum("gpu_deserved")).values("sum")), 0)

    return make


def _average(kind: str, field: str) -> Callable[[], Any]:
    def make() -> Any:
        rows = Average.objects.filter(kind=kind, owner=Cast(OuterRef("pk"), CharField()), name=Metric.GPU_HELD)
        return Subquery(rows.values(field)[:1])

    return make


def _nothing() -> Any:
    return Value(None, output_field=FloatField())


def _phase() -> Any:
    """As the answer tells it."""
    in_step = When(cluster__synced_generation__gte=F("cluster__generation"), then=Value("Ready"))
    return Case(in_step, default=Value("Updating"), output_field=CharField())


_OF_PROJECTS: Final[Mapping[str, Callable[[], Any]]] = {
    "told_quota": _deserved(ProjectQuota, "project"),
    "told_held": _held_in_namespace,
    "told_nothing": _nothing,
    "told_phase": _phase,
    **{f"told_{field}": _average(PROJECT, field) for field in SPANS.values()},
}
_OF_DEPARTMENTS: Final[Mapping[str, Callable[[], Any]]] = {
    "told_quota": _deserved(DepartmentQuota, "department"),
    "told_held": _held_by_projects,
    "told_nothing": _nothing,
    **{f"told_{field}": _average(DEPARTMENT, field) for field in SPANS.values()},
}


OrgUnitRow = TypeVar("OrgUnitRow", Project, Department)
COLUMNS: Final = {
    "name": Column("name"),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "createdAt": Column("created_at", as_time),
    **FIGURES,
}
ENTRIES: Final = EntrySchema(many=True)


def page(rows: QuerySet[OrgUnitRow], request: Request, columns: Columns) -> PageSlice[OrgUnitRow]:
    """One page, by name unless `sortBy` says otherwise. An order by figures has no cursor."""
    order = ordering(request.query_params, columns, "name")
    if order.lstrip("-") not in COMPUTED_PATHS:
        return part_of(rows, request, order=order)
    return without_cursor(rows.order_by(order, "-pk" if order.startswith("-") else "pk"), request)


def cluster_of(key: UUID) -> Cluster:
    """The cluster of a new department or project. Raises ValidationFailed."""
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise ValidationFailed.at("/clusterId", "unknown_cluster", _("Cluster not found."))
    return found


def set_quotas_and_limits(
    owner: Department | Project, body: Mapping[str, Any], actor: Actor
) -> dict[str, list[dict[str, Any]]]:
    """Quotas and time limits of a body; answers `warnings`."""
    found = set_resources(owner=owner, entries=body["resources"], actor=actor, whole=True)
    if "schedulingRules" in body:
        set_scheduling_rules(owner=owner, rules=body["schedulingRules"], actor=actor)
    return {"warnings": warnings_json(found)}


def check_supported(body: Mapping[str, Any], *, pools: bool = True) -> None:
    """What would be lost without a word."""
    if body.get("nodeTypes"):
        raise ValidationFailed.at("/nodeTypes", "unsupported", _("Rung selects nodes by node pool. Leave this empty."))
    if body.get("enforceRunaiScheduler") is False:
        text = _("Workloads always use the scheduler of their cluster. Only true is accepted.")
        raise ValidationFailed.at("/enforceRunaiScheduler", "unsupported", text)
    if not pools and body.get("defaultNodePools"):
        raise ValidationFailed.at("/defaultNodePools", "unsupported", _("Set default node pools on the projects."))
