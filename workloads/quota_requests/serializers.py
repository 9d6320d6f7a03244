"""Quota requests as REST sends and accepts them, and as pages copy them. Beyond Run:ai."""

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from portal.kit.api.serializers import rendered, schema
from portal.kit.pages.api_snippets import ApiRequest
from portal.kit.security.actors import Actor
from tenants.quotas.selectors.reclaims import reclaim_rows
from workloads.plans.serializers import PlanReclaimSchema
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState
from workloads.quota_requests.selectors import (
    NOT_CHANGED,
    PENDING,
    SYNCED,
    may_decide,
    public_impact,
    sync_state,
)

PATH: Final = "/api/v1/quota-requests"


class QuotaRequestBody(serializers.Serializer[Any]):
    """More GPUs for a project in a node pool."""

    projectId = serializers.CharField(max_length=20)
    nodePoolId = serializers.CharField(max_length=20)
    gpus = serializers.FloatField(help_text="On top of the deserved quota; at most what the pool has.")
    until = serializers.DateField(
        required=False, allow_null=True, help_text="Last day (UTC); the GPUs are taken back after it. Absent: for good."
    )
    reason = serializers.CharField(max_length=500)


class ApprovalBody(serializers.Serializer[Any]):
    """A grant of all or part of a request."""

    base = serializers.CharField(max_length=32, help_text="`base` of the request whose impact was reviewed.")
    gpus = serializers.FloatField(required=False, allow_null=True, help_text="Absent: all that was requested.")
    until = serializers.DateField(required=False, allow_null=True, help_text="Absent: the requested date.")
    reason = serializers.CharField(required=False, allow_blank=True, max_length=500)


DeclineBody = schema("DeclineBody", "Why not.", reason=serializers.CharField(max_length=500))


class AmountChange(serializers.Serializer[Any]):
    """GPUs; null is unlimited."""

    before = serializers.FloatField(allow_null=True)
    after = serializers.FloatField(allow_null=True)


class DepartmentSums(AmountChange):
    """Deserved by all projects of the department together, beside what it deserves itself."""

    name = serializers.CharField()
    deserved = serializers.FloatField()


class PoolSums(AmountChange):
    """Deserved by all projects in the pool together, beside the GPUs observed in it (null: none yet)."""

    name = serializers.CharField()
    gpus = serializers.FloatField(allow_null=True)


class ImpactNote(serializers.Serializer[Any]):
    """A warning or a refusal."""

    code = serializers.CharField()
    message = serializers.CharField()


