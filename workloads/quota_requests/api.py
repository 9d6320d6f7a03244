"""REST of quota requests. Beyond Run:ai."""

from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import NodePool
from portal.kit.api.lists import Column, Columns, as_time, filters, flag_in, ordering, without_cursor
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission
from portal.kit.api.serializers import FILTERS, PAGES, operation, validated_body
from portal.kit.errors import ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_projects
from workloads.quota_requests.selectors import (
    decidable_request,
    decision_change,
    request_or_404,
    requests_to_decide,
    visible_requests,
)
from workloads.quota_requests.serializers import (
    ApprovalBody,
    DeclineBody,
    QuotaRequestBody,
    QuotaRequestSchema,
    QuotaRequestsSchema,
    request_json,
)
from workloads.quota_requests.services import (
    approve_request,
    create_request,
    decline_request,
    withdraw_request,
)

SEEN: Final = RoutePermission("view_project", "somewhere")
DECIDED: Final = RoutePermission("manage_project_quota", "project")
COLUMNS: Final[Columns] = {
    "state": Column("state"),
    "projectName": Column("project__name"),
    "nodePoolName": Column("node_pool__name"),
    "createdBy": Column("author_name"),
    "createdAt": Column("created_at", as_time),
}
MINE_TO_DECIDE: Final = OpenApiParameter("toDecide", bool, description="Only open ones that you may decide.")


class QuotaRequests(Route):
    """Quota requests of the projects that the caller may see."""

    access = {"GET": SEEN, "POST": RoutePermission("submit", "project")}

    @operation(
        "list_quota_requests", "List quota requests", QuotaRequestsSchema, parameters=[*FILTERS, *PAGES, MINE_TO_DECIDE]
    )
    def get(self, request: Request) -> Response:
        """Newest first unless `sortBy` says otherwise."""
        query, actor = request.query_params, actor_of(request)
        rows = requests_to_decide(actor) if flag_in(query, "toDecide") else visible_requests(actor)
        rows = rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor))
        order = ordering(query, COLUMNS, "-created_at")
        found = without_cursor(rows.order_by(order, "pk"), request).rows
        return Response({"quotaRequests": [request_json(row, actor) for row in found]})

    @operation(
        "create_quota_request",
        "Request quota",
        QuotaRequestSchema,
        201,
        description="With its impact, computed at once. One open request per author, project and node pool.",
        request=QuotaRequestBody,
        also=(409,),
    )
    def post(self, request: Request) -> Response:
        """The request, open."""
        body, actor = validated_body(QuotaRequestBody, request.data), actor_of(request)
        project = _row(visible_projects(actor).select_related("department", "cluster"), "projectId", body)
        pool = _row(NodePool.objects.select_related("cluster"), "nodePoolId", body)
        row = create_request(
            project=project,
            node_pool=pool,
            gpus=body["gpus"],
            until=body.get("until"),
            reason=body["reason"],
            actor=actor,
        )
        return Response(request_json(row, actor), status=201)


class QuotaRequestDetail(Route):
    """A quota request by id."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_quota_request", "Read a quota request", QuotaRequestSchema)
    def get(self, request: Request, request_id: UUID) -> Response:
        """One of a project that the caller may not see is absent."""
        actor = actor_of(request)
        return Response(request_json(request_or_404(actor, request_id), actor))


class QuotaRequestApproval(Route):
    """Grant a request, or part of it."""

    access = {"POST": DECIDED}

    def planned(self, request: Request, request_id: UUID) -> PlannedWrite:
        """The decision that the body makes."""
        body = validated_body(ApprovalBody, request.data)
        row = decidable_request(actor_of(request), request_id)
        how = {"gpus": body.get("gpus"), "until": body.get("until"), "reason": body.get("reason", "")}
        return "quota_request", decision_change(row, **how)

    @operation(
        "approve_quota_request",
        "Approve a quota request",
        QuotaRequestSchema,
        description="409 `base_moved` with the new `impact` and `base` when quotas have changed since `base`. "
        "`dryRun=true` answers with the impact of another amount. 409 `approval_required` where a second admin has to "
        "approve: create a plan of the kind `quota_request`.",
        request=ApprovalBody,
        also=(409,),
    )
    def post(self, request: Request, request_id: UUID) -> Response:
        """The request with what was granted; the cluster follows, see `sync`."""
        actor = actor_of(request)
        decidable_request(actor, request_id)
        body = validated_body(ApprovalBody, request.data)
        row = approve_request(
            key=request_id,
            base=body["base"],
            gpus=body.get("gpus"),
            until=body.get("until"),
            reason=body.get("reason", ""),
            actor=actor,
        )
        return Response(request_json(row, actor))


class QuotaRequestDecline(Route):
    """Decline a request."""

    access = {"POST": DECIDED}

    @operation("decline_quota_request", "Decline a quota request", QuotaRequestSchema, request=DeclineBody, also=(409,))
    def post(self, request: Request, request_id: UUID) -> Response:
        """With a reason, which its author reads."""
        actor = actor_of(request)
        decidable_request(actor, request_id)
        reason = validated_body(DeclineBody, request.data)["reason"]
        return Response(request_json(decline_request(key=request_id, reason=reason, actor=actor), actor))


class QuotaRequestWithdrawal(Route):
    """Withdraw a request."""

    access = {"POST": RoutePermission("view_project", "project")}

    @operation("withdraw_quota_request", "Withdraw your quota request", QuotaRequestSchema, also=(409,))
    def post(self, request: Request, request_id: UUID) -> Response:
        """While it is open."""
        actor = actor_of(request)
        return Response(request_json(withdraw_request(key=request_id, actor=actor), actor))


def _row(rows: Any, field: str, body: dict[str, Any]) -> Any:
    """The row that the body names by its id; absent and foreign are refused alike, at the field."""
    found = rows.filter(pk=body[field]).first() if body[field].isdecimal() and len(body[field]) < 19 else None
    if found is None:
        raise ValidationFailed.at(f"/{field}", "unknown_id", f"{field} is none that you can see.")
    return found
