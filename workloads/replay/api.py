"""REST of replays: started here, run by workers; of platform admins."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.connection.services.scheduler_config import proposals_of
from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster
from portal.kit.api.lists import Column, Columns, as_time, filters, ordering, without_cursor
from portal.kit.api.parsers import csv_response
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import (
    ERROR_RESPONSES,
    FILTERS,
    PAGES,
    ErrorSchema,
    TypedJson,
    operation,
    rendered,
    validated_body,
)
from portal.kit.errors import ValidationFailed
from portal.kit.security.request_identity import actor_of
from workloads.dictionary.models import HIGHEST_VALUE, LOWEST_VALUE
from workloads.dictionary.selectors import require_dictionary
from workloads.replay import services as replay_services
from workloads.replay.models import Replay, ReplayStatus
from workloads.replay.rules import MOST_BYTES, MOST_ROWS

ADMIN: Final = RoutePermission("manage_dictionary", "installation")
CONFIGURATIONS: Final = "; ".join(
    f"{flavour.title}: {', '.join(names)}" for flavour in FLAVOURS.values() if (names := proposals_of(flavour))
)
LISTED: Final[Columns] = {
    "name": Column("name"),
    "createdAt": Column("created_at", as_time),
    "status": Column("status"),
}


class TraceColumns(serializers.Serializer[Any]):
    """Names of columns in the file's header line. Default: the field's own name, in any case."""

    submitted = serializers.CharField(required=False, allow_null=True, help_text="Seconds, or ISO 8601.")
    duration = serializers.CharField(required=False, allow_null=True, help_text="Seconds, or an ISO 8601 duration.")
    gpus = serializers.CharField(required=False, allow_null=True, help_text="GPUs of one worker.")
    workers = serializers.CharField(required=False, allow_null=True, help_text="Default: 1.")
    owner = serializers.CharField(required=False, allow_null=True, help_text="Names of projects of the cluster.")
    priority = serializers.CharField(required=False, allow_null=True)
    preemptible = serializers.CharField(
        required=False, allow_null=True, help_text="Default: by the value of the priority, as the threshold has it."
    )


class TraceBody(serializers.Serializer[Any]):
    """A trace of any origin, and how to read it."""

    csv = serializers.CharField(
        trim_whitespace=False,
        help_text=f"With a header line; at most {MOST_ROWS} rows and {MOST_BYTES} bytes.",
    )
    columns = TraceColumns(required=False)
    priorities = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="Words of the priority column to dictionary names."
    )
    priority = serializers.CharField(required=False, allow_null=True, help_text="Of rows that name none.")
    project = serializers.CharField(required=False, allow_null=True, help_text="Of owners that are no project.")
    nodePool = serializers.CharField(required=False, allow_null=True, help_text="Default: the cluster's default pool.")


class ProposedPriority(serializers.Serializer[Any]):
    """Another value of a priority."""

    name = serializers.CharField()
    value = serializers.IntegerField(min_value=LOWEST_VALUE, max_value=HIGHEST_VALUE)


class ProposedQuota(serializers.Serializer[Any]):
    """Another quota of a project or a department in one node pool."""

    project = serializers.CharField(required=False)
    department = serializers.CharField(required=False)
    nodePool = serializers.CharField()
    deservedGpus = serializers.FloatField(min_value=0, max_value=1_000_000)
    limitGpus = serializers.FloatField(min_value=0, max_value=1_000_000, required=False, allow_null=True)
    overQuotaWeight = serializers.FloatField(min_value=0, max_value=1_000_000, required=False, allow_null=True)


class ReplayBody(serializers.Serializer[Any]):
    """A replay as it is asked for: a period of the record or a trace, and a proposal."""

    name = serializers.CharField(max_length=100)
    clusterId = serializers.UUIDField()
    scheduler = serializers.CharField(
        required=False, allow_null=True, help_text=f"Default: that of the cluster. One of {', '.join(FLAVOURS)}."
    )
    start = serializers.DateTimeField(required=False, allow_null=True, help_text="Of the record.")
    end = serializers.DateTimeField(required=False, allow_null=True)
    trace = TraceBody(required=False, allow_null=True)
    proposedScheduler = serializers.CharField(required=False, allow_null=True, help_text="Default: the same.")
    proposedConfiguration = serializers.CharField(
        required=False,
        allow_null=True,
        help_text=f"Default: that of the cluster, or the scheduler's own. {CONFIGURATIONS}.",
    )
    priorities = ProposedPriority(many=True, required=False)
    quotas = ProposedQuota(many=True, required=False)


class ReplayProposalSchema(serializers.Serializer[Any]):
    """A period of the record, and a proposal."""

    clusterId = serializers.CharField(required=False)
    scheduler = serializers.CharField(required=False, allow_null=True)
    start = serializers.DateTimeField(required=False, allow_null=True)
    end = serializers.DateTimeField(required=False, allow_null=True)
    proposedScheduler = serializers.CharField(required=False, allow_null=True)
    proposedConfiguration = serializers.CharField(required=False, allow_null=True)
    priorities = ProposedPriority(many=True, required=False)
    quotas = ProposedQuota(many=True, required=False)


class ReplayFiguresSchema(serializers.Serializer[Any]):
    """Figures of submissions of one run."""

    submissions = serializers.IntegerField()
    started = serializers.IntegerField()
    medianWaitSeconds = serializers.FloatField(allow_null=True)
    p90WaitSeconds = serializers.FloatField(allow_null=True)
    evictions = serializers.IntegerField()
    lostGpuHours = serializers.FloatField()
    gpuUsePercent = serializers.FloatField(
        required=False, allow_null=True, help_text="Of the nodes' GPUs, over `seconds`."
    )


class ReplaySidesSchema(serializers.Serializer[Any]):
    """Figures of both runs."""

    before = ReplayFiguresSchema()
    after = ReplayFiguresSchema()


class ReplayGroupSchema(ReplaySidesSchema):
    """The same for one priority or project."""

    name = serializers.CharField()


class ReplayCurvesSchema(serializers.Serializer[Any]):
    """GPUs on average in equal parts of `seconds`."""

    before = serializers.ListField(child=serializers.FloatField())
    after = serializers.ListField(child=serializers.FloatField())


class ReplayEndlessSchema(serializers.Serializer[Any]):
    """Submissions evicted again and again until nothing else finishes. The run ends there."""

    before = serializers.ListField(child=serializers.CharField())
    after = serializers.ListField(child=serializers.CharField())


class ReplayResultSchema(serializers.Serializer[Any]):
    """Figures before and after, and what they rest on."""

    all = ReplaySidesSchema()
    priorities = ReplayGroupSchema(many=True)
    projects = ReplayGroupSchema(many=True)
    seconds = serializers.IntegerField(
        help_text="Time of the plots and of GPU use, from the first submission to the last, or as allAtOnce says."
    )
    allAtOnce = serializers.BooleanField(
        required=False, help_text="All submissions came at once: the time ends when both runs have ended."
    )
    capacityGpus = serializers.FloatField()
    usedGpus = ReplayCurvesSchema()
    waitingGpus = ReplayCurvesSchema()
    endless = ReplayEndlessSchema(required=False)
    scheduler = serializers.CharField()
    proposedScheduler = serializers.CharField()
    proposedConfiguration = serializers.CharField(required=False, allow_blank=True)
    leftOut = serializers.IntegerField(required=False)
    intervalSeconds = serializers.FloatField(required=False)
    assumptions = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="About schedulers whose configuration is unknown."
    )


class ReplaySchema(serializers.Serializer[Any]):
    """A replay and, when it is ready, its figures before and after."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    clusterId = serializers.UUIDField(source="cluster_id")
    request = TypedJson(as_=ReplayProposalSchema(), help_text="As it was asked for, without the trace.")
    status = serializers.ChoiceField(choices=ReplayStatus.values)
    statusUpdatedAt = serializers.DateTimeField(source="status_at")
    statusMessage = serializers.CharField(allow_null=True, help_text="Why there is no result.")
    percent = serializers.IntegerField(help_text="Of the submissions of both runs.")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField(source="subject_name")
    result = TypedJson(as_=ReplayResultSchema(), help_text="Null until it is ready.", allow_null=True)


