"""Metrics of clusters, node pools, nodes, departments and projects, sampled every minute; telemetry of nodes now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import BigIntegerField, Count, F, Q, Sum
from django.db.models.functions import Greatest
from django.db.models.lookups import Exact
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.selectors import (
    ALL,
    CLUSTER,
    NODE_POOL,
    Metric,
    SampleOwner,
    SeriesPoint,
    allocated_on_node,
    series_of,
)
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, rendered
from portal.kit.errors import NotFound
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_departments, visible_projects
from tenants.quotas.api.pool_quotas import text_in
from tenants.usage.api import CLUSTER_ID, METRIC_RESPONSES, node_pool_in
from tenants.usage.selectors import DEPARTMENT, PROJECT, SPANS
from tenants.usage.serializers import (
    NOT_GROUPED,
    POOL,
    Group,
    GroupColumns,
    MetricsQuery,
    TelemetrySchema,
    Types,
    metric_parameters,
    metrics,
    parse_metrics_query,
    parse_telemetry_type,
    parse_uuid,
    parse_words,
    scaled,
    sums_by_group,
    telemetry,
    telemetry_parameters,
)
from workloads.lifecycle.api.metrics import PROFILED
from workloads.lifecycle.selectors.activity import (
    CAUSES,
    MOST_WAITS,
    EvictionColumn,
    WaitingReason,
    eviction_history,
    waiting_by_reason,
    waits_by_priority,
)


def _unallocated(figures: Any) -> float | None:
    if Metric.GPU_TOTAL not in figures:
        return None
    return float(max(figures[Metric.GPU_TOTAL] - figures.get(Metric.GPU_HELD, 0), 0)) / 1000


def _average_wait(figures: Any) -> float | None:
    """Average seconds that waiting workloads have waited so far; None while none waits."""
    return float(figures[Metric.WAITED] / figures[Metric.WAITING]) if figures.get(Metric.WAITING) else None


PHYSICAL: Final[Types] = {
    "TOTAL_GPU_NODES": scaled(Metric.GPU_NODES),
    "GPU_UTILIZATION": None,
    "GPU_UTILIZATION_DISTRIBUTION": None,
    "GPU_MEMORY_UTILIZATION": None,
    "CPU_UTILIZATION": None,
    "CPU_MEMORY_UTILIZATION": None,
    "TOTAL_GPU": scaled(Metric.GPU_TOTAL, 1000),
    "GPU_QUOTA": scaled(Metric.GPU_DESERVED, 1000),
    "ALLOCATED_GPU": scaled(Metric.GPU_HELD, 1000),
    "UNALLOCATED_GPU": _unallocated,
    "AVG_WORKLOAD_WAIT_TIME": _average_wait,
    "WORKLOADS_COUNT": scaled(Metric.WORKLOADS),
}
_PER_GPU: Final = (
    "GPU_UTILIZATION",
    "GPU_MEMORY_UTILIZATION",
    "GPU_MEMORY_USAGE_BYTES",
    "GPU_ALLOCATION",
    "GPU_MEMORY_ALLOCATION_BYTES",
    "GPU_IDLE_TIME_SECONDS",
    "GPU_OOMKILL_BURST_COUNT",
    "GPU_OOMKILL_IDLE_COUNT",
    "GPU_OOMKILL_SWAP_OUT_OF_RAM_COUNT",
    *PROFILED,
    "NVLINK_BANDWIDTH_TOTAL",
)
_PER_NODE: Final = (
    "GPU_UTILIZATION",
    "GPU_MEMORY_UTILIZATION",
    "GPU_MEMORY_USAGE_BYTES",
    "CPU_USAGE_CORES",
    "CPU_UTILIZATION",
    "CPU_MEMORY_USAGE_BYTES",
    "CPU_MEMORY_UTILIZATION",
    "NVLINK_BANDWIDTH_TOTAL",
)
OF_NODES: Final[Types] = dict.fromkeys((*_PER_NODE, *(f"{name}_PER_GPU" for name in _PER_GPU)))
"""What an exporter on the node would measure; Rung reads none."""
GROUPS: Final = ("Category", "Nodepool", "Project", "Department")
GROUPED: Final = OpenApiParameter("groupBy", str, enum=GROUPS, description="No data by category.")


class ClusterMetrics(Route):
    """A cluster over time."""

    access = {"GET": RoutePermission(at="cluster")}

    @operation(
        "get_cluster_metrics",
        "Read a cluster's metrics",
        METRIC_RESPONSES,
        parameters=metric_parameters(PHYSICAL, POOL, GROUPED),
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """The whole cluster or one node pool, or one measurement per pool, project or department you may see."""
        cluster, query = _cluster(cluster_id), request.query_params
        requested, pool = parse_metrics_query(query, PHYSICAL), node_pool_in(request, cluster)
        group = parse_words(query, "groupBy", GROUPS, most=1)
        if not group:
            return metrics(requested, PHYSICAL, [(NOT_GROUPED, _points(_of(pool or cluster), requested))])
        if group == ("Category",):
            return Response(metrics(requested, PHYSICAL, []).data, status=207)
        return metrics(requested, PHYSICAL, _grouped(group[0], actor_of(request), cluster, pool, requested))


class PoolMetrics(Route):
    """A node pool over time."""

    access = {"GET": RoutePermission(at="cluster")}

    @operation(
        "get_nodepool_metrics", "Read a node pool's metrics", METRIC_RESPONSES, parameters=metric_parameters(PHYSICAL)
    )
    def get(self, request: Request, cluster_id: UUID, pool_name: str) -> Response:
        """One measurement per type."""
        pool = _cluster(cluster_id).node_pools.filter(name=pool_name).first()
        if pool is None:
            raise NotFound
        requested = parse_metrics_query(request.query_params, PHYSICAL)
        return metrics(requested, PHYSICAL, [(NOT_GROUPED, _points(_of(pool), requested))])


class NodeMetrics(Route):
    """A node over time: Rung measures nothing of what Run:ai's exporters do."""

    access = {"GET": RoutePermission(at="cluster")}

    @operation("get_node_metrics", "Read a node's metrics", METRIC_RESPONSES, parameters=metric_parameters(OF_NODES))
    def get(self, request: Request, node_id: int) -> Response:
        """Always partial, and empty."""
        if not Node.objects.filter(pk=node_id).exists():
            raise NotFound
        return metrics(parse_metrics_query(request.query_params, OF_NODES), OF_NODES, [])


