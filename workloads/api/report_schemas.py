"""What the routes of reports take and answer. Shapes and keys are Run:ai's."""

from typing import Any

from rest_framework import serializers

from workloads.models import ReportGroup, ReportStatus
from workloads.report_requests import FIELDS

FILTER_HELP = f"Up to one of each, all must hold: {', '.join(f'{field}==…' for field in FIELDS)}."


class ReportBody(serializers.Serializer[Any]):
    """A report as it is asked for."""

    name = serializers.CharField(max_length=100)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=500)
    start = serializers.DateTimeField(help_text="Times without a zone are UTC.")
    end = serializers.DateTimeField()
    groupBy = serializers.ChoiceField(
        choices=ReportGroup.values, required=False, allow_null=True, help_text="Without it: by cluster."
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
    createdBy = serializers.CharField()
    tenantId = serializers.IntegerField()
    status = serializers.ChoiceField(choices=ReportStatus.values)
    statusUpdatedAt = serializers.DateTimeField()
    statusMessage = serializers.CharField(
        allow_null=True, help_text="How much of the time was measured, or why there is no file."
    )


class ReportsSchema(serializers.Serializer[Any]):
    """One page; as Run:ai's, it does not name the next one."""

    reports = ReportSchema(many=True)


class AvailabilitySchema(serializers.Serializer[Any]):
    """Whether reports have anything to tell."""

    isAvailable = serializers.BooleanField()
