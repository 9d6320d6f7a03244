"""Kinds of plans, which plans an actor may see, and what plans compare: facts, objects, workloads and quotas.

The feature of a setting registers how its changes are planned (`register_kind`); the engine knows no setting.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest
from clusters.ports.objects import stamped
from clusters.sync.rules.diff import Change as ObjectChange
from clusters.sync.rules.diff import Create, Delete, Fenced, NameConflict, Replace, Update, diff
from clusters.sync.selectors import SyncSince, desired_state, syncs_since
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.pages.api_snippets import ApiRequest
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import Resources
from scheduling.state.queue_usage import fits_quota
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, require, visible_departments
from tenants.organisation.models import Department, Project
from tenants.quotas.selectors.reclaims import reclaim_rows
from workloads.plans.models import Plan, PlanApproval, PlanScope
from workloads.state.models import DesiredPhase, Workload
from workloads.state.rules import WAITING
from workloads.state.selectors.usage import Bounds, bounds_of, gpu_seconds_at_risk, live, queue_paths

Change = Mapping[str, Any]
Effect = dict[str, Any]
Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanKind:
    """How one kind of change is planned. Every function gets the change as data; `Plan.change` stores it.

    title: the change in a few words. scopes: the permissions it needs, unsaved. facts: the rows that it is computed
    on, one short text each. effect: what it would do; raises what applying it would raise. apply: make the change, in
    the caller's transaction. undo: the inverse change, from the rows of now; None where there is none. requests: the
    same change over REST. page: name of the page that shows the setting.
    """

    title: Callable[[Change], str]
    scopes: Callable[[Change], Sequence[PlanScope]]
    facts: Callable[[Change], Facts]
    effect: Callable[[Change, Actor], Effect]
    apply: Callable[[Change, Actor], None]
    undo: Callable[[Change], Change | None]
    requests: Callable[[Plan], list[ApiRequest]] = lambda _plan: []
    page: str = "workloads:plans"


_kinds: Final[dict[str, PlanKind]] = {}


def register_kind(name: str, kind: PlanKind) -> None:
    """Make changes of this name plannable; once is enough, again changes nothing."""
    _kinds[name] = kind


def kind_named(name: str) -> PlanKind:
    """The registered kind; ValidationFailed with those that exist."""
    if name not in _kinds:
        text = f"{name[:40]!r} is not a kind of plan."
        raise ValidationFailed.at("/kind", "kind_unknown", text, allowed=kind_names())
    return _kinds[name]


def kind_names() -> list[str]:
    return sorted(_kinds)


def require_scopes(scopes: Iterable[PlanScope], actor: Actor) -> None:
    """Raise unless every permission is held: NotFound for a place that the actor may not see, else Forbidden."""
    for scope in scopes:
        verb = Permission(scope.permission)
        require(actor, verb, project=scope.project, department=scope.department, cluster=scope.cluster)


PLANNED: Final = (
    Permission.MANAGE_PROJECT_QUOTA,
    Permission.MANAGE_DEPARTMENT_QUOTA,
    Permission.MANAGE_DICTIONARY,
    Permission.MANAGE_PROJECT,
    Permission.MANAGE_DEPARTMENT,
    Permission.MANAGE_CLUSTERS,
)
"""The permissions that plans need."""


def visible_plans(actor: Actor) -> QuerySet[Plan]:
    """Plans whose changes the actor may make, all of each."""
    held = access_for(actor)
    allowed = Q(pk__in=())
    for permission in PLANNED:
        place = Q()
        if not held.can(permission):
            place = Q(project__in=held.projects(permission))
            place |= Q(project=None, department__in=held.departments(permission))
            place |= Q(project=None, department=None, cluster__in=held.clusters(permission))
        allowed |= Q(permission=permission.value) & place
    mine = PlanScope.objects.filter(allowed)
    others = PlanScope.objects.filter(plan=OuterRef("pk")).exclude(pk__in=mine.values("pk"))
    return Plan.objects.exclude(Exists(others)).prefetch_related("scopes__project")


def approval_of(department: Department | None) -> PlanApproval | None:
    """The row that requires approval for a department alone; None: for every plan."""
    return PlanApproval.objects.filter(department=department).first()


def approval_place(change: Change) -> Department | None:
    """The department that a change of the requirement names; None: the installation. NotFound where it is absent."""
    if not change.get("department"):
        return None
    on = {"cluster__name": change["cluster"]} if change.get("cluster") else {}
    found = list(Department.objects.filter(name=change["department"], **on).select_related("cluster")[:2])
    if not found:
        raise NotFound
    if len(found) > 1:
        raise ValidationFailed.at("/cluster", "ambiguous", "Name the cluster of the department.")
    return found[0]


def visible_approvals(actor: Actor) -> QuerySet[PlanApproval]:
    """That of the installation, and those of departments that the actor may see."""
    mine = Q(department=None) | Q(department__in=visible_departments(actor))
    return PlanApproval.objects.filter(mine).select_related("department")


def subject_of(actor: Actor) -> str:
    """Who acts, as `Plan.author` has it."""
    return f"{actor.kind}:{actor.id}"


def plans_to_approve(actor: Actor) -> QuerySet[Plan]:
    """Plans that wait for an approval that the actor may give: those of others."""
    return in_state(visible_plans(actor), UNAPPROVED).exclude(author=subject_of(actor))


def approval_departments() -> frozenset[int | None]:
    """Departments whose plans need an approval; None among them: all plans do."""
    return frozenset(PlanApproval.objects.values_list("department_id", flat=True))


def needs_approval(scopes: Iterable[PlanScope], required: Collection[int | None] | None = None) -> bool:
    """Does a second admin have to approve plans with these permissions? `required`: of `approval_departments`."""
    required = frozenset(approval_departments() if required is None else required)
    places = {scope.project.department_id if scope.project else scope.department_id for scope in scopes}
    return None in required or not required.isdisjoint(places - {None})


def awaits_approval(plan: Plan, required: Collection[int | None] | None = None) -> bool:
    """Can the plan be applied only once a second admin has approved it? `required`: of `approval_departments`."""
    return state_of(plan) == "open" and plan.approved_at is None and needs_approval(plan.scopes.all(), required)


UNAPPROVED: Final = "needs-approval"
STATES: Final = ("open", UNAPPROVED, "expired", "applied", "discarded")
"""By which plans are filtered: their states, and the open ones that cannot be applied before an approval."""


def in_state(plans: QuerySet[Plan], state: str) -> QuerySet[Plan]:
    """Those in one of `STATES`. An open plan expires by time alone."""
    now = timezone.now()
    if state == "open":
        return plans.filter(state="open", expires_at__gt=now)
    if state == UNAPPROVED:
        required = approval_departments()
        there = Q() if None in required else Q(department__in=required) | Q(project__department__in=required)
        scopes = PlanScope.objects.filter(there, plan=OuterRef("pk"))
        return in_state(plans, "open").filter(Exists(scopes), approved_at=None)
    if state == "expired":
        return plans.filter(state="open", expires_at__lte=now)
    return plans.filter(state=state)


def plan_reclaims(plan: Plan, actor: Actor) -> list[dict[str, Any]]:
    """Which reclaims between projects and departments a plan changes; none in plans that were stored without."""
    return reclaim_rows(plan.effect.get("reclaims", {"rows": ()}), actor)


def plan_groups(plan: Plan) -> dict[str, Any]:
    """Its groups of workloads. more: how many are not among the examples."""
    found: dict[str, Any] = plan.effect["workloads"]
    return {name: {**group, "more": group["count"] - len(group["examples"])} for name, group in found.items()}


def plan_syncs(plan: Plan) -> list[SyncSince]:
    """Has each cluster whose objects an applied plan changes been synced since? Two queries."""
    if plan.applied_at is None:
        return []
    known = plan.effect.get("generations", {})  # not in plans that were applied before it was stored
    return syncs_since(
        plan.applied_at, {each["cluster"]: known.get(each["cluster"], 1) for each in plan.effect["objects"]}
    )


def state_of(plan: Plan) -> str:
    """One of `STATES`, never `UNAPPROVED`: such a plan is open."""
    return "expired" if plan.state == "open" and plan.expires_at <= timezone.now() else plan.state


EXAMPLES: Final = 20
GROUPS: Final = (
    "keep_old_value",
    "wait_with_old_value",
    "take_new_value",
    "keep_preemptibility",
    "flip",
    "becomes_reclaimable",
    "no_longer_fit",
    "fit_again",
    "running",
    "waiting",
)
"""Groups of workloads that every effect counts. Each has `count` and up to 20 `examples`."""
GROUP_WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "becomes_reclaimable": ("running workload", "becomes reclaimable", "become reclaimable"),
    "stopped": ("running workload", "has passed the new limit", "have passed the new limit"),
    "evictable": ("running workload", "is no longer protected", "are no longer protected"),
    "protected": ("running workload", "is protected from eviction", "are protected from eviction"),
    "sent": ("deferred workload", "is sent to the cluster", "are sent to the cluster"),
    "over_cap": ("running workload", "holds GPUs above the cap", "hold GPUs above the cap"),
    "leaves_pool": ("running workload", "is on nodes that leave its pool", "are on nodes that leave their pool"),
    "stays": ("running workload", "stays with the old scheduler", "stay with the old scheduler"),
    "evicted": ("running workload", "would be evicted by the new scheduler", "would be evicted by the new scheduler"),
    "recreated": ("waiting or stopped workload", "is recreated", "are recreated"),
    "unsupported": ("workload", "is not supported by the new scheduler", "are not supported by the new scheduler"),
    "refused_again": ("workload", "could not be submitted again", "could not be submitted again"),
    "allowed_again": ("workload", "could be submitted again", "could be submitted again"),
    "no_longer_fit": ("waiting workload", "no longer fits", "no longer fit"),
    "fit_again": ("waiting workload", "fits again", "fit again"),
}
"""Groups of plans of single settings: what they are, and what becomes of one and of many of them."""
WHEN_LOST: Final = {
    "no_longer_fit": "fit_again",
    "protected": "evictable",
    "deferred": "sent",
    "refused_again": "allowed_again",
}
"""The group of those who leave another one."""
AT_RISK: Final = ("becomes_reclaimable", "stopped", "evictable", "leaves_pool", "evicted")
"""Groups whose GPU-hours are at risk."""


def blank_effect() -> Effect:
    """An effect without anything: every kind of plan fills in its part of one shape."""
    return {
        "sentence": "No objects change.",
        "settings": [],
        "objects": [],
        "workloads": {group: {"count": 0, "examples": []} for group in GROUPS},
        "gpu_hours_at_risk": 0,
        "victims": {"new": [], "lost": [], "changed": [], "scopes": []},
        "starts": None,
        "reclaims": {"new": 0, "lost": 0, "changed": 0, "rows": [], "left_out": 0},
        "types": [],
        "quotas": [],
        "sums": [],
        "warnings": [],
    }


LATER: Final = "…"
"""The mark of objects that are deleted once no workload uses them."""
MARKS: Final[Mapping[type[ObjectChange], str]] = {
    Create: "+",
    Update: "~",
    Replace: "±",
    Delete: "-",
    NameConflict: "!",
    Fenced: "=",
}


def objects_on(cluster: Cluster) -> Sequence[Manifest]:
    """What the cluster should hold of queues, quotas and priorities by the rows of now."""
    return list(flavour_for(cluster.flavour).objects_for(desired_state(cluster, domains=False)))


def object_changes(cluster: Cluster, before: Iterable[Manifest], after: Iterable[Manifest]) -> dict[str, Any]:
    """The flavour's own objects before and after, compared as reconcile compares them."""
    found = diff([stamped(each) for each in before], list(after))
    return {"cluster": cluster.name, "simulated": cluster.is_simulated, "changes": [_as_row(each) for each in found]}


