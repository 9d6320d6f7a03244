"""What routes of metrics and telemetry are asked, and how they answer. Shapes and words are Run:ai's.

Numbers go out as text. A part of the window in which nothing was sampled has no value, and a type that Rung does not
measure has none at all: then the answer is partial, 207.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response

from clusters.watch.selectors import SeriesPoint, TimeWindow
from portal.kit.api.lists import id_number, number_in, time_in
from portal.kit.api.parsers import rfc3339
from portal.kit.api.serializers import schema
from portal.kit.errors import BadRequest
from scheduling.model.resources import MILLI
from tenants.usage.selectors import Borrowing

Reading = Callable[[Mapping[str, float]], float | None]
"""A type's number from the figures of a sample; None: they do not hold it."""
Types = Mapping[str, Reading | None]
"""None: a type that Run:ai has and Rung does not measure."""
Group = Mapping[str, str]
GroupColumns = Mapping[str, tuple[str, str]]
"""By `groupBy`: the column of a group's value, and of its name where it has one."""
NOT_GROUPED: Final[Sequence[Group]] = ()

SAMPLES: Final = 20
MOST_SAMPLES: Final = 1000
LONGEST: Final = timedelta(days=400)
"""Nothing older is kept."""


@dataclass(frozen=True, slots=True)
class MetricsQuery:
    """Types in the order asked, and when."""

    types: tuple[str, ...]
    window: TimeWindow


def parse_metrics_query(query: QueryDict, types: Collection[str]) -> MetricsQuery:
    """`metricType`, `start`, `end` and `numberOfSamples`. Raises BadRequest at the parameter."""
    chosen = parse_words(query, "metricType", types)
    if not chosen:
        raise BadRequest.at("/metricType", "required", "Send at least one metricType.", allowed=types)
    start, end = time_in(query, "start"), time_in(query, "end")
    if not start < end:
        raise BadRequest.at("/end", "out_of_range", "end must be after start.")
    if end - start > LONGEST:
        raise BadRequest.at("/start", "out_of_range", f"The period must be at most {LONGEST.days} days.")
    return MetricsQuery(chosen, TimeWindow(start, end, number_in(query, "numberOfSamples", SAMPLES, 0, MOST_SAMPLES)))


def parse_words(query: QueryDict, name: str, allowed: Collection[str], *, most: int | None = None) -> tuple[str, ...]:
    """Known words of a comma list, each once, as they are spelled here. Names of enum members are understood."""
    known = {_plain(word): word for word in allowed}
    names = [each for each in ",".join(query.getlist(name)).split(",") if each]
    found = tuple(dict.fromkeys(known.get(_plain(each.rpartition(".")[2]), "") for each in names))
    if "" in found:
        wrong = next(each for each in names if _plain(each.rpartition(".")[2]) not in known)
        raise BadRequest.at(f"/{name}", "unknown", f"{wrong[:80]!r} is not a valid {name}.", allowed=allowed)
    if most is not None and len(found) > most:
        raise BadRequest.at(f"/{name}", "out_of_range", f"At most {most} of {name}.")
    return found


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()


def parse_telemetry_type(query: QueryDict, types: Collection[str]) -> str:
    """The one `telemetryType`. Raises BadRequest."""
    found = parse_words(query, "telemetryType", types, most=1)
    if not found:
        raise BadRequest.at("/telemetryType", "required", "Send a telemetryType.", allowed=types)
    return found[0]


def parse_uuid(query: Mapping[str, str], name: str) -> UUID | None:
    """An id of the query string, None when absent. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise BadRequest.at(f"/{name}", "not_an_id", f"{name} must be an id.") from None


def parse_key(query: Mapping[str, str], name: str) -> int | None:
    """A numeric id of the query string, None when absent. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    key = id_number(text)
    if key is None:
        raise BadRequest.at(f"/{name}", "not_an_id", f"{name} must be an id.")
    return key


def metrics(
    requested: MetricsQuery, types: Types, parts: Iterable[tuple[Sequence[Group], Sequence[SeriesPoint]]]
) -> Response:
    """One measurement per type and part. A part that says nothing of any type is left out where there are several."""
    rows = [_measurement(name, types[name], groups, points) for groups, points in parts for name in requested.types]
    measurements = [row for row in rows if row["values"] or not row.get("groups")]
    measurements += [
        _measurement(name, None, (), ())
        for name in requested.types
        if name not in {row["type"] for row in measurements}
    ]
    whole = all(types[name] is not None for name in requested.types)
    return Response({"measurements": measurements}, status=200 if whole else 207)


def _measurement(
    name: str, reading: Reading | None, groups: Sequence[Group], points: Sequence[SeriesPoint]
) -> dict[str, Any]:
    read = [(point.at, reading(point.figures)) for point in points] if reading else []
    values = [{"value": number_text(number), "timestamp": rfc3339(at)} for at, number in read if number is not None]
    return {"type": name, "labels": None, "values": values, **({"groups": list(groups)} if groups else {})}


def telemetry(name: str, values: Iterable[tuple[float, Sequence[Group]]]) -> Response:
    measurements = [{"value": number_text(number), "groups": list(groups)} for number, groups in values]
    return Response({"type": name, "timestamp": rfc3339(timezone.now()), "values": measurements})


def columns_of(groups: GroupColumns, by: Sequence[str]) -> list[str]:
    return [path for each in by for path in groups[each] if path]


def groups_in(row: Mapping[str, Any], groups: GroupColumns, by: Sequence[str]) -> list[Group]:
    """The groups of a row of `columns_of`."""
    return [
        {"key": each, "value": _group_text(row[column]), **({"name": str(row[name])} if name else {})}
        for each, (column, name) in ((each, groups[each]) for each in by)
    ]


