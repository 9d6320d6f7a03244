"""REST of change plans, beyond Run:ai: plan a change, read what it would do, then apply, discard or roll it back."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import PAGES, Column, as_time, filters, part_of
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import PlannedWrite, Planner, Route, RoutePermission
from portal.kit.api.serializers import FILTERS, operation, rendered, validated_body
from portal.kit.errors import BadRequest, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from scheduling.model.resources import DIMENSIONS
from tenants.access.selectors import visible_departments
from tenants.quotas.services.pool_quotas import parse_entry, refusals_at
from workloads.plans.models import Plan, PlanApproval
from workloads.plans.selectors import (
    STATES,
    Change,
    approval_departments,
    approval_place,
    awaits_approval,
    in_state,
    kind_named,
    plan_groups,
    plan_reclaims,
    plan_syncs,
    require_scopes,
    state_of,
    visible_approvals,
    visible_plans,
)
from workloads.plans.serializers import (
    ApprovalSchema,
    ApprovalsSchema,
    ApprovalWrite,
    PlanCreate,
    PlanRowSchema,
    PlanSchema,
    PlansSchema,
    sync_json,
)
from workloads.plans.services.plans import (
    apply_plan,
    approve_plan,
    basis_conflict,
    discard_plan,
    plan_change,
    plan_inverse,
    plan_page,
    set_approval,
)

OWN: Final = RoutePermission("manage_project_quota", "project")
NEEDS: Final = "Needs the permissions of the change that the plan holds; other plans are 404."
COLUMNS: Final = {"kind": Column("kind"), "createdBy": Column("created_by"), "createdAt": Column("created_at", as_time)}
STATE: Final = OpenApiParameter("state", str, enum=STATES)


class Plans(Route):
    """Plans of changes."""

    access = {"GET": RoutePermission(), "POST": RoutePermission("manage_project_quota", "project")}

    @operation(
        "list_plans",
        "List change plans",
        PlansSchema,
        description="Beyond Run:ai. Plans whose changes you may make, newest first.",
        parameters=[STATE, *FILTERS[:1], *PAGES],
    )
    def get(self, request: Request) -> Response:
        """One page, newest first."""
        query = request.query_params
        rows = visible_plans(actor_of(request)).filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
        if state := query.get("state", ""):
            if state not in STATES:
                raise BadRequest.at("/state", "unknown_state", "Unknown state.", allowed=STATES)
            rows = in_state(rows, state)
        part, required = part_of(rows, request, order="-created_at"), approval_departments()
        return Response({"plans": [plan_row_json(row, required) for row in part.rows], **part.ways_on})

    @operation(
        "create_plan",
        "Plan a change",
        PlanSchema,
        201,
        description="Beyond Run:ai. Computes and stores what the change would do; it can be applied for an hour. "
        "`dryRun=true` returns the same without storing it. Needs the permissions of the change.",
        request=PlanCreate,
    )
    def post(self, request: Request) -> Response:
        """The plan, open."""
        body = validated_body(PlanCreate, request.data)
        kind = body["kind"]
        change = READERS[kind](body["change"])
        with refusals_at("/change"):
            plan = plan_change(kind=kind, change=change, actor=actor_of(request))
        return Response(plan_json(plan, actor_of(request)), status=201)


class PlanDetail(Route):
    """A plan by id."""

    access = {"GET": OWN}

    @operation("get_plan", "Read a change plan", PlanSchema, description=f"Beyond Run:ai. {NEEDS}")
    def get(self, request: Request, plan_id: str) -> Response:
        """The plan with its effect."""
        plan = _plan_or_404(request, plan_id)
        outdated = basis_conflict(plan) if state_of(plan) == "open" else None
        return Response({**plan_json(plan, actor_of(request)), "outOfDate": outdated.message if outdated else ""})


class PlanApply(Route):
    """Make the change of a plan."""

    access = {"POST": OWN}

    @operation(
        "apply_plan",
        "Apply a change plan",
        PlanSchema,
        description=f"Beyond Run:ai. 409 once it is closed or expired, or when its basis moved. {NEEDS}",
    )
    def post(self, request: Request, plan_id: str) -> Response:
        """The plan, applied."""
        actor = actor_of(request)
        return Response(plan_json(apply_plan(plan=_plan_or_404(request, plan_id), actor=actor), actor))


class PlanApprove(Route):
    """Approve a plan as a second admin."""

    access = {"POST": OWN}

    @operation(
        "approve_plan",
        "Approve a change plan",
        PlanSchema,
        description="Beyond Run:ai. 403 for its author; 409 where it needs no approval, is closed or "
        f"expired, or when its basis moved. {NEEDS}",
    )
    def post(self, request: Request, plan_id: str) -> Response:
        """The plan, approved."""
        actor = actor_of(request)
        return Response(plan_json(approve_plan(plan=_plan_or_404(request, plan_id), actor=actor), actor))


class PlanApprovals(Route):
    """Where a second admin has to approve plans."""

    access = {"GET": RoutePermission(), "PUT": RoutePermission("manage_department", "department")}

    @operation(
        "list_plan_approvals",
        "List where plans need an approval",
        ApprovalsSchema,
        description="Beyond Run:ai. The whole installation, and departments that you may see. None at first.",
    )
    def get(self, request: Request) -> Response:
        """All of them: there are no more than departments."""
        return Response({"approvals": [_approval_json(each) for each in visible_approvals(actor_of(request))]})

    @operation(
        "set_plan_approval",
        "Require an approval of plans, or stop it",
        ApprovalsSchema,
        description="Beyond Run:ai. While it is required, changes of the same settings without a plan are 409, "
        "and so is turning it off without an approved plan. Needs to manage the department, or the dictionary.",
        request=ApprovalWrite,
    )
    def put(self, request: Request) -> Response:
        """What holds then."""
        actor = actor_of(request)
        kind, change = self.planned(request)
        require_scopes(kind_named(kind).scopes(change), actor)
        with transaction.atomic():
            set_approval(department=approval_place(change), required=change["required"], actor=actor)
        return self.get(request)

    def planned(self, request: Request) -> PlannedWrite:
        """The requirement that the body sets."""
        body = validated_body(ApprovalWrite, request.data)
        change: dict[str, Any] = {"required": body["required"]}
        if body.get("departmentId") is not None:
            found = visible_departments(actor_of(request)).filter(pk=body["departmentId"]).first()
            if found is None:
                raise NotFound
            change |= {"department": found.name, "cluster": found.cluster.name}
        return "approval", change


def _approval_json(row: PlanApproval) -> dict[str, Any]:
    where = row.department
    return rendered(
        ApprovalSchema,
        row,
        departmentId=str(where.pk) if where else None,
        departmentName=where.name if where else None,
    )


class PlanDiscard(Route):
    """Close a plan without its change."""

    access = {"POST": OWN}

    @operation("discard_plan", "Discard a change plan", PlanSchema, description=f"Beyond Run:ai. {NEEDS}")
    def post(self, request: Request, plan_id: str) -> Response:
        """The plan, discarded."""
        actor = actor_of(request)
        return Response(plan_json(discard_plan(plan=_plan_or_404(request, plan_id), actor=actor), actor))


class PlanRollback(Route):
    """Plan the inverse of an applied plan."""

    access = {"POST": OWN}

    @operation(
        "roll_back_plan",
        "Plan a rollback",
        PlanSchema,
        201,
        description=f"Beyond Run:ai. Returns the open plan of the inverse change; apply it to roll back. {NEEDS}",
    )
    def post(self, request: Request, plan_id: str) -> Response:
        """The plan of the inverse, open."""
        actor = actor_of(request)
        back = plan_inverse(plan=_plan_or_404(request, plan_id), actor=actor)
        return Response(plan_json(back, actor), status=201)


def plan_row_json(plan: Plan, required: Collection[int | None] | None = None) -> dict[str, Any]:
    """A plan without its effect. `required`: departments whose plans need an approval, read once for a list."""
    return rendered(
        PlanRowSchema,
        plan,
        id=str(plan.pk),
        sentence=plan.effect["sentence"],
        reason=plan.change.get("reason") or "",
        state=state_of(plan),
        needsApproval=awaits_approval(plan, required),
        approvedAt=rfc3339(plan.approved_at) if plan.approved_at else None,
        appliedAt=rfc3339(plan.applied_at) if plan.applied_at else None,
        rollsBack=str(plan.rolls_back_id) if plan.rolls_back_id else None,
    )


def plan_json(plan: Plan, actor: Actor) -> dict[str, Any]:
    """A plan that is up to date with everything that it does, with names as far as the actor may see them."""
    shown = ("settings", "objects", "victims", "types", "quotas", "sums", "warnings")
    figures = {"gpuHoursAtRisk": plan.effect["gpu_hours_at_risk"], "reclaims": plan_reclaims(plan, actor)}
    figures |= {"workloads": plan_groups(plan), "starts": plan.effect.get("starts")}
    figures["syncs"] = [sync_json(each) for each in plan_syncs(plan)]
    return {**plan_row_json(plan), **{name: plan.effect[name] for name in shown}, **figures, "outOfDate": ""}


def _plan_or_404(request: Request, plan_id: str) -> Plan:
    plan = visible_plans(actor_of(request)).filter(pk=plan_id).first()
    if plan is None:
        raise NotFound
    return plan


_WEIGHTS: Final = {"gpu": "over_quota_weight", "cpu": "cpu_weight", "memory": "memory_weight"}


def _quotas(body: Mapping[str, Any]) -> Change:
    entries = [_entry(each, f"/change/quotas/{number}") for number, each in enumerate(body.get("quotas", []))]
    return {"quotas": entries, "reason": body["reason"]}


def _entry(entry: Mapping[str, Any], at: str) -> dict[str, Any]:
    """An entry with the columns that it names."""
    if ("project" in entry) == ("department" in entry):
        raise ValidationFailed.at(f"{at}/project", "one_owner", "Name either a project or a department.")
    named = {name: entry[name] for name in ("project", "department", "cluster") if name in entry}
    if entry["remove"]:
        return {**named, "pool": entry["nodePool"], "values": None}
    columns = parse_entry(entry, pointer=at).as_fields()
    given = {name: entry.get(name) or {} for name in DIMENSIONS}
    columns_given = {f"{name}_{kind}" for name in DIMENSIONS for kind in ("deserved", "limit") if kind in given[name]}
    values = {
        name: value for name, value in columns.items() if name in columns_given or (name == "rank" and "rank" in entry)
    }
    for name, column in _WEIGHTS.items():
        if "overQuotaWeight" in given[name]:
            values[column] = given[name]["overQuotaWeight"]
    return {**named, "pool": entry["nodePool"], "values": values}


_NAMES: Final = {"newName": "new_name", "preemptionPolicy": "preemption_policy", "aliasOf": "alias_of"}
_NEEDED: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "priority": {"add": ("name", "value"), "change": ("name",), "rename": ("name", "newName"), "retire": ("name",)},
    "type": {"type": ("name",), "withdraw": ("name",), "offer": ("name",)},
    "preset": {"preset": ("preset",)},
}


def _require(body: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a change that lacks fields."""
    text = "This field is required."
    missing = [Problem(f"/change/{name}", "required", text) for name in names if name not in body]
    if missing:
        raise ValidationFailed(missing[0].message, code="required", problems=missing)