class ReplaysSchema(serializers.Serializer[Any]):
    """One page."""

    replays = ReplaySchema(many=True)


class Replays(Route):
    """Replays of submissions under a proposal."""

    access = {"GET": ADMIN, "POST": ADMIN}

    @operation("list_replays", "List replays", ReplaysSchema, parameters=[*FILTERS, *PAGES])
    def get(self, request: Request) -> Response:
        """Newest first unless `sortBy` says otherwise; without their results."""
        require_dictionary(actor_of(request))
        query = request.query_params
        rows = replay_services.replays().filter(filters(query.get("filterBy", ""), LISTED, actor_of(request)))
        order = ordering(query, LISTED, "-created_at")
        found = without_cursor(rows.order_by(order, "pk"), request).rows
        return Response({"replays": [_json(row, result=None) for row in found]})

    @operation(
        "create_replay",
        "Replay submissions under a proposal",
        ReplaySchema,
        202,
        description="Runs in the background: poll until its status is Ready, Failed or Cancelled.",
        request=ReplayBody,
    )
    def post(self, request: Request) -> Response:
        """The replay, Pending."""
        actor = actor_of(request)
        require_dictionary(actor)
        body = validated_body(ReplayBody, request.data)
        cluster = Cluster.objects.filter(pk=body.pop("clusterId")).first()
        if cluster is None:
            raise ValidationFailed.at("/clusterId", "unknown", "Not a cluster.")
        for moment in ("start", "end"):
            if body.get(moment):
                body[moment] = body[moment].isoformat()
        row = replay_services.create_replay(name=body.pop("name"), cluster=cluster, body=body, actor=actor)
        return Response(_json(row), status=202)


class ReplayDetail(Route):
    """One replay."""

    access = {"GET": ADMIN}

    @operation("get_replay", "Read a replay", ReplaySchema)
    def get(self, request: Request, replay_id: UUID) -> Response:
        """With its figures once it is ready."""
        require_dictionary(actor_of(request))
        return Response(_json(replay_services.replay_of(key=replay_id)))


class ReplayCancel(Route):
    """Cancel a replay."""

    access = {"POST": ADMIN}

    @operation("cancel_replay", "Cancel a replay", ReplaySchema, also=(409,))
    def post(self, request: Request, replay_id: UUID) -> Response:
        """409 where it has ended."""
        return Response(_json(replay_services.cancel_replay(key=replay_id, actor=actor_of(request))))


class ReplayFile(Route):
    """The submissions of a replay."""

    access = {"GET": ADMIN}

    @extend_schema(
        operation_id="download_replay",
        summary="Download the submissions of a replay",
        description="CSV with a line per submission: waits, evictions and losses before and after.",
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR), 409: ErrorSchema, **ERROR_RESPONSES},
    )
    def get(self, request: Request, replay_id: UUID) -> HttpResponse:
        """409 until it is ready."""
        require_dictionary(actor_of(request))
        row, text = replay_services.file_of_replay(key=replay_id)
        return csv_response(text, name=row.name)


def _json(row: Replay, **computed: Any) -> dict[str, Any]:
    return rendered(ReplaySchema, row, statusMessage=row.message or None, **computed)
