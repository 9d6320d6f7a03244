"""Workloads in numbers of now, from current rows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

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
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import REFUSALS
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.api.measuring import (
    POOL,
    Group,
    TelemetrySchema,
    asked_telemetry,
    key_in,
    telemetry,
    telemetry_parameters,
    uuid_in,
    words_in,
)
from workloads.lifecycle import WAITING
from workloads.models import Phase, Workload
from workloads.selectors import visible_workloads

COUNT: Final = "WORKLOADS_COUNT"
HELD: Final = "GPU_ALLOCATION"
WAITS: Final = "PENDING_TIME_DISTRIBUTION"
TYPES: Final = (COUNT, HELD, WAITS)
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "ClusterId": ("project__cluster_id", "project__cluster__name"),
    "DepartmentId": ("project__department_id", "project__department__name"),
    "ProjectId": ("project_id", "project__name"),
    "Type": ("type__name", ""),
    "CurrentNodepools": ("pool_name", ""),
    "Phase": ("phase", ""),
    "Category": ("category", ""),
}
"""The column of a group, and where it has a name of its own."""
BOUNDS: Final = (60, 600, 3600, 24 * 3600)
"""Seconds that part the classes of waiting."""


class Telemetry(Route):
    """Workloads of every type that the caller may see, counted."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_workloads_telemetry",
        summary="Read workloads in numbers",
        parameters=telemetry_parameters(
            TYPES,
            GROUPS,
            OpenApiParameter("clusterId", str),
            POOL,
            OpenApiParameter("departmentId", str),
            OpenApiParameter("filterByPhases", str, description="Comma list of phases; absent: all."),
        ),
        responses={200: TelemetrySchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One number, or one per group. How long those that wait have waited is told in classes of seconds."""
        name = asked_telemetry(request.query_params, TYPES)
        by = words_in(request.query_params, "groupBy", GROUPS, most=1 if name == WAITS else 2)
        rows = _wanted(request)
        return telemetry(name, _waits(rows, by) if name == WAITS else _sums(rows, by, name))


def _wanted(request: Request) -> QuerySet[Workload]:
    query = request.query_params
    phases = words_in(query, "filterByPhases", Phase.values)
    cluster, department = uuid_in(query, "clusterId"), key_in(query, "departmentId")
    wanted = Q(phase__in=phases) if phases else Q()
    wanted &= Q(project__cluster=cluster) if cluster else Q()
    wanted &= Q(project__department=department) if department else Q()
    pool = query.get("nodepoolName", "").replace("\x00", "")
    return visible_workloads(actor_of(request)).filter(wanted, Q(pool_name=pool) if pool else Q())


def _columns(by: Sequence[str]) -> list[str]:
    return [path for each in by for path in GROUPS[each] if path]


def _groups(by: Sequence[str], row: Mapping[str, Any]) -> list[Group]:
    return [
        {"key": each, "value": str(row[column]), **({"name": str(row[name])} if name else {})}
        for each, (column, name) in ((each, GROUPS[each]) for each in by)
    ]


def _sums(rows: QuerySet[Workload], by: Sequence[str], name: str) -> Iterable[tuple[float, Sequence[Group]]]:
    number: Any = Count("pk") if name == COUNT else Sum("allocated_gpu_milli")
    size = 1 if name == COUNT else 1000
    if not by:
        return [((rows.aggregate(number=number)["number"] or 0) / size, [])]
    columns = _columns(by)
    found = rows.order_by(*columns).values(*columns).annotate(number=number)
    return [((row["number"] or 0) / size, _groups(by, row)) for row in found]


def _waits(rows: QuerySet[Workload], by: Sequence[str]) -> Iterable[tuple[float, Sequence[Group]]]:
    now, columns = timezone.now(), _columns(by)
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
        yield row["number"], [{"key": "PendingSeconds", "value": _class(row["waited"])}, *_groups(by, row)]


def _class(place: int) -> str:
    low = BOUNDS[place - 1] if place else 0
    return f"{low}-{BOUNDS[place]}" if place < len(BOUNDS) else f"{low}-"
