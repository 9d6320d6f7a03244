"""Figures by which projects and departments are filtered and sorted. Each costs only who names it."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from django.db.models import Case, CharField, F, FloatField, Model, OuterRef, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Cast, Coalesce

from clusters.models import Average, ObservedPod
from clusters.samples import Name
from portal.core.filtering import Column
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota
from tenants.sampling import DEPARTMENT, PROJECT

M = TypeVar("M", Project, Department)
SPANS: Final = {"24h": "day", "7d": "week", "30d": "month"}
NOT_MEASURED: Final = ("avgGpuUtilization", "avgGpuMemoryUtilization")


def as_devices(value: str) -> int:
    """GPU devices as thousandths; more exact than that is no amount."""
    try:
        exact = Decimal(value) * 1000
        found = int(exact)
    except (InvalidOperation, OverflowError):
        raise ValueError(value) from None
    if found != exact or abs(found) >= 10**18:
        raise ValueError(value)
    return found


FIGURES: Final[Mapping[str, Column]] = {
    "totalGpuQuota": Column("told_quota", as_devices),
    "gpuAllocated": Column("told_held", as_devices),
    **{f"avgGpuAllocation{span}": Column(f"told_{field}", as_devices) for span, field in SPANS.items()},
    **{f"{name}{span}": Column("told_nothing", as_devices) for name in NOT_MEASURED for span in SPANS},
}
"""What projects and departments have in common. Nothing is known of utilization: it equals nothing."""
PHASE: Final = Column("told_phase")
TOLD: Final = frozenset(column.path for column in (*FIGURES.values(), PHASE))
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
        rows = Average.objects.filter(kind=kind, owner=Cast(OuterRef("pk"), CharField()), name=Name.GPU_HELD)
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
