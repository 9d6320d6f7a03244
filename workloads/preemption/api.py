"""Evictions over REST: the pods that schedulers evicted from the caller's projects."""

from collections.abc import Collection
from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import (
    PAGES,
    Column,
    Columns,
    KnownWords,
    ListSchema,
    as_time,
    as_uuid,
    filters,
    ordering,
    part_of,
)
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, operation, rendered
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import CLUSTER_ID, POOL_NAME, PROJECT_NAME, visible_among, visible_projects
from workloads.preemption.models import PreemptionCause, PreemptionRecord

COLUMNS: Final[Columns] = {
    "at": Column("at", as_time),
    "cause": Column("cause", known=KnownWords(PreemptionCause.values)),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "clusterName": Column("cluster__name"),
    "nodePool": Column("victim__pool_name", known=POOL_NAME),
    "projectName": Column("victim__project__name", known=PROJECT_NAME),
    "workloadId": Column("victim_id", as_uuid),
    "workloadName": Column("victim__name"),
}
PARAMETERS: Final[list[OpenApiParameter]] = [*FILTERS, *PAGES]


class EvictionSchema(serializers.Serializer[Any]):
    """One evicted pod. Pods that one decision evicted as a gang share their `evictionId`."""

    evictionId = serializers.IntegerField(source="head")
    at = serializers.DateTimeField(help_text="When the scheduler decided.")
    cause = serializers.ChoiceField(
        choices=PreemptionCause.values,
        help_text="preempt: by priority in one project; reclaim: another project took its quota back.",
    )
    clusterId = serializers.UUIDField(source="cluster_id")
    clusterName = serializers.CharField(source="cluster.name")
    simulated = serializers.BooleanField(source="cluster.is_simulated")
    nodePool = serializers.CharField(source="victim.pool_name")
    nodeName = serializers.CharField()
    projectName = serializers.CharField(source="victim.project.name")
    workloadId = serializers.UUIDField(source="victim_id")
    workloadName = serializers.CharField(source="victim.name")
    podName = serializers.CharField()
    gpus = serializers.FloatField()
    ranSeconds = serializers.IntegerField()
    lostGpuHours = serializers.FloatField(help_text="Since its start or last reported checkpoint.")
    preemptorId = serializers.UUIDField(
        allow_null=True, help_text="Null where the preemptor is unknown, is no workload, or is not yours to see."
    )
    preemptorName = serializers.CharField(allow_null=True, help_text="Null where it is unknown or not yours to see.")


class EvictionsSchema(ListSchema):
    """One page of evicted pods."""

    evictions = EvictionSchema(many=True)


class Evictions(Route):
    """Evicted pods of all projects that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation(
        "list_evictions",
        "List evicted pods",
        EvictionsSchema,
        description="Beyond Run:ai. Of your projects, as recorded from the clusters.",
        parameters=PARAMETERS,
    )
    def get(self, request: Request) -> Response:
        """One page, newest first unless `sortBy` says otherwise."""
        part = part_of(_wanted(request), request, order=ordering(request.query_params, COLUMNS, "-at"))
        preemptors = {each.preemptor.project_id for each in part.rows if each.preemptor}
        visible = visible_among(actor_of(request), preemptors)
        return Response({"evictions": [_json(each, visible) for each in part.rows], **part.ways_on})


def _wanted(request: Request) -> QuerySet[PreemptionRecord]:
    actor = actor_of(request)
    rows = PreemptionRecord.objects.filter(victim__project__in=visible_projects(actor))
    rows = rows.filter(filters(request.query_params.get("filterBy", ""), COLUMNS, actor))
    return rows.select_related("cluster", "victim__project", "preemptor")


EvictionCount = count_route(
    "count_evictions", "Count evicted pods", "The number of evicted pods the filter finds.", _wanted
)


def _json(record: PreemptionRecord, visible: Collection[int]) -> dict[str, Any]:
    shown = record.preemptor is None or record.preemptor.project_id in visible
    return rendered(
        EvictionSchema,
        record,
        gpus=record.gpu_milli / 1000,
        lostGpuHours=round(record.lost_gpu_seconds / 3600, 2),
        preemptorId=str(record.preemptor_id) if record.preemptor_id and shown else None,
        preemptorName=(record.preemptor_name or None) if shown else None,
    )
