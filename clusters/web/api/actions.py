"""What an admin asks of a connected cluster: beyond Run:ai, whose clusters look after themselves.

What takes time is done by a worker: the answer is 202, and the result appears in the list of syncs.

Another scheduler for a living cluster: planned, then done. Beyond Run:ai, which has one.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.connection.rules.rights import as_yaml
from clusters.connection.services.registration import try_stored
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import (
    pause,
    request_reconcile,
    set_defer_preemptors,
    set_pod_security,
    unpause,
)
from clusters.ports.gateway import ClusterError
from clusters.sync.models import Drift, SyncRun
from clusters.sync.services.drift import adopt, repair, request_dry_run
from clusters.sync.services.scheduler_switch import plan_switch, switch_flavour
from clusters.web.api.clusters import ADMIN, cluster_by_id, managed_cluster
from clusters.web.selectors import (
    ObjectVisibility,
    difference,
    drifts_of,
    hidden_drifts,
    object_visibility,
    runs_of,
)
from clusters.web.serializers.actions import (
    ConnectionTestSchema,
    DeferralChange,
    DifferenceSchema,
    DifferencesSchema,
    NamedObject,
    NamedObjectWithUid,
    PauseChange,
    PodSecurityChange,
    SchedulerChange,
    SchedulerChoice,
    SchedulerPlanSchema,
    SwitchEffectSchema,
    SyncSchema,
    SyncsSchema,
    UnpauseChange,
)
from portal.kit.api.lists import PAGES, part_of
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission
from portal.kit.api.serializers import AcceptedSchema, operation, rendered, validated_body
from portal.kit.errors import Conflict, NotFound
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission

READ: Final = RoutePermission(at="cluster")


class Syncs(Route):
    """What reconciles of a cluster did or would do; one more."""

    access = {"GET": READ, "POST": ADMIN}

    @operation("get_cluster_syncs", "List a cluster's syncs", SyncsSchema, parameters=PAGES)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """The newest first, each with the first objects that it changed: failures before the rest."""
        cluster = cluster_by_id(cluster_id)
        visible = object_visibility(actor_of(request), cluster)
        page = part_of(runs_of(cluster, visible), request, order="-started_at")
        return Response({"syncs": [_sync(each, visible) for each in page.rows], **page.ways_on})

    @operation("sync_cluster", "Reconcile a cluster now", AcceptedSchema, 202)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """A worker makes the cluster equal to the database; 409 while it is paused."""
        request_reconcile(managed_cluster(request, cluster_id), actor_of(request))
        return _accepted(_("Reconcile started. The run appears in the list of syncs."))


def _sync(run: SyncRun, visible: ObjectVisibility) -> dict[str, Any]:
    """A run; its error may name objects of others."""
    error = run.error if visible.everything else ""
    return rendered(SyncSchema, run, owners=visible.owners_in(run.scope), message=error)


class DryRuns(Route):
    """What a reconcile would do."""

    access = {"POST": ADMIN}

    @operation("dry_run_cluster_sync", "Start a dry run of a reconcile", AcceptedSchema, 202)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """A worker finds out and writes nothing; 409 while the cluster is paused."""
        request_dry_run(cluster=managed_cluster(request, cluster_id), actor=actor_of(request))
        return _accepted(_("Dry run started. It appears in the list of syncs."))


class Differences(Route):
    """How a cluster's objects differ from what is wanted."""

    access = {"GET": READ}

    @operation("get_cluster_differences", "List a cluster's drift", DifferencesSchema, parameters=PAGES)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """By name, as the last look found them."""
        cluster = cluster_by_id(cluster_id)
        visible = object_visibility(actor_of(request), cluster)
        page = part_of(drifts_of(cluster, visible), request, order="name")
        rows = [rendered(DifferenceSchema, each) for each in page.rows]
        return Response({"differences": rows, "hidden": hidden_drifts(cluster, visible), **page.ways_on})


class Repairs(Route):
    """An object of ours that was changed by another writer."""

    access = {"POST": ADMIN}

    @operation("repair_difference", "Repair an object now", AcceptedSchema, 202, request=NamedObject)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """The next run makes it as wanted; 404 where it does not differ, 409 where it is not Rung's to repair."""
        cluster = managed_cluster(request, cluster_id)
        repair(drift=_named(cluster, validated_body(NamedObject, request.data)), actor=actor_of(request))
        return _accepted(_("The next sync run repairs it."))


class Adoptions(Route):
    """A foreign object in the place of a wanted one."""

    access = {"POST": ADMIN}

    @operation("adopt_object", "Take over a foreign object", AcceptedSchema, 202, request=NamedObjectWithUid)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """The next run marks it as Rung's own and makes it as wanted; 409 where another object is there by now."""
        cluster = managed_cluster(request, cluster_id)
        body = validated_body(NamedObjectWithUid, request.data)
        adopt(drift=_named(cluster, body), uid=body["uid"], actor=actor_of(request))
        return _accepted(_("The next sync run takes it over."))


