"""Another scheduler for a living cluster: planned, then done. Beyond Run:ai, which has one."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from clusters.connection.rules.rights import as_yaml
from clusters.inventory.services.workload_hooks import SwitchEffect, WorkloadSample
from clusters.ports.errors import ClusterError
from clusters.sync.services.scheduler_switch import GuaranteeChange, KindPlan, SwitchPlan, plan_switch, switch_flavour
from clusters.web.api.clusters import ADMIN, managed_cluster
from clusters.web.serializers.actions import SchedulerChange, SchedulerChoice, SchedulerPlanSchema
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation, validated_body
from portal.kit.errors import Conflict
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission


class SchedulerPlans(Route):
    """What another scheduler would mean."""

    access = {"POST": RoutePermission(Permission.MANAGE_CLUSTERS, "cluster", reads=True)}

    @operation(
        "plan_cluster_scheduler", "Plan another scheduler for a cluster", SchedulerPlanSchema, request=SchedulerChoice
    )
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Asks the cluster and writes nothing: an estimate, true for its `generation`."""
        cluster = managed_cluster(request, cluster_id)
        flavour = validated_body(SchedulerChoice, request.data)["flavour"]
        try:
            return Response(_plan_json(plan_switch(cluster=cluster, flavour=flavour)))
        except ClusterError as error:
            raise _unanswered(error) from error


class Scheduler(Route):
    """The scheduler of one cluster."""

    access = {"PUT": ADMIN}

    @operation("set_cluster_scheduler", "Give a cluster another scheduler", status=204, request=SchedulerChange)
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """A reconcile makes the new objects, then takes the old ones away. Running workloads keep their objects.

        409 where something forbids it, or the cluster has moved on since the plan. Undone by switching back.
        """
        cluster = managed_cluster(request, cluster_id)
        body = validated_body(SchedulerChange, request.data)
        try:
            switch_flavour(cluster=cluster, actor=actor_of(request), **body)
        except ClusterError as error:
            raise _unanswered(error) from error
        return Response(status=204)


def _unanswered(error: ClusterError) -> Conflict:
    return Conflict(f"The cluster could not be asked: {error.message}", code=error.code)


def _plan_json(plan: SwitchPlan) -> dict[str, Any]:
    return {
        "before": plan.before.name,
        "after": plan.after.name,
        "generation": plan.generation,
        "askedAt": rfc3339(plan.asked_at),
        "observedAt": rfc3339(plan.observed_at),
        "possible": plan.possible,
        "hindered": plan.hindrances.sentence,
        "rights": as_yaml(plan.after.name, beside=plan.before.name) if plan.hindrances.lacking else "",
        "uncompared": list(plan.uncompared),
        "warnings": list(plan.hindrances.warnings),
        "conflicts": list(plan.conflicts),
        "unchanged": plan.unchanged,
        "kinds": [_kind_json(each) for each in plan.kinds],
        "promises": [_promise_json(each) for each in plan.promises],
        "work": _work_json(plan.work),
    }


def _kind_json(plan: KindPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "created": plan.create,
        "updated": plan.update,
        "replaced": plan.replace,
        "deleted": plan.delete,
        "kept": plan.kept,
        "inConflict": plan.conflict,
        "samples": list(plan.samples),
    }


def _promise_json(change: GuaranteeChange) -> dict[str, str]:
    now = change.after
    said = {"code": now.code, "title": str(now.title), "explanation": str(now.explanation), "remedy": str(now.remedy)}
    return {**said, "before": change.before.enforced, "after": now.enforced}


def _work_json(work: SwitchEffect) -> dict[str, Any]:
    return {
        **{name: _some_json(getattr(work, name)) for name in ("stays", "anew", "unexpressed", "unmanaged")},
        "evicted": None if work.evicted is None else _some_json(work.evicted),
        "uncountedGpus": work.uncounted / 1000,
    }


def _some_json(some: WorkloadSample) -> dict[str, Any]:
    return {"count": some.count, "names": [name for _key, name in some.samples]}