def _as_row(change: ObjectChange) -> dict[str, Any]:
    return {
        "mark": MARKS[type(change)],
        "kind": change.ref.kind.kind,
        "namespace": change.ref.namespace,
        "name": change.ref.name,
        "fields": [each.as_row() for each in change.changes],
    }


def objects_sentence(objects: Sequence[Mapping[str, Any]]) -> str:
    """ "2 objects replaced on 3 clusters", without a full stop."""
    words = {"+": "created", "~": "changed", "±": "replaced", "-": "deleted", LATER: "deleted later"}
    rows = [change for each in objects for change in each["changes"]]
    counts = {mark: sum(row.get("count", 1) for row in rows if row["mark"] == mark) for mark in words}
    parts = [f"{counted(number, 'object')} {words[mark]}" for mark, number in counts.items() if number]
    return f"{', '.join(parts)} on {counted(len(objects), 'cluster')}" if parts else "No objects change"


def object_counts(effect: Effect) -> dict[str, int]:
    """How many objects a plan changes on each cluster; a row may stand for many."""
    return {each["cluster"]: sum(row.get("count", 1) for row in each["changes"]) for each in effect["objects"]}


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def examples_of(workloads: Iterable[Workload]) -> list[dict[str, Any]]:
    """Workloads as an effect shows them. Their project and priority must be loaded."""
    return [
        {
            "id": str(each.pk),
            "name": each.name,
            "project": each.project.name,
            "priority": each.priority.name,
            "value": each.priority_value,
        }
        for each in workloads
    ]


