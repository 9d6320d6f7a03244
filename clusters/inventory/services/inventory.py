"""Change clusters and node pools. Every change is audited and requests a reconcile."""

import re
from collections.abc import Sequence
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from clusters.flavours.objects import invalid_levels
from clusters.flavours.registry import flavour_for
from clusters.flavours.rendering import LEVELS
from clusters.inventory.models import Cluster, ClusterState, NodePool, Placement
from clusters.inventory.services import dirty_owners, workload_hooks
from clusters.inventory.services.dirty_owners import notify_sync
from clusters.ports.pods import TERMINAL
from clusters.watch.models import ObservedPod, ObserverLease
from portal.audit.services import record
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change

DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
POOL_LABEL: Final = "rung.dev/node-pool"


@transaction.atomic
def rename_cluster(*, cluster: Cluster, name: str, actor: Actor) -> None:
    """Call it otherwise here; nothing in the cluster is named after it. Raises Refused or Conflict."""
    check_match("/name", name, DNS_LABEL, "lower-case letters, digits and inner dashes, at most 63")
    if Cluster.objects.filter(name=name).exclude(pk=cluster.pk).exists():
        raise Conflict.at("/name", "name_taken", f"A cluster named {name} already exists.")
    before = cluster.name
    if Cluster.objects.filter(pk=cluster.pk).exclude(name=name).update(name=name):
        cluster.refresh_from_db()
        record(actor, "cluster.rename", cluster, detail={"before": before, "after": name})


@transaction.atomic
def pause(*, cluster: Cluster, actor: Actor, reason: str = "") -> None:
    """Leave the cluster alone until it is unpaused; work on it goes on by itself. Paused already changes nothing."""
    reason = reason or f"Paused by {actor.name}."
    changed = Cluster.objects.filter(pk=cluster.pk, state=ClusterState.ACTIVE).update(
        state=ClusterState.PAUSED, paused_reason=reason
    )
    cluster.refresh_from_db()
    if changed:
        record(actor, "cluster.pause", cluster, detail={"reason": reason})


@transaction.atomic
def unpause(*, cluster: Cluster, actor: Actor, adopt: bool = False) -> None:
    """Work with the cluster again. `adopt` takes over another identity behind the same address, which must be said."""
    identity = {"uid": ""} if adopt else {}
    now = timezone.now()
    changed = Cluster.objects.filter(pk=cluster.pk, state=ClusterState.PAUSED).update(
        state=ClusterState.ACTIVE, paused_reason="", sync_due_at=now, resync_due_at=now, failures=0, **identity
    )
    cluster.refresh_from_db()
    if changed:
        if adopt:
            forget_versions(cluster)
        record(actor, "cluster.unpause", cluster, detail={"adopt": adopt})
        notify_sync(cluster.pk)


def paused_conflict(cluster: Cluster) -> Conflict:
    """The error for requests that a paused cluster does not serve."""
    message = f"{cluster.name} is paused: {cluster.paused_reason} Resume it on its Connection page, then try again."
    return Conflict(message, code="cluster_paused")


@transaction.atomic
def request_reconcile(cluster: Cluster, actor: Actor) -> None:
    """Make a reconcile due now and wake a worker. Conflict when the cluster is paused."""
    now = timezone.now()
    active = Cluster.objects.filter(pk=cluster.pk, state=ClusterState.ACTIVE)
    changed = active.update(sync_due_at=now, resync_due_at=now)
    if not changed:
        raise paused_conflict(cluster)
    record(actor, "cluster.reconcile", cluster)
    notify_sync(cluster.pk)


@transaction.atomic
def mark_dirty(cluster: Cluster, *, owner: str = dirty_owners.ALL_OWNERS) -> None:
    """What the cluster should hold has changed: next generation, due now. Call it in the transaction of the change.

    Name the owner where only its own objects change and none of them goes: a change of one then costs one.
    """
    dirty_owners.enqueue(cluster.pk, [owner])
    notify_sync(cluster.pk)