def _group_text(value: object) -> str:
    return "" if value is None else str(value)


def sums_by_group(
    rows: QuerySet[Any], number: Any, groups: GroupColumns, by: Sequence[str], *, unit: float = 1
) -> list[tuple[float, Sequence[Group]]]:
    """The aggregate `number` in units of `unit`: one, also of no rows, or one per group. One query."""
    if not by:
        return [((rows.order_by().aggregate(number=number)["number"] or 0) / unit, NOT_GROUPED)]
    order = [name or column for column, name in (groups[each] for each in by)]
    found = rows.order_by(*order).values(*columns_of(groups, by)).annotate(number=number)
    return [((row["number"] or 0) / unit, groups_in(row, groups, by)) for row in found]


def number_text(number: float) -> str:
    """A number as text: plain, at most six places."""
    text = f"{number:.6f}".rstrip("0").rstrip(".")
    return "0" if text in {"", "-0"} else text


def scaled(name: str, size: float = 1) -> Reading:
    """The figure of that name in units of `size`."""

    def read(figures: Mapping[str, float]) -> float | None:
        return figures[name] / size if name in figures else None

    return read


class ValueSchema(serializers.Serializer[Any]):
    """A number as text, and when."""

    value = serializers.CharField()
    timestamp = serializers.DateTimeField(allow_null=True)


class GroupSchema(serializers.Serializer[Any]):
    """What a number is of."""

    key = serializers.CharField()
    value = serializers.CharField()
    name = serializers.CharField(required=False)


class MeasurementSchema(serializers.Serializer[Any]):
    """One type's numbers; none where Rung does not measure it."""

    type = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField(), allow_null=True)
    values = ValueSchema(many=True)
    groups = GroupSchema(many=True, required=False)


MetricsSchema = schema("MetricsSchema", "Metrics.", measurements=MeasurementSchema(many=True))


class TelemetryValueSchema(serializers.Serializer[Any]):
    """A number as text, and of what."""

    value = serializers.CharField()
    groups = GroupSchema(many=True)


class TelemetrySchema(serializers.Serializer[Any]):
    """Telemetry."""

    type = serializers.CharField()
    timestamp = serializers.DateTimeField()
    values = TelemetryValueSchema(many=True)


class LoanSchema(serializers.Serializer[Any]):
    """GPUs borrowed from others, or lent to them, in a node pool."""

    nodePool = serializers.CharField()
    direction = serializers.ChoiceField(["borrowed", "lent"])
    counterparty = serializers.CharField(
        help_text='A project; "other projects" where you may not see them; quota or capacity of no project in words.'
    )
    gpus = serializers.FloatField(help_text="At the last sample (`end`).")
    since = serializers.DateTimeField(
        allow_null=True, help_text="Of the loan at the last sample. `start`: at least so long."
    )
    gpuHours = serializers.FloatField(help_text="In the whole period.")


class ReclaimedSchema(serializers.Serializer[Any]):
    """A running workload that would be reclaimed, in this order, until the loan of its pool is covered."""

    nodePool = serializers.CharField()
    workloadId = serializers.CharField(allow_blank=True)
    workload = serializers.CharField()
    gpus = serializers.FloatField()


class BorrowingSchema(serializers.Serializer[Any]):
    """Who borrows from whom. start, end: first and last sample; null where there is none."""

    basis = serializers.CharField()
    start = serializers.DateTimeField(allow_null=True)
    end = serializers.DateTimeField(allow_null=True)
    sampleSeconds = serializers.IntegerField()
    loans = LoanSchema(many=True)
    reclaimOrder = ReclaimedSchema(many=True)


def borrowing_json(found: Borrowing, basis: str) -> dict[str, Any]:
    """As the page shows it, GPUs to a hundredth."""
    return {
        "basis": basis,
        "start": rfc3339(found.start) if found.start else None,
        "end": rfc3339(found.end) if found.end else None,
        "sampleSeconds": int(found.every.total_seconds()),
        "loans": [
            {
                "nodePool": each.pool,
                "direction": each.direction,
                "counterparty": each.counterparty,
                "gpus": round(each.gpu / MILLI, 2),
                "since": rfc3339(each.since) if each.since else None,
                "gpuHours": round(each.gpu_hours, 2),
            }
            for each in found.rows
        ],
        "reclaimOrder": [
            {
                "nodePool": pool,
                "workloadId": each.workload_id,
                "workload": each.label,
                "gpus": each.held.gpu / MILLI,
            }
            for pool, work in found.reclaimed.items()
            for each in work
        ],
    }


POOL: Final = OpenApiParameter("nodepoolName", str, description="Only this node pool.")


def metric_parameters(types: Collection[str], *more: OpenApiParameter) -> list[OpenApiParameter]:
    """The query of a metrics route, for the OpenAPI document."""
    return [
        OpenApiParameter("metricType", str, required=True, description=f"Comma-separated: {', '.join(types)}."),
        OpenApiParameter("start", datetime, required=True),
        OpenApiParameter("end", datetime, required=True),
        OpenApiParameter("numberOfSamples", int, description="0 to 1000; default: 20."),
        *more,
    ]


def telemetry_parameters(
    types: Collection[str], groups: Collection[str], *more: OpenApiParameter
) -> list[OpenApiParameter]:
    """The query of a telemetry route, for the OpenAPI document."""
    return [
        OpenApiParameter("telemetryType", str, required=True, enum=list(types)),
        OpenApiParameter("groupBy", str, description=f"At most two of {', '.join(groups)}."),
        *more,
    ]
