"""Plans of node pools, of the scheduler of a cluster, and of deferring preemptors there."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import (
    create_node_pool,
    delete_node_pool,
    set_defer_preemptors,
    update_node_pool,
)
from clusters.inventory.services.workload_hooks import WorkloadSample
from clusters.ports.flavour import MIN_RUNTIME
from clusters.ports.gateway import ClusterError
from clusters.sync.services.scheduler_switch import KindPlan, SwitchPlan, plan_switch, switch_flavour
from clusters.watch.models import ObservedPod
from clusters.watch.services.observations import pool_of
from portal.kit.db.transactions import external_call
from portal.kit.errors import Conflict, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.organisation.models import Project
from workloads.plans.models import PlanScope
from workloads.plans.selectors import LATER, Change, Effect, Facts, blank_effect, counted, group_of
from workloads.plans.services.limit_plans import inside_min_runtime
from workloads.plans.services.setting_plans import Groups, Reach, SettingPlan, devices, effect_sentence, pool_sums
from workloads.state.models import DesiredPhase
from workloads.state.rules import HELD_BACK, WAITING
from workloads.state.selectors.usage import live
from workloads.state.selectors.workloads import workload_ids

COLUMNS: Final = ("label_key", "label_value", "gpu_placement", "topology_levels", "is_default")
Amounts = tuple[int, int]
"""Nodes, and thousandths of their GPUs."""


def cluster_named(change: Change) -> Cluster:
    """By name; NotFound where it is absent."""
    found = Cluster.objects.filter(name=change.get("cluster", "")).first()
    if found is None:
        raise NotFound
    return found


class ClusterSetting(SettingPlan):
    """A setting of one cluster, named by `cluster`."""

    def scopes(self, change: Change) -> list[PlanScope]:
        return [PlanScope(permission=Permission.MANAGE_CLUSTERS.value, cluster=cluster_named(change))]

    def reach(self, change: Change) -> Reach:
        cluster = cluster_named(change)
        rows = Project.objects.filter(cluster=cluster).select_related("department", "cluster")
        return Reach((cluster,), {row.pk: row for row in rows})


class NodePoolPlan(ClusterSetting):
    """`op` create, change or delete; `pool`, and the columns that are given. `default`: a pool to be the default first.

    Nodes belong to the pool whose label they carry, as last observed.
    """

    def title(self, change: Change) -> str:
        return f"{change['op'].capitalize()} node pool {change['pool']} of {change['cluster']}"

    def facts(self, change: Change) -> Facts:
        cluster = cluster_named(change)
        return {f"node pool {each.name} of {cluster.name}": _pool_text(each) for each in cluster.node_pools.all()}

    def figures(self, change: Change) -> Facts:
        return {
            f"nodes of {name}": f"{counted(nodes, 'node')}, {devices(gpus)} GPUs"
            for name, (nodes, gpus) in _amounts(cluster_named(change)).items()
        }

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        cluster, values = cluster_named(change), {name: change[name] for name in COLUMNS if name in change}
        if change["op"] == "create":
            create_node_pool(cluster=cluster, name=change["pool"], actor=actor, **values)
            return ()
        if first := change.get("default"):
            update_node_pool(pool=_pool(cluster, first), actor=actor, is_default=True)
        pool = _pool(cluster, change["pool"])
        if change["op"] == "delete":
            delete_node_pool(pool=pool, actor=actor)
        else:
            update_node_pool(pool=pool, actor=actor, **values)
        return ()

    def undo(self, change: Change) -> Change:
        cluster = cluster_named(change)
        default = cluster.node_pools.filter(is_default=True).values_list("name", flat=True).first()
        named = {"cluster": cluster.name, "pool": change["pool"]}
        if change["op"] == "create":
            return {"op": "delete", **named, "default": default}
        row = _pool(cluster, change["pool"])
        before = {name: getattr(row, name) for name in COLUMNS}
        if change["op"] == "delete":
            return {"op": "create", **named, **before}
        first = default if default != row.name else None
        return {"op": "change", **named, **{name: before[name] for name in COLUMNS[:-1]}, "default": first}

    def groups(self, change: Change, reach: Reach) -> Groups:
        cluster = reach.clusters[0]
        pools = list(cluster.node_pools.all())
        homes = {
            name: home.name if (home := pool_of(labels, pools)) else ""
            for name, labels in Node.objects.filter(cluster=cluster).values_list("name", "labels")
        }
        return {
            "leaves_pool": _outside(cluster, homes),
            "no_longer_fit": _too_big(reach, _amounts(cluster)),
            "recreated": self._changed(change, reach),
        }

    def sums(self, change: Change) -> list[dict[str, Any]]:
        cluster = cluster_named(change)
        amounts = _amounts(cluster)
        pools = cluster.node_pools.exclude(name=change["pool"] if change["op"] != "change" else "")
        return [row for pool in pools.select_related("cluster") for row in pool_sums(pool, amounts[pool.name][1])]

    def notes(self, change: Change) -> Iterable[str]:
        for each in self.sums(change):
            if each["before"] > each["most"]:
                text = f"{each['of'].capitalize()} deserve {each['before']} GPUs in {each['pool']}"
                yield f"{text}; its nodes have {each['most']}."

    def _changed(self, change: Change, reach: Reach) -> list[UUID]:
        """Waiting workloads of the pool whose generation counts this change: none before, all of them after it."""
        if change["op"] != "change":
            return []
        rows = live(list(reach.projects)).filter(pool_name=change["pool"], running_pods=0, due_at__isnull=False)
        return list(rows.order_by("created_at").values_list("pk", flat=True))


def _pool(cluster: Cluster, name: str) -> NodePool:
    found = {each.name: each for each in cluster.node_pools.select_related("cluster")}
    if name not in found:
        text = f"{cluster.name} has no node pool {name[:63]!r}."
        raise ValidationFailed.at("/pool", "unknown_node_pool", text, allowed=found)
    return found[name]


def _pool_text(pool: NodePool) -> str:
    levels = f", levels {', '.join(pool.topology_levels)}" if pool.topology_levels else ""
    default = ", default" if pool.is_default else ""
    return f"label {pool.label_key}={pool.label_value}, {pool.gpu_placement}{levels}{default}"


def _amounts(cluster: Cluster) -> dict[str, Amounts]:
    """By pool, as its label makes it now. In the order of the pools."""
    pools = list(cluster.node_pools.all())
    found = dict.fromkeys((each.name for each in pools), (0, 0))
    for labels, gpus in Node.objects.filter(cluster=cluster).values_list("labels", "gpu_milli"):
        if home := pool_of(labels, pools):
            nodes, held = found[home.name]
            found[home.name] = nodes + 1, held + gpus
    return found


def _outside(cluster: Cluster, homes: Mapping[str, str]) -> list[UUID]:
    """Running workloads with a pod on a node that is not of their pool."""
    pods = ObservedPod.objects.live().filter(cluster=cluster).exclude(node_name="").exclude(owner_id="")
    rows = pods.values_list("owner_id", "node_name", "pool_name").order_by("started_at", "pk")
    owners = (owner for owner, node, pool in rows if homes.get(node, pool) != pool)
    return workload_ids(dict.fromkeys(owners).keys())


def _too_big(reach: Reach, amounts: Mapping[str, Amounts]) -> list[UUID]:
    """Waiting workloads that need more GPUs than all nodes of each of their pools have."""
    rows = live(list(reach.projects)).filter(running_pods=0, desired_phase=DesiredPhase.RUNNING, phase__in=WAITING)
    columns = rows.order_by("created_at").values_list("pk", "node_pools", "gpu_milli")
    return [pk for pk, pools, gpus in columns if all(gpus > amounts.get(name, (0, 0))[1] for name in pools)]


class DeferralPlan(ClusterSetting):
    """`defer_preemptors`: does Rung defer workloads that would evict a run inside its minimum runtime?"""

    def title(self, change: Change) -> str:
        return f"{'Defer' if change['defer_preemptors'] else 'Stop deferring'} preemptors on {change['cluster']}"

    def facts(self, change: Change) -> Facts:
        cluster = cluster_named(change)
        return {f"defer preemptors on {cluster.name}": "on" if cluster.defer_preemptors else "off"}

    def figures(self, change: Change) -> Facts:
        guarantee = guarantee_on(cluster_named(change), MIN_RUNTIME)
        return {"minimum runtimes are enforced": guarantee.enforced}

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        set_defer_preemptors(cluster=cluster_named(change), enabled=change["defer_preemptors"], actor=actor)
        return ()

    def undo(self, change: Change) -> Change:
        return {**change, "defer_preemptors": cluster_named(change).defer_preemptors}

    def groups(self, change: Change, reach: Reach) -> Groups:
        """Runs that their minimum runtime protects, and workloads that wait for the end of one."""
        del change
        (cluster,) = reach.clusters
        held = live(list(reach.projects)).filter(running_pods=0, phase_reason=HELD_BACK).order_by("created_at")
        guarantee = guarantee_on(cluster, MIN_RUNTIME).enforced != "no"
        return {
            "protected": inside_min_runtime(reach) if guarantee else [],
            "deferred": list(held.values_list("pk", flat=True)) if cluster.defer_preemptors else [],
        }

    def notes(self, change: Change) -> Iterable[str]:
        cluster = cluster_named(change)
        guarantee, flavour = guarantee_on(cluster, MIN_RUNTIME), flavour_for(cluster.flavour)
        if guarantee.enforced == "yes" or flavour.traits.protects_minimum_runtime == "queues":
            yield f"{flavour.title} enforces minimum runtimes itself on {cluster.name}, so this changes nothing there."
        else:
            yield str(guarantee.explanation)


VictimsOfSwitch = Callable[[Cluster, Cluster], dict[str, Any]]
"""Who may evict whom there now and under that scheduler, as `Effect.victims`."""


class SchedulerPlan(ClusterSetting):
    """`flavour`: the scheduler that the cluster is to have. The cluster is asked; what it says is an estimate."""

    def __init__(self, victims: VictimsOfSwitch) -> None:
        self._victims = victims

    def title(self, change: Change) -> str:
        name = change["flavour"]
        return f"Scheduler of {change['cluster']}: {FLAVOURS[name].title if name in FLAVOURS else name[:20]}"

    def facts(self, change: Change) -> Facts:
        cluster = cluster_named(change)
        return {
            f"scheduler of {cluster.name}": flavour_for(cluster.flavour).title,
            f"configuration of {cluster.name}": f"generation {cluster.generation}",
        }

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        cluster = cluster_named(change)
        try:
            switch_flavour(cluster=cluster, flavour=change["flavour"], generation=cluster.generation, actor=actor)
        except ClusterError as error:
            raise _unanswered(error) from error
        return ()

    def undo(self, change: Change) -> Change:
        return {"cluster": change["cluster"], "flavour": cluster_named(change).flavour}

    def effect(self, change: Change, actor: Actor) -> Effect:
        """What `plan_switch` says. Conflict with what the cluster lacks."""
        del actor
        cluster = cluster_named(change)
        try:
            plan = external_call(partial(plan_switch, cluster=cluster, flavour=change["flavour"]))
        except ClusterError as error:
            raise _unanswered(error) from error
        if not plan.possible:
            raise Conflict(plan.hindrances.sentence, code="switch_hindered")
        found = blank_effect()
        found["settings"] = [[f"scheduler of {cluster.name}", plan.before.title, plan.after.title]]
        rows = [row for each in plan.kinds for row in _object_rows(each)]
        if rows:
            found["objects"] = [{"cluster": cluster.name, "simulated": cluster.is_simulated, "changes": rows}]
        found["workloads"] |= _switched(plan)
        found["gpu_hours_at_risk"] = round(plan.work.seconds_at_risk / 3600, 1)
        found["victims"] = self._victims(cluster, plan.target)
        found["warnings"] = list(_switch_warnings(plan))
        return {**found, "sentence": effect_sentence(found)}


def _unanswered(error: ClusterError) -> Conflict:
    return Conflict(f"The cluster did not respond: {error.message}", code=error.code)


_MARKS: Final = {"create": "+", "update": "~", "replace": "±", "delete": "-", "kept": LATER, "conflict": "!"}


def _object_rows(kind: KindPlan) -> Iterable[dict[str, Any]]:
    """A row for each kind and verb: a switch touches too many objects to name them all.

    The samples of a kind are of all its verbs, so they are named where there is one.
    """
    numbers = {mark: number for verb, mark in _MARKS.items() if (number := getattr(kind, verb))}
    examples = f", such as {', '.join(kind.samples)}" if len(numbers) == 1 and kind.samples else ""
    for mark, number in numbers.items():
        name = f"{counted(number, 'object')}{examples}"
        yield {"mark": mark, "kind": kind.kind, "namespace": "", "name": name, "fields": [], "count": number}


def _switched(plan: SwitchPlan) -> dict[str, Any]:
    work = plan.work
    unsupported = WorkloadSample(
        work.unexpressed.count + work.unmanaged.count, (*work.unexpressed.samples, *work.unmanaged.samples)
    )
    groups = {"stays": work.stays, "recreated": work.recreated, "evicted": work.evicted, "unsupported": unsupported}
    return {
        name: {**group_of([key for key, _name in each.samples]), "count": each.count}
        for name, each in groups.items()
        if each and each.count
    }


_WORSE: Final = {"no": "No longer enforced", "partly": "Only partly enforced"}


def _switch_warnings(plan: SwitchPlan) -> Iterable[str]:
    yield from plan.conflicts
    yield from plan.hindrances.warnings
    for change in plan.guarantees:
        if change.is_worse:
            after, title = change.after, change.after.title
            yield f"{_WORSE[after.enforced]}: {title[:1].lower()}{title[1:]}. {after.explanation}"
    if plan.work.evicted is None:
        yield "What the new scheduler would evict is not known: there is no model of it."
    if plan.work.uncounted:
        yield f"{devices(plan.work.uncounted)} GPUs in use are not counted by the new quotas until their workloads end."


def kinds_with(victims: VictimsOfSwitch) -> Mapping[str, SettingPlan]:
    """The kinds of this module."""
    return {
        "node_pool": NodePoolPlan(),
        "scheduler": SchedulerPlan(victims),
        "defer_preemptors": DeferralPlan(),
    }
