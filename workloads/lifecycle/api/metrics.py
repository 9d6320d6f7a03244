"""REST of workloads in numbers: metrics over time and telemetry of now."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    IntegerField,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Cast
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.watch.models import ObservedPod
from clusters.watch.selectors import Metric
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation
from portal.kit.errors import NotFound
from portal.kit.security.request_identity import actor_of
from tenants.usage.serializers import (
    NOT_GROUPED,
    POOL,
    Group,
    GroupColumns,
    MetricsSchema,
    TelemetrySchema,
    Types,
    columns_of,
    groups_in,
    metric_parameters,
    metrics,
    parse_key,
    parse_metrics_query,
    parse_telemetry_type,
    parse_uuid,
    parse_words,
    scaled,
    sums_by_group,
    telemetry,
    telemetry_parameters,
)
from workloads.lifecycle.selectors.workloads import CPU_ASKED, MEMORY_ASKED, PODS, RUNNING, TIMES, known_since, points
from workloads.state.models import Phase, Workload
from workloads.state.rules import WAITING
from workloads.state.selectors.workloads import visible_workloads, workload_or_404

ANSWERS: Final[dict[int, Any]] = {200: MetricsSchema, 207: MetricsSchema}
_HELD: Final[Types] = {
    "GPU_ALLOCATION": scaled(Metric.GPU_HELD, 1000),
    "CPU_REQUEST_CORES": scaled(CPU_ASKED, 1000),
    "CPU_MEMORY_REQUEST_BYTES": scaled(MEMORY_ASKED),
}
_NIM: Final = (
    "NIM_NUM_REQUESTS_RUNNING",
    "NIM_NUM_REQUESTS_WAITING",
    "NIM_NUM_REQUEST_MAX",
    "NIM_REQUEST_SUCCESS_TOTAL",
    "NIM_REQUEST_FAILURE_TOTAL",
    "NIM_GPU_CACHE_USAGE_PERC",
    "NIM_TIME_TO_FIRST_TOKEN_SECONDS",
    "NIM_E2E_REQUEST_LATENCY_SECONDS",
    "NIM_TIME_TO_FIRST_TOKEN_SECONDS_PERCENTILES",
    "NIM_E2E_REQUEST_LATENCY_SECONDS_PERCENTILES",
    "NVLINK_BANDWIDTH_TOTAL",
)
_USED: Final = ("GPU_UTILIZATION", "GPU_MEMORY_USAGE_BYTES", "CPU_USAGE_CORES", "CPU_MEMORY_USAGE_BYTES", *_NIM)
PROFILED: Final = (
    "GPU_GRAPHICS_ENGINE_ACTIVITY",
    "GPU_SM_ACTIVITY",
    "GPU_SM_OCCUPANCY",
    "GPU_TENSOR_ACTIVITY",
    "GPU_FP64_ENGINE_ACTIVITY",
    "GPU_FP32_ENGINE_ACTIVITY",
    "GPU_FP16_ENGINE_ACTIVITY",
    "GPU_MEMORY_BANDWIDTH_UTILIZATION",
    "GPU_NVLINK_TRANSMITTED_BANDWIDTH",
    "GPU_NVLINK_RECEIVED_BANDWIDTH",
    "GPU_PCIE_TRANSMITTED_BANDWIDTH",
    "GPU_PCIE_RECEIVED_BANDWIDTH",
)
"""Run:ai's names for what a profiler of GPUs measures."""
_PER_GPU: Final = (
    "GPU_UTILIZATION",
    "GPU_MEMORY_USAGE_BYTES",
    *PROFILED,
    "GPU_SWAP_MEMORY_BYTES",
    "NVLINK_BANDWIDTH_TOTAL",
)
OF_WORKLOADS: Final[Types] = {
    **_HELD,
    "POD_COUNT": scaled(PODS),
    "RUNNING_POD_COUNT": scaled(RUNNING),
    **dict.fromkeys((*_USED, "GPU_MEMORY_REQUEST_BYTES", "CPU_LIMIT_CORES", "CPU_MEMORY_LIMIT_BYTES")),
}
OF_PODS: Final[Types] = {**_HELD, **dict.fromkeys((*_USED, *(f"{name}_PER_GPU" for name in _PER_GPU)))}
"""Those that are known are beyond Run:ai, whose pods have only use."""