def group_of(ids: Sequence[UUID | str]) -> dict[str, Any]:
    """The group of these workloads, the first as examples."""
    shown = list(ids[:EXAMPLES])
    rows = {str(row.pk): row for row in Workload.objects.filter(pk__in=shown).select_related("project", "priority")}
    return {"count": len(ids), "examples": examples_of(rows[str(pk)] for pk in shown if str(pk) in rows)}


def gpu_hours_at_risk(ids: Collection[UUID | str]) -> float:
    """GPU-hours that an eviction of these workloads would lose now, to a tenth; see `cost_at_risk`."""
    return round(sum(gpu_seconds_at_risk(Workload.objects.filter(pk__in=ids))) / 3600, 1)


@dataclass(frozen=True, slots=True)
class QueuedWorkload:
    """What decides whether the quotas of its node pools could ever hold a waiting workload."""

    pk: UUID
    project_id: int
    pools: tuple[str, ...]
    preemptible: bool
    total: Resources


def waiting_in(projects: Collection[int]) -> list[QueuedWorkload]:
    """Workloads of these projects that should run and have no pods, oldest first. One query; none becomes a model."""
    rows = live(projects).filter(running_pods=0, desired_phase=DesiredPhase.RUNNING, phase__in=WAITING)
    columns = ("pk", "project_id", "node_pools", "preemptibility", "gpu_milli", "cpu_milli", "memory_bytes")
    return [
        QueuedWorkload(pk, project, tuple(pools), kind != Preemptibility.NON_PREEMPTIBLE, Resources(*amounts))
        for pk, project, pools, kind, *amounts in rows.order_by("created_at").values_list(*columns)
    ]