@transaction.atomic
def create_node_pool(
    *,
    cluster: Cluster,
    name: str,
    actor: Actor,
    label_value: str = "",
    label_key: str = POOL_LABEL,
    gpu_placement: str | None = None,
    topology_levels: Sequence[str] = (),
    is_default: bool = False,
) -> NodePool:
    """Add a node pool: the nodes that carry one label. The first pool of a cluster is its default."""
    check_direct_change()
    _check_placement(cluster, gpu_placement)
    _check_levels(cluster, topology_levels)
    first = not cluster.node_pools.exists()
    pool = NodePool(
        cluster=cluster,
        name=name,
        label_key=label_key,
        label_value=label_value or name,
        gpu_placement=gpu_placement or Placement.BINPACK,
        topology_levels=list(topology_levels),
        is_default=is_default or first,
        created_by=actor.name,
        updated_by=actor.name,
    )
    _store(pool)
    record(actor, "node_pool.create", pool, detail=_as_audit(pool))
    return pool


@transaction.atomic
def update_node_pool(
    *,
    pool: NodePool,
    actor: Actor,
    label_key: str | None = None,
    label_value: str | None = None,
    gpu_placement: str | None = None,
    topology_levels: Sequence[str] | None = None,
    is_default: bool | None = None,
) -> NodePool:
    """Change what makes a pool; what is not given stays. Its name stays: queues are named after it.

    With another label or other levels it has other nodes, so waiting work is recreated.
    """
    check_direct_change()
    if is_default is False and pool.is_default:
        raise ValidationFailed.at("/is_default", "default_needed", "Make another pool the default instead.")
    _check_placement(pool.cluster, None if gpu_placement == pool.gpu_placement else gpu_placement)
    levels = None if topology_levels is None else list(topology_levels)
    _check_levels(pool.cluster, () if levels == pool.topology_levels else levels or ())
    before, topology = _as_audit(pool), _topology_of(pool)
    wanted = {
        "label_key": label_key,
        "label_value": label_value,
        "gpu_placement": gpu_placement,
        "topology_levels": levels,
        "is_default": is_default,
    }
    for name, value in wanted.items():
        if value is not None:
            setattr(pool, name, value)
    other = topology != _topology_of(pool)
    if topology[0] and other:
        _check_idle(pool)
        pool.topology_revision += 1
    pool.updated_by = actor.name
    _store(pool)
    moved = workload_hooks.move(pool) if other else 0
    detail = {"before": before, "after": _as_audit(pool), **({"recreated": moved} if moved else {})}
    record(actor, "node_pool.update", pool, detail=detail)
    return pool


@transaction.atomic
def delete_node_pool(*, pool: NodePool, actor: Actor) -> None:
    """Remove a pool that no quota names and that is not the default beside others. Raises Conflict."""
    check_direct_change()
    if pool.is_default and pool.cluster.node_pools.exclude(pk=pool.pk).exists():
        raise Conflict("The default pool cannot be removed while other pools exist.", code="default_needed")
    before = NodePool(pk=pool.pk, name=pool.name)
    try:
        with transaction.atomic():
            pool.delete()
    except ProtectedError as error:
        number = len(error.protected_objects)
        uses = "1 quota uses" if number == 1 else f"{number} quotas use"
        message = f"{uses} node pool {pool.name}."
        raise Conflict.at("", "pool_in_use", message, quotas=number) from error
    mark_dirty(pool.cluster)
    record(actor, "node_pool.delete", before, detail=_as_audit(pool))


def _store(pool: NodePool) -> None:
    """Check, take the default from the pool that had it, save, and let the cluster know."""
    check_match("/name", pool.name, DNS_LABEL, "lower-case letters, digits and inner dashes, at most 63")
    check_match("/label_key", pool.label_key, LABEL_KEY, "a Kubernetes label key")
    check_match("/label_value", pool.label_value, LABEL_VALUE, "a Kubernetes label value, at most 63")
    check_choice("/gpu_placement", pool.gpu_placement, Placement.values)
    others = NodePool.objects.filter(cluster=pool.cluster).exclude(pk=pool.pk)
    if pool.is_default:
        others.filter(is_default=True).update(is_default=False)
    try:
        with transaction.atomic():
            pool.save()
    except IntegrityError as error:
        taken = "name" if others.filter(name=pool.name).exists() else "label_value"
        message = f"Another pool of {pool.cluster.name} already has this {taken.replace('_', ' ')}."
        raise Conflict.at(f"/{taken}", "taken", message) from error
    mark_dirty(pool.cluster)