class WorkloadMetrics(Route):
    """A workload over time."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload_metrics", "Read a workload's metrics", ANSWERS, parameters=metric_parameters(OF_WORKLOADS))
    def get(self, request: Request, workload_id: str) -> Response:
        """What its pods held and asked for. Partial where a type is not measured or pods are forgotten already."""
        workload = workload_or_404(actor_of(request), workload_id)
        return _answer(request, workload, _pods(workload), OF_WORKLOADS)


class PodMetrics(Route):
    """A pod over time."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload_pod_metrics", "Read a pod's metrics", ANSWERS, parameters=metric_parameters(OF_PODS))
    def get(self, request: Request, workload_id: str, pod_id: UUID) -> Response:
        """What it held and asked for."""
        workload = workload_or_404(actor_of(request), workload_id)
        pods = _pods(workload).filter(uid=str(pod_id))
        if not pods.exists():
            raise NotFound
        return _answer(request, workload, pods, OF_PODS)


def _pods(workload: Workload) -> QuerySet[ObservedPod]:
    return ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id).only(*TIMES)


def _answer(request: Request, workload: Workload, pods: QuerySet[ObservedPod], types: Types) -> Response:
    requested, now = parse_metrics_query(request.query_params, types), timezone.now()
    since = known_since(workload, now)
    found = points(pods, requested.window, since=since, now=now)
    response = metrics(requested, types, [(NOT_GROUPED, found)])
    if since > max(workload.created_at, requested.window.start):
        response.status_code = 207
    return response


COUNT: Final = "WORKLOADS_COUNT"
HELD: Final = "GPU_ALLOCATION"
WAITS: Final = "PENDING_TIME_DISTRIBUTION"
TYPES: Final = (COUNT, HELD, WAITS)
GROUPS: Final[GroupColumns] = {
    "ClusterId": ("project__cluster_id", "project__cluster__name"),
    "DepartmentId": ("project__department_id", "project__department__name"),
    "ProjectId": ("project_id", "project__name"),
    "Type": ("type__name", ""),
    "CurrentNodepools": ("pool_name", ""),
    "Phase": ("phase", ""),
    "Category": ("classification", ""),
}
BOUNDS: Final = (60, 600, 3600, 24 * 3600)
"""Seconds that part the classes of waiting."""


class Telemetry(Route):
    """Workloads of every type that the caller may see, counted."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_workloads_telemetry",
        "Read workload counts",
        TelemetrySchema,
        parameters=telemetry_parameters(
            TYPES,
            GROUPS,
            OpenApiParameter("clusterId", str),
            POOL,
            OpenApiParameter("departmentId", str),
            OpenApiParameter("filterByPhases", str, description="Comma-separated phases; default: all."),
        ),
    )
    def get(self, request: Request) -> Response:
        """One number, or one per group. Waiting times are counted in classes of seconds."""
        name = parse_telemetry_type(request.query_params, TYPES)
        by = parse_words(request.query_params, "groupBy", GROUPS, most=1 if name == WAITS else 2)
        rows = _wanted(request)
        return telemetry(name, _waits(rows, by) if name == WAITS else _sums(rows, by, name))


def _wanted(request: Request) -> QuerySet[Workload]:
    query = request.query_params
    phases = parse_words(query, "filterByPhases", Phase.values)
    cluster, department = parse_uuid(query, "clusterId"), parse_key(query, "departmentId")
    wanted = Q(phase__in=phases) if phases else Q()
    wanted &= Q(project__cluster=cluster) if cluster else Q()
    wanted &= Q(project__department=department) if department else Q()
    pool = query.get("nodepoolName", "").replace("\x00", "")
    return visible_workloads(actor_of(request)).filter(wanted, Q(pool_name=pool) if pool else Q())


def _sums(rows: QuerySet[Workload], by: Sequence[str], name: str) -> Iterable[tuple[float, Sequence[Group]]]:
    if name == COUNT:
        return sums_by_group(rows, Count("pk"), GROUPS, by)
    return sums_by_group(rows, Sum("allocated_gpu_milli"), GROUPS, by, unit=1000)


def _waits(rows: QuerySet[Workload], by: Sequence[str]) -> Iterable[tuple[float, Sequence[Group]]]:
    now, columns = timezone.now(), columns_of(GROUPS, by)
    before = ExpressionWrapper(Cast("pending_seconds", IntegerField()) * Value(timedelta(seconds=1)), DurationField())
    began = ExpressionWrapper(F("phase_at") - before, DateTimeField())
    waited = Case(
        *(When(began__gt=now - timedelta(seconds=bound), then=place) for place, bound in enumerate(BOUNDS)),
        default=len(BOUNDS),
        output_field=IntegerField(),
    )
    waiting = rows.filter(phase__in=WAITING).order_by().alias(began=began)
    counted = waiting.annotate(waited=waited).values("waited", *columns).annotate(number=Count("pk"))
    for row in counted.order_by("waited", *columns):
        yield row["number"], [{"key": "PendingSeconds", "value": _class(row["waited"])}, *groups_in(row, GROUPS, by)]


def _class(place: int) -> str:
    low = BOUNDS[place - 1] if place else 0
    return f"{low}-{BOUNDS[place]}" if place < len(BOUNDS) else f"{low}-"