def running_in(projects: Collection[int], pools: Collection[str]) -> int:
    """How many workloads of these projects have running pods in node pools of these names."""
    return live(projects).filter(pool_name__in=pools, running_pods__gt=0).count()


def unfit(waiting: Iterable[QueuedWorkload], projects: Mapping[int, Project]) -> set[UUID]:
    """Keys of those that the quotas of none of their node pools could hold, by the quotas of now.

    Workloads of the same size are decided once.
    """
    bounds = bounds_of(list(projects.values()))
    pools = {(pool.cluster_id, pool.name): pool for pool in NodePool.objects.all()}
    fits: dict[tuple[object, ...], bool] = {}
    found = set()
    for each in waiting:
        project = projects[each.project_id]
        shape = (each.project_id, each.pools, each.preemptible, each.total)
        if shape not in fits:
            own = [pool for name in each.pools if (pool := pools.get((project.cluster_id, name)))]
            fits[shape] = _fits(each, project, own, bounds[project.pk])
        if not fits[shape]:
            found.add(each.pk)
    return found


def _fits(
    each: QueuedWorkload, project: Project, pools: Sequence[NodePool], bounds: Mapping[tuple[str, int], Bounds]
) -> bool:
    paths = queue_paths(project, pools, bounds)
    return any(fits_quota(path, {}, each.total, preemptible=each.preemptible) is None for path in paths.values())