class WaitingReasonSchema(serializers.Serializer[Any]):
    """Workloads that wait now for one reason."""

    code = serializers.CharField(allow_blank=True, help_text="Empty: no reason is known yet.")
    reason = serializers.CharField()
    workloads = serializers.IntegerField()
    gpus = serializers.FloatField(help_text="Requested by all of them.")
    since = serializers.DateTimeField(help_text="When the longest current wait began.")


class EvictionPeriodSchema(serializers.Serializer[Any]):
    """Evictions in one hour or day. Pods of one workload that one decision evicted count once."""

    at = serializers.DateTimeField()
    causes = serializers.DictField(child=serializers.IntegerField(), help_text=f"By cause: {', '.join(CAUSES)}.")
    lostGpuHours = serializers.FloatField()


class PriorityWaitSchema(serializers.Serializer[Any]):
    """Seconds that workloads of one priority waited in all before the run that started in the span."""

    priority = serializers.CharField()
    value = serializers.IntegerField()
    workloads = serializers.IntegerField()
    medianSeconds = serializers.FloatField(source="median")
    p90Seconds = serializers.FloatField(source="p90")


class ActivitySchema(serializers.Serializer[Any]):
    """Counts and sums of all projects of the cluster; no names."""

    clusterName = serializers.CharField()
    simulated = serializers.BooleanField()
    since = serializers.DateTimeField(help_text="When the first period begins, in UTC.")
    period = serializers.ChoiceField(choices=["hour", "day"])
    waiting = WaitingReasonSchema(many=True)
    evictions = EvictionPeriodSchema(many=True)
    waits = PriorityWaitSchema(
        many=True, help_text=f"Of the {MOST_WAITS:,} workloads that changed last, if more started in the span."
    )


SPAN: Final = OpenApiParameter(
    "span", str, enum=list(SPANS), description=f"How far back. Default: {next(iter(SPANS))}."
)