def _dictionary(kind: str) -> Callable[[Mapping[str, Any]], Change]:
    def read(body: Mapping[str, Any]) -> Change:
        operations = _NEEDED[kind]
        op = body.get("op", "preset" if kind == "preset" else "")
        if op not in operations:
            raise ValidationFailed.at("/change/op", "unknown_op", "Unknown operation.", allowed=operations)
        _require(body, operations[op])
        given = {_NAMES.get(name, name): value for name, value in body.items() if name not in {"quotas", "reason"}}
        extra = {"preemptibilities": body.get("preemptibilities", {})} if kind == "preset" else {}
        return {**given, **extra, "op": op}

    return read


_OWNED: Final = ("project", "department", "cluster", "reason")
_SETTINGS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "priority_cap": (("project", "priority", "gpuLimit"), ("cluster", "reason")),
    "time_limit": (("category", "minutes"), (*_OWNED, "noticeMinutes")),
    "idle_limit": (("category", "minutes"), (*_OWNED, "noticeMinutes")),
    "min_runtime": (("minutes",), _OWNED),
    "enforce_deserved": (("department", "enforceDeserved"), ("cluster", "reason")),
    "defer_preemptors": (("cluster", "deferPreemptors"), ()),
    "node_pool": (
        ("op", "cluster", "pool"),
        ("labelKey", "labelValue", "gpuPlacement", "topologyLevels", "isDefault", "default"),
    ),
    "scheduler": (("cluster", "flavour"), ()),
    "policy": (("workloadKind", "policy"), ("project", "department", "cluster", "name")),
    "approval": (("required",), ("department", "cluster")),
    "quota_request": (("request",), ("op", "gpus", "until", "reason")),
}
"""Fields that a kind of single setting needs, and those that it may have."""
_POLICY_KINDS: Final = ("workspace", "training", "distributed", "inference", "distributedInference", "nimService")
_PLANNED_AS: Final = {"workload_kind": "kind", "policy": "document"}


