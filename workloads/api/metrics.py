"""Metrics of one workload and of one pod: what their pods held and asked for, not what they used."""

from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import ObservedPod
from clusters.samples import Name
from portal.core.bodies import REFUSALS
from portal.core.errors import Absent
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.api.measuring import (
    NOT_GROUPED,
    MetricsSchema,
    Types,
    asked_metrics,
    metric_parameters,
    metrics,
    scaled,
)
from workloads.models import Workload
from workloads.over_time import CPU_ASKED, MEMORY_ASKED, PODS, RUNNING, TIMES, known_since, points
from workloads.selectors import workload_or_404

ANSWERS: Final[dict[int, Any]] = {200: MetricsSchema, 207: MetricsSchema, **REFUSALS}
_HELD: Final[Types] = {
    "GPU_ALLOCATION": scaled(Name.GPU_HELD, 1000),
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
_PER_GPU: Final = (
    "GPU_UTILIZATION",
    "GPU_MEMORY_USAGE_BYTES",
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

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_metrics",
        summary="Read a workload's metrics",
        parameters=metric_parameters(OF_WORKLOADS),
        responses=ANSWERS,
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """What its pods held and asked for. Partial where a type is not measured or pods are forgotten already."""
        workload = workload_or_404(actor_of(request), workload_id)
        return _answer(request, workload, _pods(workload), OF_WORKLOADS)


class PodMetrics(Route):
    """A pod over time."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_pod_metrics",
        summary="Read a pod's metrics",
        parameters=metric_parameters(OF_PODS),
        responses=ANSWERS,
    )
    def get(self, request: Request, workload_id: str, pod_id: UUID) -> Response:
        """What it held and asked for."""
        workload = workload_or_404(actor_of(request), workload_id)
        pods = _pods(workload).filter(uid=str(pod_id))
        if not pods.exists():
            raise Absent
        return _answer(request, workload, pods, OF_PODS)


def _pods(workload: Workload) -> QuerySet[ObservedPod]:
    return ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id).only(*TIMES)


def _answer(request: Request, workload: Workload, pods: QuerySet[ObservedPod], types: Types) -> Response:
    asked, now = asked_metrics(request.query_params, types), timezone.now()
    since = known_since(workload, now)
    found = points(pods, asked.window, since=since, now=now)
    response = metrics(asked, types, [(NOT_GROUPED, found)])
    if since > max(workload.created_at, asked.window.start):
        response.status_code = 207
    return response