class ClusterPodSecurity(Route):
    """What pods in project namespaces must satisfy."""

    access = {"PUT": ADMIN}

    @operation("set_pod_security", "Set the Pod Security of project namespaces", status=204, request=PodSecurityChange)
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """It holds for pods made from then on."""
        cluster = managed_cluster(request, cluster_id)
        body = validated_body(PodSecurityChange, request.data)
        set_pod_security(cluster=cluster, level=body["podSecurity"], actor=actor_of(request))
        return Response(status=204)


class ClusterDeferral(Route):
    """Whether Rung keeps minimum runtimes where the scheduler does not."""

    access = {"PUT": ADMIN}

    def planned(self, request: Request, cluster_id: UUID) -> PlannedWrite:
        """What the body sets."""
        cluster = managed_cluster(request, cluster_id)
        enabled = validated_body(DeferralChange, request.data)["deferPreemptors"]
        return "defer_preemptors", {"cluster": cluster.name, "defer_preemptors": enabled}

    @operation(
        "set_defer_preemptors",
        "Defer who would evict a run inside its minimum runtime, or not",
        status=204,
        request=DeferralChange,
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """It matters where the scheduler evicts such runs itself; forecasts go by it at once."""
        cluster = managed_cluster(request, cluster_id)
        enabled = validated_body(DeferralChange, request.data)["deferPreemptors"]
        set_defer_preemptors(cluster=cluster, enabled=enabled, actor=actor_of(request))
        return Response(status=204)


class Pause(Route):
    """A cluster left alone."""

    access = {"POST": ADMIN}

    @operation("pause_cluster", "Pause a cluster", status=204, request=PauseChange)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Nothing is written to it until it is unpaused; what runs there goes on. Paused already changes nothing."""
        cluster, actor = managed_cluster(request, cluster_id), actor_of(request)
        pause(cluster=cluster, reason=validated_body(PauseChange, request.data or {}).get("reason", ""), actor=actor)
        return Response(status=204)


class Unpause(Route):
    """A cluster worked with again."""

    access = {"POST": ADMIN}

    @operation("unpause_cluster", "Resume a cluster", status=204, request=UnpauseChange)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Due at once. `adopt` takes over another cluster that answers at its address by now."""
        cluster = managed_cluster(request, cluster_id)
        unpause(
            cluster=cluster, actor=actor_of(request), adopt=validated_body(UnpauseChange, request.data or {})["adopt"]
        )
        return Response(status=204)


class ConnectionTest(Route):
    """What the stored connection of a cluster reaches."""

    access = {"POST": RoutePermission(Permission.MANAGE_CLUSTERS, "cluster", reads=True)}

    @operation("test_cluster_connection", "Test a cluster's connection", ConnectionTestSchema)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Asks the cluster now: who Rung is there, and which rights it lacks. 409 for one that has no connection."""
        report = try_stored(managed_cluster(request, cluster_id))
        names = [each.name for each in report.schedulers]
        return Response(rendered(ConnectionTestSchema, report, schedulers=names))


def _named(cluster: Cluster, body: Mapping[str, Any]) -> Drift:
    found = difference(
        cluster, ObjectVisibility(everything=True), kind=body["kind"], namespace=body["namespace"], name=body["name"]
    )
    if found is None:
        raise NotFound
    return found


def _accepted(message: str) -> Response:
    return Response({"code": 202, "message": message}, status=202)


class SchedulerPlans(Route):
    """What another scheduler would mean."""

    access = {"POST": RoutePermission(Permission.MANAGE_CLUSTERS, "cluster", reads=True)}

    @operation("plan_cluster_scheduler", "Preview a change of scheduler", SchedulerPlanSchema, request=SchedulerChoice)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Asks the cluster and writes nothing: an estimate, true for its `generation`."""
        cluster = managed_cluster(request, cluster_id)
        flavour = validated_body(SchedulerChoice, request.data)["flavour"]
        try:
            plan = plan_switch(cluster=cluster, flavour=flavour)
        except ClusterError as error:
            raise _unanswered(error) from error
        rights = as_yaml(plan.after.name, beside=plan.before.name) if plan.hindrances.lacking else ""
        work = rendered(SwitchEffectSchema, plan.work, uncountedGpus=plan.work.uncounted / 1000)
        return Response(rendered(SchedulerPlanSchema, plan, rights=rights, work=work))


class Scheduler(Route):
    """The scheduler of one cluster."""

    access = {"PUT": ADMIN}

    def planned(self, request: Request, cluster_id: UUID) -> PlannedWrite:
        """The scheduler that the body names."""
        cluster = managed_cluster(request, cluster_id)
        flavour = validated_body(SchedulerChange, request.data)["flavour"]
        return "scheduler", {"cluster": cluster.name, "flavour": flavour}

    @operation("set_cluster_scheduler", "Change a cluster's scheduler", status=204, request=SchedulerChange)
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
    return Conflict(f"The cluster did not respond: {error.message}", code=error.code)