def _setting(kind: str) -> Callable[[Mapping[str, Any]], Change]:
    needed, more = _SETTINGS[kind]

    def read(body: Mapping[str, Any]) -> Change:
        _require(body, needed)
        for name in body.keys() - {*needed, *more, "reason"}:
            raise ValidationFailed.at(f"/change/{name}", "unknown_field", "Unknown field.", allowed=(*needed, *more))
        if kind in {"time_limit", "idle_limit", "min_runtime"} and ("project" in body) == ("department" in body):
            raise ValidationFailed.at("/change/project", "one_owner", "Name either a project or a department.")
        if kind == "node_pool" and body["op"] not in {"create", "change", "delete"}:
            allowed = ("create", "change", "delete")
            raise ValidationFailed.at("/change/op", "unknown_op", "Unknown operation.", allowed=allowed)
        if kind == "policy" and body["workloadKind"] not in _POLICY_KINDS:
            text = "Unknown kind of workload."
            raise ValidationFailed.at("/change/workloadKind", "unknown_kind", text, allowed=_POLICY_KINDS)
        named = {_snake(name): body[name] for name in (*needed, *more) if name in body}
        change = {_PLANNED_AS.get(name, name): value for name, value in named.items()}
        if kind == "quota_request":
            day = change.get("until")
            change |= {"request": str(change["request"]), "until": day.isoformat() if day else None}
        if change.get("gpu_limit") is not None:
            change["gpu_limit"] = int(change["gpu_limit"] * 1000)
        return {**change, "name": change.get("name", "")} if kind == "policy" else change

    return read


def _snake(name: str) -> str:
    """`gpuLimit` as `Plan.change` has it: `gpu_limit`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Change]]] = {
    "quotas": _quotas,
    **{kind: _dictionary(kind) for kind in _NEEDED},
    **{kind: _setting(kind) for kind in _SETTINGS},
}


class _Planner:
    """Plans for the writes of other routes and for pages of settings below this feature."""

    def document(self, planned: PlannedWrite, actor: Actor, /) -> dict[str, Any]:
        return plan_json(plan_change(kind=planned[0], change=planned[1], actor=actor), actor)

    def page(self, planned: PlannedWrite, actor: Actor, /) -> str:
        return plan_page(*planned, actor)


PLANNER: Final[Planner] = _Planner()
