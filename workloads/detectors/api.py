"""Findings over REST: what the detectors found in the caller's projects."""

from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import PAGES, Column, Columns, ListSchema, as_time, as_uuid, filters, ordering, part_of
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import FILTERS, operation, rendered
from portal.kit.errors import BadRequest, NotFound
from portal.kit.security.request_identity import actor_of
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.selectors import (
    STATES,
    ReadableFinding,
    checks_for,
    in_state,
    readable_findings,
    visible_findings,
)

COLUMNS: Final[Columns] = {
    "kind": Column("kind"),
    "clusterId": Column("cluster_id", as_uuid),
    "clusterName": Column("cluster__name"),
    "projectName": Column("project__name"),
    "workloadId": Column("workload_id", as_uuid),
    "nodePool": Column("pool_name"),
    "firstSeen": Column("first_seen", as_time),
    "lastSeen": Column("last_seen", as_time),
}
STATUS: Final = OpenApiParameter("status", str, enum=list(STATES), description="Default: all.")


class FindingSchema(serializers.Serializer[Any]):
    """One finding. A workload that the caller may not see is not named; `workloadId` is then null."""

    id = serializers.IntegerField()
    kind = serializers.CharField(help_text=", ".join(FindingKind))
    title = serializers.CharField()
    clusterId = serializers.UUIDField(source="finding.cluster_id")
    clusterName = serializers.CharField(source="finding.cluster.name")
    simulated = serializers.BooleanField(source="finding.cluster.is_simulated")
    projectName = serializers.CharField(allow_null=True)
    nodePool = serializers.CharField(source="finding.pool_name")
    workloadId = serializers.UUIDField(allow_null=True, source="finding.workload_id")
    workloadName = serializers.CharField(allow_null=True)
    evidence = serializers.ListField(child=serializers.CharField(), source="sentences")
    advice = serializers.CharField(source="advice_text")
    gpuHours = serializers.FloatField(help_text="What it has cost so far.")
    firstSeen = serializers.DateTimeField(source="finding.first_seen")
    lastSeen = serializers.DateTimeField(source="finding.last_seen")
    endedAt = serializers.DateTimeField(allow_null=True, source="finding.ended_at")


class FindingsSchema(ListSchema):
    """One page of findings, and how far the clusters are checked whose findings the caller may see."""

    findings = FindingSchema(many=True)
    checkedAt = serializers.DateTimeField(
        allow_null=True, help_text="The oldest last check of the clusters that are checked in turn; null: none is."
    )
    notChecked = serializers.ListField(
        child=serializers.CharField(), help_text="What was not checked where and why, as sentences."
    )


class FindingCollection(Route):
    """What the detectors found."""

    access = {"GET": RoutePermission()}

    @operation(
        "list_findings",
        "List findings of the detectors",
        FindingsSchema,
        description="Beyond Run:ai. Of your projects; findings about whole clusters for who manages these.",
        parameters=[*PAGES, *FILTERS, STATUS],
    )
    def get(self, request: Request) -> Response:
        """One page, last seen first unless `sortBy` says otherwise."""
        actor = actor_of(request)
        order = ordering(request.query_params, COLUMNS, "-last_seen")
        page = part_of(_wanted(request), request, order=order)
        found = [_json(each) for each in readable_findings(page.rows, actor)]
        checks = checks_for(actor, now=timezone.now())
        checked = {"checkedAt": checks.checked_at, "notChecked": list(checks.not_checked)}
        return Response({"findings": found, **checked, **page.ways_on})


class FindingDetail(Route):
    """One finding."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_finding", "Read a finding", FindingSchema, description="Beyond Run:ai.")
    def get(self, request: Request, finding_id: int) -> Response:
        """404 if it is absent or of a project that is not yours."""
        actor = actor_of(request)
        row = visible_findings(actor).filter(pk=finding_id).first()
        if row is None:
            raise NotFound
        return Response(_json(*readable_findings([row], actor)))


def _wanted(request: Request) -> QuerySet[Finding]:
    query, actor = request.query_params, actor_of(request)
    if (state := query.get("status", "")) and state not in STATES:
        raise BadRequest.at("/status", "unknown", f"One of {', '.join(STATES)}.", allowed=list(STATES))
    return in_state(visible_findings(actor).filter(filters(query.get("filterBy", ""), COLUMNS, actor)), state)


def _json(each: ReadableFinding) -> dict[str, Any]:
    row = each.finding
    return rendered(
        FindingSchema,
        each,
        id=row.pk,
        kind=row.kind,
        projectName=row.project.name if row.project else None,
        workloadName=row.workload.name if row.workload else None,
        gpuHours=round(row.gpu_seconds / 3600, 2),
    )
