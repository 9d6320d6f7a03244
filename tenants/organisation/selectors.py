"""Projects by id with their department and cluster; figures of projects and departments that a list sorts by."""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Any, Final, TypeVar

from django.db.models import Case, CharField, F, FloatField, Model, OuterRef, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Cast, Coalesce

from clusters.inventory.models import Cluster
from clusters.watch.models import Average, ObservedPod
from clusters.watch.selectors import Metric
from portal.kit.db.read_cache import cached_read
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.usage.selectors import DEPARTMENT, PROJECT

M = TypeVar("M", Project, Department)
SPANS: Final = {"24h": "day", "7d": "week", "30d": "month"}


@cached_read
def project_by_id(project_id: int) -> Project | None:
    """The project with its department and cluster; access is not checked."""
    return Project.objects.select_related("cluster", "department").filter(pk=project_id).first()


def with_current_cluster(project: Project) -> Project:
    """The project with its cluster and node pools read now: a cached one is as old as the version of the settings."""
    current = copy(project)
    current.cluster = Cluster.objects.prefetch_related("node_pools").get(pk=project.cluster_id)
    return current


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
    """As the response shows it."""
    in_step = When(cluster__synced_generation__gte=F("cluster__generation"), then=Value("Ready"))
    return Case(in_step, default=Value("Updating"), output_field=CharField())


_OF_PROJECTS: Final[Mapping[str, Callable[[], Any]]] = {
    "figure_quota": _deserved(ProjectQuota, "project"),
    "figure_held": _held_in_namespace,
    "figure_nothing": _nothing,
    "figure_phase": _phase,
    **{f"figure_{field}": _average(PROJECT, field) for field in SPANS.values()},
}
_OF_DEPARTMENTS: Final[Mapping[str, Callable[[], Any]]] = {
    "figure_quota": _deserved(DepartmentQuota, "department"),
    "figure_held": _held_by_projects,
    "figure_nothing": _nothing,
    **{f"figure_{field}": _average(DEPARTMENT, field) for field in SPANS.values()},
}


def annotate_figures(rows: QuerySet[M], paths: Collection[str]) -> QuerySet[M]:
    """The rows with these figures: quotas and use in GPU thousandths, the averages of their use, the phase."""
    makers = _OF_PROJECTS if rows.model is Project else _OF_DEPARTMENTS
    return rows.annotate(**{path: makers[path]() for path in paths if path in makers})
