"""Usage reports: the caller's own, asked for here and made by workers."""

from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.watch.models import Sample
from portal.kit.api.lists import Column, Columns, as_time, filters, ordering, without_cursor
from portal.kit.api.parsers import TENANT_ID, csv_response
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import (
    ERROR_RESPONSES,
    FILTERS,
    PAGES,
    ErrorSchema,
    operation,
    rendered,
    validated_body,
)
from portal.kit.security.request_identity import actor_of
from workloads.reports import services as reports_services
from workloads.reports.models import Report
from workloads.reports.selectors import reports_of
from workloads.reports.serializers import AvailabilitySchema, ReportBody, ReportSchema, ReportsSchema

OWN: Final = RoutePermission(at="self")
COLUMNS: Final[Columns] = {
    "name": Column("name"),
    "createdAt": Column("created_at", as_time),
    "createdBy": Column("subject_name"),
    "status": Column("status"),
}
SEARCH: Final = OpenApiParameter("search", str, description="In names.")


class Reports(Route):
    """The caller's own reports; new ones."""

    access = {"GET": OWN, "POST": OWN}

    @operation("list_reports", "List your reports", ReportsSchema, parameters=[*FILTERS, *PAGES, SEARCH])
    def get(self, request: Request) -> Response:
        """Oldest first unless `sortBy` says otherwise."""
        order = ordering(request.query_params, COLUMNS, "created_at")
        rows = without_cursor(_wanted(request).order_by(order, "pk"), request).rows
        return Response({"reports": [_json(row) for row in rows]})

    @operation(
        "create_report",
        "Create a report",
        ReportSchema,
        202,
        description="Created in the background: poll until its status is Ready or Failed. Kept for 30 days.",
        request=ReportBody,
    )
    def post(self, request: Request) -> Response:
        """The report, Pending."""
        body = validated_body(ReportBody, request.data)
        row = reports_services.create_report(
            name=body["name"],
            description=body.get("description") or "",
            start=body["start"],
            end=body["end"],
            group_by=body.get("groupBy") or "",
            filter_by=body.get("filterBy") or [],
            actor=actor_of(request),
        )
        return Response(_json(row), status=202)


class Availability(Route):
    """Whether a report would have anything to tell."""

    access = {"GET": RoutePermission()}

    @operation("are_reports_available", "Are reports available?", AvailabilitySchema)
    def get(self, request: Request) -> Response:
        """True once something has been measured."""
        return Response({"isAvailable": Sample.objects.exists()})


class ReportDetail(Route):
    """One of the caller's own reports."""

    access = {"GET": OWN, "DELETE": OWN}

    @operation("get_report_by_id", "Read a report", ReportSchema)
    def get(self, request: Request, report_id: UUID) -> Response:
        """404 for another subject's."""
        return Response(_json(reports_services.own_report(key=report_id, actor=actor_of(request))))

    @operation("delete_report_by_id", "Delete a report", status=204)
    def delete(self, request: Request, report_id: UUID) -> Response:
        """With its file."""
        reports_services.delete_report(key=report_id, actor=actor_of(request))
        return Response(status=204)


class ReportFile(Route):
    """The file of one of the caller's own reports."""

    access = {"GET": OWN}

    @extend_schema(
        operation_id="download_report_by_id",
        summary="Download a report",
        description="CSV; the file does not change. Run:ai's client expects JSON and cannot read it.",
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR), 409: ErrorSchema, **ERROR_RESPONSES},
    )
    def get(self, request: Request, report_id: UUID) -> HttpResponse:
        """409 until it is ready."""
        row, text = reports_services.file_of_report(key=report_id, actor=actor_of(request))
        return csv_response(text, name=row.name)


def _wanted(request: Request) -> QuerySet[Report]:
    """The caller's own, as the query narrows them."""
    query = request.query_params
    rows = reports_of(actor_of(request)).filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
    return rows.filter(name__icontains=text) if (text := query.get("search", "").replace("\x00", "")) else rows


ReportCount = count_route(
    "count_reports",
    "Count your reports",
    "Under the same filters as the list.",
    _wanted,
    access=OWN,
    parameters=[FILTERS[0], SEARCH],
)


def _json(row: Report) -> dict[str, Any]:
    group, message = row.group_by or None, row.message or None
    return rendered(ReportSchema, row, groupBy=group, tenantId=TENANT_ID, statusMessage=message)