class StartableWorkload(serializers.Serializer[Any]):
    """A waiting workload that starts only with the requested quota."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    project = serializers.CharField(required=False, help_text="Absent from impacts of older requests.")
    gpus = serializers.FloatField()
    evicts = serializers.BooleanField(help_text="It evicts others for it.")


ReclaimChange = schema(
    "ReclaimChange",
    "Which reclaims between projects and departments the quota changes, by the use observed then.",
    enforced=serializers.CharField(help_text="Does the cluster's scheduler reclaim: yes, partly or no."),
    free=serializers.FloatField(allow_null=True, help_text="Free GPUs of the pool; null while none was observed."),
    changes=PlanReclaimSchema(many=True, required=False, help_text="The largest 100."),
)
StartEstimate = schema(
    "StartEstimate",
    "Each workload is tried by itself on the last observation.",
    estimated=serializers.BooleanField(help_text="False: no recent observation, or no model of the scheduler."),
    tried=serializers.IntegerField(),
    more=serializers.BooleanField(help_text="More workloads wait than were tried."),
    workloads=StartableWorkload(many=True),
)


class QuotaImpactSchema(serializers.Serializer[Any]):
    """What a request would change; of an approved one what it changed. Computed on the quotas named by `base`."""

    deserved = AmountChange()
    limit = AmountChange()
    department = DepartmentSums()
    pool = PoolSums()
    warnings = ImpactNote(many=True)
    refusals = ImpactNote(many=True, help_text="Why the quota cannot be set so; empty where it can.")
    reclaim = ReclaimChange()
    starts = StartEstimate()
    scheduler = serializers.CharField()
    simulated = serializers.BooleanField()
    observedAt = serializers.DateTimeField(allow_null=True)


class QuotaDecisionSchema(serializers.Serializer[Any]):
    """Who decided, and what was granted."""

    by = serializers.CharField(source="decided_by")
    at = serializers.DateTimeField(source="decided_at")
    reason = serializers.CharField(source="decision_reason", allow_blank=True)
    gpus = serializers.FloatField(allow_null=True, required=False)
    until = serializers.DateField(source="granted_until", allow_null=True)


class QuotaRequestSchema(serializers.Serializer[Any]):
    """A request for more deserved GPUs."""

    id = serializers.UUIDField()
    projectId = serializers.CharField()
    projectName = serializers.CharField(source="project.name")
    nodePoolId = serializers.CharField()
    nodePoolName = serializers.CharField(source="node_pool.name")
    gpus = serializers.FloatField(required=False)
    until = serializers.DateField(allow_null=True)
    reason = serializers.CharField()
    state = serializers.ChoiceField(choices=QuotaRequestState.values)
    createdBy = serializers.CharField(source="author_name")
    createdAt = serializers.DateTimeField()
    base = serializers.CharField()
    impactAt = serializers.DateTimeField()
    impact = QuotaImpactSchema(required=False)
    decision = QuotaDecisionSchema(allow_null=True, required=False)
    sync = serializers.ChoiceField(
        choices=[SYNCED, PENDING, NOT_CHANGED],
        required=False,
        help_text="Has a sync run newer than the change of the quota put it on the cluster?",
    )
    endedAt = serializers.DateTimeField(allow_null=True)
    keptBecause = serializers.CharField(allow_blank=True, help_text="Why the GPUs could not be taken back yet.")
    mayDecide = serializers.BooleanField(required=False)
    mayWithdraw = serializers.BooleanField(required=False)


QuotaRequestsSchema = schema(
    "QuotaRequestsSchema", "One page, the newest first.", quotaRequests=QuotaRequestSchema(many=True)
)


def request_json(row: QuotaRequest, actor: Actor) -> dict[str, Any]:
    """`QuotaRequestSchema`; other projects by name only where the actor sees them."""
    impact = public_impact(row.impact)
    impact["reclaim"]["changes"] = reclaim_rows(row.impact["reclaim"], actor)
    is_open = row.state == QuotaRequestState.OPEN
    return rendered(
        QuotaRequestSchema,
        row,
        gpus=row.gpu_milli / 1000,
        impact=impact,
        decision=_decision_json(row) if row.decided_at else None,
        sync=sync_state(row),
        mayDecide=is_open and may_decide(actor, row.project),
        mayWithdraw=is_open and row.is_by(actor),
    )


def _decision_json(row: QuotaRequest) -> dict[str, Any]:
    granted = None if row.granted_milli is None else row.granted_milli / 1000
    return rendered(QuotaDecisionSchema, row, gpus=granted)


def create_request_of(requested: Mapping[str, Any]) -> ApiRequest:
    """The same as the form, over REST and on the command line."""
    project, pool = requested["project"], requested["node_pool"]
    body = {
        "projectId": str(project.pk),
        "nodePoolId": str(pool.pk),
        "gpus": requested["gpus"],
        "reason": requested["reason"],
    }
    words = (
        "quota",
        "request",
        "-p",
        project.name,
        "--pool",
        pool.name,
        *_flags(requested),
        "--",
        f"{requested['gpus']:g}",
    )
    return ApiRequest("POST", PATH, {**body, **_until(requested)}, rung=words)


def approve_request_of(row: QuotaRequest, requested: Mapping[str, Any], base: str) -> ApiRequest:
    body = {"base": base, "gpus": requested["gpus"], "reason": requested["reason"], **_until(requested)}
    gpus = () if requested["gpus"] is None else ("--gpus", f"{requested['gpus']:g}")
    words = ("quota", "approve", str(row.pk), *gpus, *_flags(requested), "--yes")
    return ApiRequest("POST", f"{PATH}/{row.pk}/approve", body, rung=words)


def decline_request_of(row: QuotaRequest, requested: Mapping[str, Any]) -> ApiRequest:
    words = ("quota", "decline", str(row.pk), *_flags(requested))
    return ApiRequest("POST", f"{PATH}/{row.pk}/decline", {"reason": requested["reason"]}, rung=words)


def withdraw_request_of(row: QuotaRequest) -> ApiRequest:
    return ApiRequest("POST", f"{PATH}/{row.pk}/withdraw", None, rung=("quota", "withdraw", str(row.pk)))


def _until(requested: Mapping[str, Any]) -> dict[str, str]:
    return {"until": requested["until"].isoformat()} if requested["until"] else {}


def _flags(requested: Mapping[str, Any]) -> tuple[str, ...]:
    until = _until(requested)["until"] if requested.get("until") else ""
    reason = ("--reason", requested["reason"]) if requested["reason"] else ()
    return (*reason, *(("--until", until) if until else ()))