def _check_placement(cluster: Cluster, wanted: str | None) -> None:
    """A strategy that was chosen for one pool, where the scheduler has one for the whole cluster."""
    flavour = flavour_for(cluster.flavour)
    if wanted and not flavour.traits.places_by_pool:
        message = f"{flavour.title} on {cluster.name} does not support a placement strategy per node pool."
        raise ValidationFailed.at("/gpu_placement", "placement_unsupported", message, flavour=flavour.name)


def _check_levels(cluster: Cluster, wanted: Sequence[str]) -> None:
    """Levels that cannot be; or any, where the scheduler has nothing for them."""
    flavour = flavour_for(cluster.flavour)
    if wanted and not flavour.traits.knows_domains:
        message = f"{flavour.title} on {cluster.name} does not support topology levels."
        raise ValidationFailed.at("/topology_levels", "topology_unsupported", message, flavour=flavour.name)
    if problems := list(invalid_levels(wanted, field="/topology_levels")):
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)


def _topology_of(pool: NodePool) -> tuple[list[str], str, str]:
    """The topology as written for a scheduler that never changes one."""
    return list(pool.topology_levels), pool.label_key, pool.label_value


def _check_idle(pool: NodePool) -> None:
    """Refuse new levels while workloads run, where the scheduler counts these by the levels they started with."""
    flavour = flavour_for(pool.cluster.flavour)
    if not flavour.traits.fixed_topologies:
        return
    live = ObservedPod.objects.filter(cluster=pool.cluster, pool_name=pool.name, gone_at__isnull=True)
    owners = live.exclude(phase__in=TERMINAL).exclude(node_name="").exclude(owner_id="").values("owner_id").distinct()
    if number := owners.count():
        running = "1 workload is running" if number == 1 else f"{number} workloads are running"
        message = (
            f"{running} in {pool.name}, and {flavour.title} counts running workloads by the levels they started with. "
            "Change the levels or the label when they have ended."
        )
        raise Conflict.at("/topology_levels", "pool_busy", message, workloads=number)


def _as_audit(pool: NodePool) -> dict[str, Any]:
    return {
        "cluster": pool.cluster.name,
        "label": f"{pool.label_key}={pool.label_value}",
        "gpu_placement": pool.gpu_placement,
        "topology_levels": list(pool.topology_levels),
        "is_default": pool.is_default,
    }


def check_match(pointer: str, value: str, pattern: re.Pattern[str], what: str) -> None:
    if not pattern.fullmatch(value):
        raise ValidationFailed.at(pointer, "invalid", f"{value[:80]!r} is not valid. Use {what}.")


def check_choice(pointer: str, value: str, allowed: Any) -> None:
    if value not in allowed:
        names = sorted(allowed)
        raise ValidationFailed.at(
            pointer, "unknown", f"{value[:80]!r} is not one of {', '.join(names)}.", allowed=names
        )


@transaction.atomic
def set_pod_security(*, cluster: Cluster, level: str, actor: Actor) -> None:
    """Choose `restricted` or `baseline` for every project namespace. Pods that are there stay as they are."""
    if level not in LEVELS:
        raise ValidationFailed.at(
            "/podSecurity", "unknown", f"{level[:40]!r} is not one of {', '.join(LEVELS)}.", allowed=LEVELS
        )
    before = cluster.pod_security
    if level == before:
        return
    cluster.pod_security = level
    cluster.save(update_fields=["pod_security"])
    mark_dirty(cluster)
    record(actor, "cluster.pod_security", cluster, detail={"before": before, "after": level})


@transaction.atomic
def set_defer_preemptors(*, cluster: Cluster, enabled: bool, actor: Actor) -> None:
    """Whether Rung defers who would evict a run inside its minimum runtime. What is deferred goes at its next look."""
    row = Cluster.objects.select_for_update().only("defer_preemptors").get(pk=cluster.pk)
    if row.defer_preemptors != enabled:
        check_direct_change()
        Cluster.objects.filter(pk=cluster.pk).update(defer_preemptors=enabled)
        cluster.defer_preemptors = enabled
        record(actor, "cluster.defer_preemptors", cluster, detail={"before": not enabled, "after": enabled})


def forget_versions(cluster: Cluster) -> None:
    """Another cluster answers at the address: stored versions do not apply, so everything is listed again."""
    ObserverLease.objects.filter(cluster=cluster).update(versions={})
