"""Usage reports as REST sends and accepts them. Keys are Run:ai's."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from rest_framework import serializers

from portal.kit.api.parsers import rfc3339
from portal.kit.pages.api_snippets import ApiRequest
from workloads.reports.models import Report, ReportGroup, ReportStatus
from workloads.reports.rules import CLUSTER_ID, DEPARTMENT_NAME, FIELDS, PROJECT_NAME

FILTER_HELP = f"At most one of each, combined with AND: {', '.join(f'{field}==…' for field in FIELDS)}."


class ReportBody(serializers.Serializer[Any]):
    """A report as it is asked for."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=500)
    start = serializers.DateTimeField(help_text="Times without a time zone are UTC.")
    end = serializers.DateTimeField()
    groupBy = serializers.ChoiceField(
        choices=ReportGroup.values, required=False, allow_null=True, help_text="Default: cluster."
    )
    filterBy = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        allow_null=True,
        max_length=len(FIELDS),
        help_text=FILTER_HELP,
    )


class ReportSchema(serializers.Serializer[Any]):
    """A report, without its file."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    groupBy = serializers.ChoiceField(choices=ReportGroup.values, allow_null=True)
    filterBy = serializers.ListField(child=serializers.CharField())
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(source="subject_name")
    tenantId = serializers.IntegerField()
    status = serializers.ChoiceField(choices=ReportStatus.values)
    statusUpdatedAt = serializers.DateTimeField(source="status_at")
    statusMessage = serializers.CharField(allow_null=True, help_text="Measurement coverage, or why there is no file.")


class ReportsSchema(serializers.Serializer[Any]):
    """One page; as Run:ai's, it does not name the next one."""

    reports = ReportSchema(many=True)


class AvailabilitySchema(serializers.Serializer[Any]):
    """Whether reports have anything to tell."""

    isAvailable = serializers.BooleanField()


REPORTS: Final = "/api/v1/org-unit/reports"


def report_delete_request(report: Report) -> ApiRequest:
    key = str(report.pk)
    words = ("reports", "delete", key, "--yes")
    return ApiRequest(
        "DELETE", f"{REPORTS}/{key}", None, "organizations.reports.delete_report_by_id", (key,), rung=words
    )


def report_create_request(requested: Mapping[str, Any]) -> ApiRequest:
    body = {
        "name": requested["name"],
        "start": rfc3339(requested["start"]),
        "end": rfc3339(requested["end"]),
        "groupBy": requested["group_by"],
        **({"filterBy": requested["filter_by"]} if requested["filter_by"] else {}),
    }
    return ApiRequest("POST", REPORTS, body, "organizations.reports.create_report", rung=_made_by_rung(requested))


def _made_by_rung(requested: Mapping[str, Any]) -> tuple[str, ...]:
    """Its days are whole ones: the last has only come as far as it has."""
    last = (requested["end"] - timedelta(microseconds=1)).date()
    days = ("--from", f"{requested['start']:%Y-%m-%d}", "--to", f"{last:%Y-%m-%d}")
    places = [part for each in requested["filter_by"] for part in _place_flag(*each.split("==", 1))]
    by = {"Nodepool": "node-pool"}.get(requested["group_by"], requested["group_by"].lower())
    return ("reports", "make", "--no-wait", *days, "--by", by, *places, "--", requested["name"])


def _place_flag(field: str, value: str) -> tuple[str, str]:
    return {PROJECT_NAME: "--project", DEPARTMENT_NAME: "--department", CLUSTER_ID: "--cluster"}[field], value
