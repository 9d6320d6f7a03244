"""Another scheduler for a living cluster: planned, then done. Beyond Run:ai, which has one."""

from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.errors import ClusterError
from clusters.rbac import as_yaml
from clusters.services.switching import KindPlan, PromiseChange, SwitchPlan, plan_switch, switch_flavour
from clusters.switches import Some, Work
from portal.core.bodies import REFUSALS, ErrorSchema, checked
from portal.core.errors import Conflict
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from portal.core.wire import stamp
from tenants.api.lookups import ADMIN, managed_cluster
from tenants.api.switching_schemas import SchedulerChange, SchedulerChoice, SchedulerPlanSchema
from tenants.permissions import Verb

ANSWERED: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}


class SchedulerPlans(Route):
    """What another scheduler would mean."""

    access = {"POST": Rule(Verb.MANAGE_CLUSTERS, "cluster", reads=True)}

    @extend_schema(
        operation_id="plan_cluster_scheduler",
        summary="Plan another scheduler for a cluster",
        request=SchedulerChoice,
        responses={200: SchedulerPlanSchema, **ANSWERED},
    )
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Asks the cluster and writes nothing: an estimate, true for its `generation`."""
        cluster = managed_cluster(request, cluster_id)
        flavour = checked(SchedulerChoice, request.data)["flavour"]
        try:
            return Response(_plan_json(plan_switch(cluster=cluster, flavour=flavour)))
        except ClusterError as error:
            raise _unanswered(error) from error


class Scheduler(Route):
    """The scheduler of one cluster."""

    access = {"PUT": ADMIN}

    @extend_schema(
        operation_id="set_cluster_scheduler",
        summary="Give a cluster another scheduler",
        request=SchedulerChange,
        responses={204: None, **ANSWERED},
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """A reconcile makes the new objects, then takes the old ones away. Running workloads keep their objects.

        409 where something forbids it, or the cluster has moved on since the plan. Undone by switching back.
        """
        cluster = managed_cluster(request, cluster_id)
        body = checked(SchedulerChange, request.data)
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
        "askedAt": stamp(plan.asked_at),
        "observedAt": stamp(plan.observed_at),
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


def _promise_json(change: PromiseChange) -> dict[str, str]:
    now = change.after
    said = {"code": now.code, "title": str(now.title), "explanation": str(now.explanation), "remedy": str(now.remedy)}
    return {**said, "before": change.before.enforced, "after": now.enforced}


def _work_json(work: Work) -> dict[str, Any]:
    return {
        **{name: _some_json(getattr(work, name)) for name in ("stays", "anew", "unexpressed", "unmanaged")},
        "evicted": None if work.evicted is None else _some_json(work.evicted),
        "uncountedGpus": work.uncounted / 1000,
    }


def _some_json(some: Some) -> dict[str, Any]:
    return {"count": some.count, "names": [name for _key, name in some.samples]}
