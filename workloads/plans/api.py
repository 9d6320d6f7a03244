"""REST of change plans, beyond Run:ai: plan a change, read what it would do, then apply, discard or roll it back."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import PAGES, Column, ListSchema, as_time, filters, part_of
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import FILTERS, operation, rendered, validated_body
from portal.kit.errors import BadRequest, NotFound, Problem, ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.quotas.services.pool_quotas import parse_entry, refusals_at
from tenants.quotas.services.quota_values import DIMENSIONS
from workloads.plans.models import Plan
from workloads.plans.selectors import STATES, Change, in_state, state_of, visible_plans
from workloads.plans.serializers import (
    PlanGroupSchema,
    PlannedClusterSchema,
    PlanQuotaSchema,
    PlanSumSchema,
    PlanTypeSchema,
    PlanVictimsSchema,
)
from workloads.plans.services.plans import apply_plan, discard_plan, plan_change, roll_back


class PlanRowSchema(serializers.Serializer[Any]):
    """A plan in a list."""

    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="quotas, project_quota, department_quota, priority, type or preset.")
    title = serializers.CharField()
    sentence = serializers.CharField()
    state = serializers.CharField(help_text="open, expired, applied or discarded.")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    expiresAt = serializers.DateTimeField()
    appliedAt = serializers.DateTimeField(allow_null=True)
    appliedBy = serializers.CharField(allow_blank=True)
    rollsBack = serializers.UUIDField(allow_null=True, help_text="The plan that this one rolls back.")


class PlanSchema(PlanRowSchema):
    """What the change does: objects per cluster, workloads, quotas and sums, who may evict whom, types, warnings."""

    objects = PlannedClusterSchema(many=True)
    workloads = serializers.DictField(child=PlanGroupSchema(), help_text="By group: count, and up to 20 examples.")
    gpuHoursAtRisk = serializers.FloatField(help_text="Of workloads that become reclaimable.")
    victims = PlanVictimsSchema()
    types = PlanTypeSchema(many=True)
    quotas = PlanQuotaSchema(many=True)
    sums = PlanSumSchema(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


class PlansSchema(ListSchema):
    """One page of plans, newest first."""

    plans = PlanRowSchema(many=True)


class PlannedAmountsSchema(serializers.Serializer[Any]):
    """One resource of a quota; what is absent stays, null is no limit. GPUs in devices, CPU in millicores."""

    deserved = serializers.FloatField(required=False, allow_null=True)
    limit = serializers.FloatField(required=False, allow_null=True)
    overQuotaWeight = serializers.FloatField(required=False, allow_null=True)
    units = serializers.CharField(required=False, max_length=3, help_text="Of memory: Mib, MB or GB.")


class PlannedQuotaSchema(serializers.Serializer[Any]):
    """The quota of one project or department in one node pool, all by name."""

    project = serializers.CharField(required=False, max_length=50)
    department = serializers.CharField(required=False, max_length=50)
    cluster = serializers.CharField(
        required=False, max_length=63, help_text="Where departments of several clusters share a name."
    )
    nodePool = serializers.CharField(max_length=63)
    gpu = PlannedAmountsSchema(required=False)
    cpu = PlannedAmountsSchema(required=False)
    memory = PlannedAmountsSchema(required=False)
    rank = serializers.CharField(required=False, max_length=20)
    remove = serializers.BooleanField(required=False, default=False, help_text="Nothing deserved, no limit.")


class PlannedChangeSchema(serializers.Serializer[Any]):
    """Of `quotas`: `quotas` and `reason`. Of `priority` and `type`: `op`, `name` and what is to change. Of `preset`:
    `preset` and `preemptibilities`.
    """

    quotas = PlannedQuotaSchema(many=True, required=False)
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=300)
    op = serializers.CharField(
        required=False, max_length=10, help_text="add, change, rename, retire; type, withdraw or offer."
    )
    name = serializers.CharField(required=False, max_length=63)
    newName = serializers.CharField(required=False, max_length=63)
    value = serializers.IntegerField(required=False)
    preemptionPolicy = serializers.CharField(required=False, max_length=20)
    description = serializers.CharField(required=False, allow_blank=True, max_length=500)
    aliasOf = serializers.CharField(required=False, allow_blank=True, max_length=63)
    priority = serializers.CharField(required=False, max_length=63)
    preemptibility = serializers.CharField(required=False, max_length=30)
    category = serializers.CharField(required=False, max_length=40)
    preset = serializers.CharField(required=False, max_length=63)
    preemptibilities = serializers.DictField(child=serializers.CharField(max_length=30), required=False)


KINDS: Final = ("quotas", "priority", "type", "preset")


class PlanCreate(serializers.Serializer[Any]):
    """A change to plan. It is not made."""

    kind = serializers.ChoiceField(choices=KINDS)
    change = PlannedChangeSchema()


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
        part = part_of(rows, request, order="-created_at")
        return Response({"plans": [plan_row_json(row) for row in part.rows], **part.ways_on})

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
        return Response(plan_json(plan), status=201)


class PlanDetail(Route):
    """A plan by id."""

    access = {"GET": OWN}

    @operation("get_plan", "Read a change plan", PlanSchema, description=f"Beyond Run:ai. {NEEDS}")
    def get(self, request: Request, plan_id: str) -> Response:
        """The plan with its effect."""
        return Response(plan_json(_plan_or_404(request, plan_id)))


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
        return Response(plan_json(apply_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))))


class PlanDiscard(Route):
    """Close a plan without its change."""

    access = {"POST": OWN}

    @operation("discard_plan", "Discard a change plan", PlanSchema, description=f"Beyond Run:ai. {NEEDS}")
    def post(self, request: Request, plan_id: str) -> Response:
        """The plan, discarded."""
        return Response(plan_json(discard_plan(plan=_plan_or_404(request, plan_id), actor=actor_of(request))))


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
        back = roll_back(plan=_plan_or_404(request, plan_id), actor=actor_of(request))
        return Response(plan_json(back), status=201)


def plan_row_json(plan: Plan) -> dict[str, Any]:
    """A plan without its effect."""
    return rendered(
        PlanRowSchema,
        plan,
        id=str(plan.pk),
        sentence=plan.effect["sentence"],
        state=state_of(plan),
        appliedAt=rfc3339(plan.applied_at) if plan.applied_at else None,
        rollsBack=str(plan.rolls_back_id) if plan.rolls_back_id else None,
    )


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan with everything that it says it does."""
    shown = ("objects", "workloads", "victims", "types", "quotas", "sums", "warnings")
    risk = {"gpuHoursAtRisk": plan.effect["gpu_hours_at_risk"]}
    return {**plan_row_json(plan), **{name: plan.effect[name] for name in shown}, **risk}


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
    kept = {f"{name}_{kind}" for name in DIMENSIONS for kind in ("deserved", "limit") if kind in given[name]}
    values = {name: value for name, value in columns.items() if name in kept or (name == "rank" and "rank" in entry)}
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


def _dictionary(kind: str) -> Callable[[Mapping[str, Any]], Change]:
    def read(body: Mapping[str, Any]) -> Change:
        operations = _NEEDED[kind]
        op = body.get("op", "preset" if kind == "preset" else "")
        if op not in operations:
            raise ValidationFailed.at("/change/op", "unknown_op", "Unknown operation.", allowed=operations)
        missing = [
            Problem(f"/change/{name}", "required", "This field is required.")
            for name in operations[op]
            if name not in body
        ]
        if missing:
            raise ValidationFailed(missing[0].message, code="required", problems=missing)
        given = {_NAMES.get(name, name): value for name, value in body.items() if name not in {"quotas", "reason"}}
        extra = {"preemptibilities": body.get("preemptibilities", {})} if kind == "preset" else {}
        return {**given, **extra, "op": op}

    return read


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Change]]] = {
    "quotas": _quotas,
    **{kind: _dictionary(kind) for kind in _NEEDED},
}