class ClusterActivity(Route):
    """What happened in a cluster lately."""

    access = {"GET": RoutePermission(at="cluster")}

    @operation(
        "get_cluster_activity",
        "Read what waits, evictions and waits of a cluster",
        ActivitySchema,
        description="Beyond Run:ai. As on the cluster's tab Activity.",
        parameters=[SPAN],
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """What waits now and why; evictions and waits of the span."""
        cluster, now = _cluster(cluster_id), timezone.now()
        span = (parse_words(request.query_params, "span", SPANS, most=1) or tuple(SPANS))[0]
        history = eviction_history(cluster, span, now=now)
        waits = waits_by_priority(cluster, since=now - SPANS[span][0])
        return Response(
            {
                "clusterName": cluster.name,
                "simulated": cluster.is_simulated,
                "since": history.since,
                "period": "day" if history.daily else "hour",
                "waiting": [_waiting_json(each) for each in waiting_by_reason(cluster)],
                "evictions": [_evictions_json(each) for each in history.columns],
                "waits": [rendered(PriorityWaitSchema, each) for each in waits],
            }
        )


def _waiting_json(each: WaitingReason) -> dict[str, Any]:
    return rendered(WaitingReasonSchema, each, gpus=each.gpu_milli / 1000)


def _evictions_json(each: EvictionColumn) -> dict[str, Any]:
    causes = {str(bar.cause): bar.number for bar in each.bars}
    return rendered(EvictionPeriodSchema, each, causes=causes, lostGpuHours=round(each.lost_gpu_seconds / 3600, 2))


def _cluster(key: UUID) -> Cluster:
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def _of(thing: Cluster | NodePool) -> SampleOwner:
    return SampleOwner(CLUSTER if isinstance(thing, Cluster) else NODE_POOL, str(thing.pk))


def _points(owner: SampleOwner, requested: MetricsQuery) -> Sequence[SeriesPoint]:
    return series_of([owner], requested.window).get(owner, [])


def _grouped(
    by: str, actor: Actor, cluster: Cluster, pool: NodePool | None, requested: MetricsQuery
) -> Iterable[tuple[Sequence[Group], Sequence[SeriesPoint]]]:
    """By name. What is not the caller's to see is not among them."""
    if by == "Nodepool":
        named = {_of(each): each.name for each in ([pool] if pool else cluster.node_pools.order_by("name"))}
        part = ALL
    else:
        kind = PROJECT if by == "Project" else DEPARTMENT
        rows = visible_projects(actor) if by == "Project" else visible_departments(actor)
        pairs = rows.filter(cluster=cluster).order_by("name").values_list("pk", "name")
        named = {SampleOwner(kind, str(pk)): name for pk, name in pairs}
        part = pool.name if pool else ALL
    found = series_of(list(named), requested.window, pool=part)
    return [([{"key": by, "value": name}], found.get(owner, [])) for owner, name in named.items()]


MILLI: Final = 1000
_GPU_NODES: Final = Q(gpu_milli__gt=0)
_READY: Final = Q(ready=True)
_USABLE: Final = Q(ready=True, unschedulable=False)
_HELD: Final = allocated_on_node("gpu_milli")
_FREE: Final = Greatest(F("gpu_milli") - _HELD, 0, output_field=BigIntegerField())
NODE_TELEMETRY: Final[Mapping[str, tuple[Any, float] | None]] = {
    "READY_GPU_NODES": (Count("pk", filter=_GPU_NODES & _READY), 1),
    "READY_GPUS": (Sum("gpu_milli", filter=_READY), MILLI),
    "TOTAL_GPU_NODES": (Count("pk", filter=_GPU_NODES), 1),
    "TOTAL_GPUS": (Sum("gpu_milli"), MILLI),
    "IDLE_ALLOCATED_GPUS": None,
    "FREE_GPUS": (Sum(_FREE, filter=_USABLE), MILLI),
    "ALLOCATED_GPUS": (Sum(_HELD), MILLI),
    "TOTAL_CPU_CORES": (Sum("cpu_milli"), MILLI),
    "USED_CPU_CORES": None,
    "ALLOCATED_CPU_CORES": (Sum(allocated_on_node("cpu_milli")), MILLI),
    "TOTAL_GPU_MEMORY_BYTES": None,
    "USED_GPU_MEMORY_BYTES": None,
    "TOTAL_CPU_MEMORY_BYTES": (Sum("memory_bytes"), 1),
    "USED_CPU_MEMORY_BYTES": None,
    "ALLOCATED_CPU_MEMORY_BYTES": (Sum(allocated_on_node("memory_bytes")), 1),
    "FULLY_FREE_GPU_NODES": (Count("pk", filter=_GPU_NODES & _USABLE & Q(Exact(_HELD, 0))), 1),
}
"""What is added up of nodes, and its unit. None: nothing that Rung reads measures it."""
NODE_GROUPS: Final[GroupColumns] = {
    "ClusterId": ("cluster_id", "cluster__name"),
    "Nodepool": ("pool__name", ""),
    "Node": ("name", ""),
}


class NodeTelemetry(Route):
    """Nodes now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_node_telemetry",
        "Read node telemetry",
        TelemetrySchema,
        parameters=telemetry_parameters(NODE_TELEMETRY, NODE_GROUPS, CLUSTER_ID, POOL),
    )
    def get(self, request: Request) -> Response:
        """One number, or one per group. None at all of a type that Rung does not measure."""
        query = request.query_params
        name = parse_telemetry_type(query, NODE_TELEMETRY)
        by = parse_words(query, "groupBy", NODE_GROUPS, most=2)
        summed = NODE_TELEMETRY[name]
        cluster, pool = parse_uuid(query, "clusterId"), text_in(request, "nodepoolName")
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pool__name=pool) if pool else Q())
        if summed is None:
            return telemetry(name, [])
        number, unit = summed
        return telemetry(name, sums_by_group(Node.objects.filter(wanted), number, NODE_GROUPS, by, unit=unit))
