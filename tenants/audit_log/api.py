"""The audit trail as Run:ai's clients read it: by time, filtered, paged, or as a file."""

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.audit.models import AuditRecord
from portal.kit.api.lists import AFTER, ListSchema, filters, number_in, ordering, part_of, time_in, without_cursor
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import ERROR_RESPONSES, operation
from portal.kit.api.serializers import FILTERS as FILTERED
from portal.kit.errors import BadRequest
from portal.kit.security.request_identity import actor_of
from tenants.audit_log.selectors import readable_records
from tenants.audit_log.serializers import (
    ACTIONS,
    FILTERS,
    METHODS,
    SORTS,
    UPDATE,
    log_file,
    log_json,
    with_audit_columns,
)

SAMPLES: Final = 20
MOST_SAMPLES: Final = 1000
KINDS: Final = ("CSV", "JSON")
PERIOD: Final = [
    OpenApiParameter("start", OpenApiTypes.DATETIME, required=True),
    OpenApiParameter("end", OpenApiTypes.DATETIME, required=True),
    OpenApiParameter("numberOfSamples", int, description="Page size, 0 to 1000; default: 20."),
]


class AuditLogSchema(serializers.Serializer[Any]):
    """One record. Names are Run:ai's: here with underscores."""

    id = serializers.CharField()
    timestamp = serializers.DateTimeField()
    tenant_id = serializers.CharField()
    subject = serializers.CharField()
    subject_type = serializers.ChoiceField(choices=["User", "App"])
    source_ip = serializers.CharField(allow_null=True)
    http_method = serializers.ChoiceField(
        choices=METHODS, allow_null=True, help_text="HTTP method; null for background tasks."
    )
    url = serializers.CharField(allow_null=True, help_text="Path of the request, without its query string.")
    action = serializers.ChoiceField(choices=[*ACTIONS, UPDATE])
    result = serializers.ChoiceField(choices=["Succeeded", "Failed"])
    entity_type = serializers.CharField()
    entity_name = serializers.CharField(allow_blank=True)
    entity_id = serializers.CharField(allow_null=True)
    request_id = serializers.CharField(allow_null=True)
    metadata = serializers.DictField(child=serializers.CharField(allow_blank=True))


class AuditLogsSchema(ListSchema):
    """One page."""

    audit_logs = AuditLogSchema(many=True)
    total = serializers.IntegerField()


class AuditLogs(Route):
    """What the caller may read: a platform admin all of it, an owner their projects' part, everybody their own."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_audit_logs",
        "Read the audit log",
        AuditLogsSchema,
        parameters=[*PERIOD, OpenApiParameter("offset", int), AFTER, *FILTERED],
    )
    def get(self, request: Request) -> Response:
        """Newest first unless `sortBy` says otherwise."""
        query = request.query_params
        rows, size, order = _wanted(request), _samples(query), ordering(query, SORTS, "-at")
        if order in {"at", "-at"}:
            part = part_of(rows, request, order=order, size=size)
        else:
            part = without_cursor(_sorted(rows, query), request, size=size)
        return Response({"audit_logs": [log_json(row) for row in part.rows], "total": rows.count(), **part.ways_on})


class AuditFile(Route):
    """The same as a file."""

    access = {"GET": RoutePermission()}

    @extend_schema(
        operation_id="download_audit_logs",
        summary="Download the audit log",
        parameters=[
            *PERIOD,
            OpenApiParameter("fileType", str, enum=KINDS, description="Default: CSV."),
            OpenApiParameter("file_type", str, enum=KINDS, description="Same as above."),
            FILTERED[0],
        ],
        responses={
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR),
            (200, "application/json"): AuditLogSchema(many=True),
            **ERROR_RESPONSES,
        },
    )
    def get(self, request: Request) -> HttpResponse:
        """Records as rows of a table, or as a JSON array."""
        query = request.query_params
        kind = _kind(query)
        return log_file(_sorted(_wanted(request), query)[: _samples(query)], kind)


def _wanted(request: Request) -> QuerySet[AuditRecord]:
    """Readable records of the period, as the query narrows them."""
    query = request.query_params
    rows = with_audit_columns(readable_records(actor_of(request)))
    rows = rows.filter(at__gte=time_in(query, "start"), at__lte=time_in(query, "end"))
    return rows.filter(filters(query.get("filterBy", ""), FILTERS, actor_of(request)))


def _sorted(rows: QuerySet[AuditRecord], query: Mapping[str, str]) -> QuerySet[AuditRecord]:
    return rows.order_by(ordering(query, SORTS, "-at"), "-id")


def _samples(query: Mapping[str, str]) -> int:
    return number_in(query, "numberOfSamples", SAMPLES, 0, MOST_SAMPLES)


def _kind(query: Mapping[str, str]) -> str:
    """Their client says `fileType`, their documents `file_type`."""
    requested = (query.get("fileType") or query.get("file_type") or KINDS[0]).rpartition(".")[2].upper()
    if requested not in KINDS:
        raise BadRequest.at("/fileType", "out_of_range", "fileType is CSV or JSON.", allowed=KINDS)
    return requested
