"""Changing what a submitted workload runs: how many replicas at any time, how its pods are described while none runs.

Rung never rewrites pods under running ones: a new image or size is refused unless the workload is suspended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone

from clusters.inventory.models import NodePool
from portal.audit.services import audited_transaction, record
from portal.kit.errors import Conflict, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.reasons import Reason
from workloads.dictionary.rules.resolution import PriorityEntry
from workloads.dictionary.selectors import effective_as, entry_of
from workloads.forecast.selectors.placement_validation import check_gang_capacity, check_placement
from workloads.forecast.selectors.pod_groups import pod_group_request
from workloads.forecast.selectors.pool_selection import (
    check_kind_served,
    check_priority_cap,
    pick_pool,
    pools_for,
    quota_hold_for,
)
from workloads.intake import WorkloadSpec
from workloads.lifecycle.services.actions import apply_priority, check_not_fixed, known_entry, ready, rewrite
from workloads.state.models import EventType, Phase, Workload
from workloads.state.rules import ENDED
from workloads.state.services import audit_entity, audit_scope, note, notify_apply

SCALED = "replicas"


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """What is asked for. `spec`: the whole workload as it is to be, `raw`: the object that was sent for it, if any.

    `fields`: pointers of what differs, for a refusal.
    """

    spec: WorkloadSpec | None = None
    raw: Mapping[str, Any] | None = None
    priority: str | None = None
    fields: Sequence[str] = ()


def change(*, workload: Workload, wanted: WorkloadChange, actor: Actor) -> Workload:
    """Make it so, all of it or nothing. Refused at fields that cannot be changed now; Conflict when it has ended.

    What is wanted by the row's present content is read under its lock: `locking.locked`.

    1. another body: the same kind, name and pools, within quota and caps as a new one would be
    2. another priority, as `lifecycle.change_priority`
    3. one audit record for each, and a worker is woken
    """
    with audited_transaction(actor=actor, action="workload.change", **audit_entity(workload)):
        ready(workload, actor)
        entry = _another_priority(workload, wanted.priority)
        before = WorkloadSpec.from_json(workload.spec)
        after = before if wanted.spec is None else _in_its_pools(wanted.spec, before, workload)
        reshaped = after.manifest != before.manifest
        if reshaped or entry is not None or _says_more(wanted.raw, workload):
            _check_not_ended(workload)
        if reshaped:
            _reshape(workload, before, after, wanted, entry or entry_of(workload.priority), actor)
        elif _says_more(wanted.raw, workload):
            _store(workload, before, after, wanted, actor)
        if entry is not None:
            check_not_fixed(workload, "given another priority", code="priority_fixed", pointer="/priority")
            apply_priority(workload, entry, actor)
    return workload


def _another_priority(workload: Workload, name: str | None) -> PriorityEntry | None:
    """The priority that is wanted; None where it stays as it is."""
    entry = None if name is None else known_entry(name)
    return None if entry is None or entry.name == workload.priority.name else entry


def _in_its_pools(spec: WorkloadSpec, before: WorkloadSpec, workload: Workload) -> WorkloadSpec:
    """The same where the workload is: what names no pools, or those that were asked for, does not choose again."""
    own = tuple(workload.node_pools)
    if spec.node_pools not in {(), before.node_pools, own}:
        message = "This is fixed at submission. Submit a new workload instead."
        raise ValidationFailed.at("/nodePools", "fixed", message, allowed=own)
    return replace(spec, node_pools=own)


def _says_more(raw: Mapping[str, Any] | None, workload: Workload) -> bool:
    """Fields that mean nothing to the cluster are kept and answered as they were sent."""
    return bool(raw) and raw != workload.raw


def _check_not_ended(workload: Workload) -> None:
    if workload.phase in ENDED:
        raise Conflict(f"{workload.name} is {workload.phase} and can no longer be changed.", code="ended")


def _reshape(
    workload: Workload,
    before: WorkloadSpec,
    after: WorkloadSpec,
    wanted: WorkloadChange,
    entry: PriorityEntry,
    actor: Actor,
) -> None:
    _check_same_workload(before, after)
    if workload.phase != Phase.STOPPED and _described(before.manifest) != _described(after.manifest):
        _check_description(workload, wanted.fields)
    _check_fits(workload, after, entry)
    total = after.total
    if workload.phase != Phase.STOPPED and not total.fits_in(before.total):
        _check_deserved(workload, after)
    values = {
        "spec": after.as_json(),
        "gpu_milli": total.gpu,
        "cpu_milli": total.cpu,
        "memory_bytes": total.memory,
        "pod_count": after.pods,
    }
    _store(workload, before, after, wanted, actor, **values)


def _store(
    workload: Workload, before: WorkloadSpec, after: WorkloadSpec, wanted: WorkloadChange, actor: Actor, **values: Any
) -> None:
    """The row, its timeline, the audit record, the wake-up."""
    now = timezone.now()
    rewrite(workload, now, raw=dict(wanted.raw or {}), **values)
    detail = {"before": _size(before), "after": _size(after), "fields": list(wanted.fields)}
    message = f"Changed from {before.pods} to {after.pods} pods." if after.pods != before.pods else "Changed."
    note(
        workload=workload, at=now, type_=EventType.ACTION, reason="Changed", message=message, actor=actor, detail=detail
    )
    record(actor, "workload.change", workload, detail=detail, **audit_scope(workload))
    notify_apply(workload.project.cluster_id)


def _check_same_workload(before: WorkloadSpec, spec: WorkloadSpec) -> None:
    one, other = ((each.type_name, each.kind, each.api_version, each.name) for each in (before, spec))
    if one != other:
        message = (
            f"API version, kind and name cannot change ({before.api_version} {before.kind} "
            f"{before.name}). Submit a new workload instead."
        )
        raise ValidationFailed.at("/metadata/name", "another_workload", message)


def _described(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """All but the number of replicas, which a controller reaches without touching the pods that stay."""
    body = {name: value for name, value in manifest["spec"].items() if name != SCALED}
    return {**manifest, "spec": body}


def _check_description(workload: Workload, fields: Sequence[str]) -> None:
    message = (
        f"{workload.name} is {workload.phase}: its pods cannot be changed while it runs. Suspend it, change it, "
        "then resume it. Only replicas and priority can change at any time."
    )
    raise ValidationFailed(
        message, code="pods_run", problems=[Problem(each, "pods_run", message) for each in fields or ("/spec",)]
    )


def _check_fits(workload: Workload, spec: WorkloadSpec, entry: PriorityEntry) -> None:
    """What a new submission of the same would be refused for."""
    project, effective = workload.project, effective_as(workload, entry, Preemptibility(workload.preemptibility))
    check_kind_served(spec, project)
    check_placement(spec, project)
    check_priority_cap(spec, effective, project)
    pools = pools_for(spec, project)
    pick_pool(spec, effective, project, pools)
    check_gang_capacity(spec, project, pools)


def _check_deserved(workload: Workload, spec: WorkloadSpec) -> None:
    """More pods of what is in its cluster already are created there at once: nothing could hold them back."""
    pool = NodePool.objects.filter(cluster=workload.project.cluster_id, name=workload.pool_name).first()
    hold = quota_hold_for(replace(pod_group_request(workload, pool), spec=spec), besides=workload) if pool else None
    if hold:
        raise ValidationFailed.at(
            "/spec", str(Reason.NON_PREEMPTIBLE_OVER_QUOTA), f"With this size, {hold.why}.", **hold.numbers()
        )


def _size(spec: WorkloadSpec) -> dict[str, Any]:
    return {"pods": spec.pods, "gpu_milli": spec.total.gpu, "images": sorted({i for r in spec.roles for i in r.images})}
