"""Quotas and GPU caps, set with their reason. One department is changed by one writer at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from clusters.flavours import flavour_for
from clusters.models import NodePool
from clusters.services.estate import touch
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Absent, Conflict, Problem, Refused
from scheduling.resources import LARGEST
from tenants.history import sign
from tenants.models import Department, DepartmentQuota, PriorityCap, Project, ProjectQuota
from tenants.permissions import Verb, require
from tenants.quota_values import (
    QuotaValues,
    held_beyond,
    limit_below_use,
    malformed,
    over_parent_limit,
    over_physical,
    sum_beyond,
)
from tenants.services.checks import readable, refuse_if, unless_taken
from tenants.services.organisation import LONGEST_REASON, bump
from tenants.services.quota_sums import (
    amounts,
    department_usage,
    deserved_by_projects,
    deserved_sum,
    physical_gpus,
)
from tenants.services.reclaims import newly_reclaimable
from tenants.usage import Usage, priority_names, usage_of


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota that was accepted, with what its author should know about it."""

    quota: ProjectQuota | DepartmentQuota
    warnings: tuple[Problem, ...] = ()


@transaction.atomic
def set_project_quota(
    *, project: Project, node_pool: NodePool, values: QuotaValues, actor: Actor, reason: str = ""
) -> QuotaChange:
    """Set a project's quota in a pool.

    1. refuse malformed values (422), then wait for other writers of the same department
    2. Conflict when it would fall below what non-preemptible workloads hold now
    3. the department's sum: refused where it is enforced, else a warning, as is anything over the physical GPUs
    4. write the row with author and reason, the audit record, and wake the cluster's reconcile
    """
    require(actor, Verb.MANAGE_PROJECT_QUOTA, project=project)
    refuse_if(malformed(values))
    _refuse_foreign_pool(node_pool, project.cluster_id)
    department = _locked(project.department_id)
    use = usage_of(project, node_pool.name)
    refuse_if(held_beyond(values, use.non_preemptible), Conflict)
    beyond = tuple(_beyond_department(project, department, node_pool, values))
    if department.enforce_deserved:
        refuse_if(beyond)
    row = ProjectQuota.objects.filter(project=project, node_pool=node_pool).first()
    quota = row or ProjectQuota(project=project, node_pool=node_pool)
    reclaimable = newly_reclaimable(
        node_pool=node_pool,
        projects=[project.pk],
        allocated=use.allocated,
        before=quota.deserved,
        after=values.deserved,
    )
    warnings = (*beyond, *_project_warnings(quota, department, values, use), *reclaimable)
    _write(quota, values, actor=actor, reason=reason, owner=project, project_id=str(project.pk))
    return QuotaChange(quota, warnings)


@transaction.atomic
def set_department_quota(
    *, department: Department, node_pool: NodePool, values: QuotaValues, actor: Actor, reason: str = ""
) -> QuotaChange:
    """Set a department's quota in a pool. The same rules, seen from above: use and sums are those of its projects."""
    require(actor, Verb.MANAGE_DEPARTMENT_QUOTA, department=department)
    refuse_if(malformed(values))
    _refuse_foreign_pool(node_pool, department.cluster_id)
    locked = _locked(department.pk)
    use = department_usage(locked, node_pool)
    refuse_if(held_beyond(values, use.non_preemptible), Conflict)
    together = deserved_by_projects(locked, node_pool)
    beyond = tuple(sum_beyond(together, values.deserved, department=locked.name, pool=node_pool.name))
    if locked.enforce_deserved:
        refuse_if(beyond)
    row = DepartmentQuota.objects.filter(department=locked, node_pool=node_pool).first()
    quota = row or DepartmentQuota(department=locked, node_pool=node_pool)
    others = deserved_sum(DepartmentQuota.objects.filter(node_pool=node_pool).exclude(department=locked))
    promised = others.gpu + (values.deserved.gpu or 0)
    physical = over_physical(promised, physical_gpus(node_pool), pool=node_pool.name)
    reclaimable = newly_reclaimable(
        node_pool=node_pool,
        projects=list(locked.projects.values_list("pk", flat=True)),
        allocated=use.allocated,
        before=quota.deserved,
        after=values.deserved,
    )
    warnings = (*beyond, *limit_below_use(values, use.allocated), *physical, *reclaimable)
    _write(quota, values, actor=actor, reason=reason, owner=locked)
    return QuotaChange(quota, warnings)


@transaction.atomic
def reset_quota(*, quota: ProjectQuota | DepartmentQuota, actor: Actor, reason: str = "") -> tuple[Problem, ...]:
    """Remove a quota: nothing deserved, no limit. Refused like setting it so; answers with the same warnings."""
    how: dict[str, Any] = {"node_pool": quota.node_pool, "values": QuotaValues(), "actor": actor, "reason": reason}
    if isinstance(quota, ProjectQuota):
        change = set_project_quota(project=quota.project, **how)
    else:
        change = set_department_quota(department=quota.department, **how)
    sign(quota, actor=actor, reason=reason).delete()
    return change.warnings


@transaction.atomic
def set_priority_cap(
    *, project: Project, priority: str, gpu_limit: int | None, actor: Actor, reason: str = ""
) -> PriorityCap | None:
    """Allow at most `gpu_limit` GPU thousandths of one priority in a project; None lifts the cap."""
    require(actor, Verb.MANAGE_PROJECT_QUOTA, project=project)
    why = readable("/reason", reason, longest=LONGEST_REASON)
    _refuse_cap(priority, gpu_limit)
    _locked(project.department_id)
    cap = PriorityCap.objects.filter(project=project, priority=priority).first()
    before = cap.gpu_limit if cap else None
    if before == gpu_limit:
        return cap
    if gpu_limit is None:
        if cap:
            sign(cap, actor=actor, reason=why).delete()
        cap = None
    else:
        cap = cap or PriorityCap(project=project, priority=priority)
        cap.gpu_limit = gpu_limit
        sign(cap, actor=actor, reason=why).save()
    detail = {"priority": priority, "before": before, "after": gpu_limit, "reason": why}
    _changed(project, "cap.set", actor=actor, detail=detail, project_id=str(project.pk))
    return cap


def _refuse_cap(priority: str, gpu_limit: int | None) -> None:
    if gpu_limit is not None and not 0 <= gpu_limit <= LARGEST:
        raise Refused.at("/gpuLimit", "out_of_range", _("This amount is out of range."))
    known = priority_names()
    if known and priority not in known:
        text = _("The dictionary has no such priority.")
        raise Refused.at("/priority", "unknown_priority", text, allowed=sorted(known))


def _refuse_foreign_pool(node_pool: NodePool, cluster_id: object) -> None:
    if node_pool.cluster_id != cluster_id:
        raise Refused.at("/nodePool", "foreign_node_pool", _("This node pool belongs to another cluster."))


def _locked(department_id: int) -> Department:
    """The department's row, held until the transaction ends."""
    row = Department.objects.select_for_update().filter(pk=department_id).first()
    if row is None:
        raise Absent
    return row


def _beyond_department(
    project: Project, department: Department, node_pool: NodePool, values: QuotaValues
) -> Iterator[Problem]:
    own = DepartmentQuota.objects.filter(department=department, node_pool=node_pool).first()
    parent = QuotaValues.of(own) if own else QuotaValues()
    total = deserved_by_projects(department, node_pool, but=project) + amounts(values.deserved)
    yield from sum_beyond(total, parent.deserved, department=department.name, pool=node_pool.name)


def _project_warnings(
    quota: ProjectQuota, department: Department, values: QuotaValues, use: Usage
) -> Iterator[Problem]:
    pool = quota.node_pool
    own = DepartmentQuota.objects.filter(department=department, node_pool=pool).first()
    if own:
        yield from over_parent_limit(values, own.limit)
    yield from limit_below_use(values, use.allocated)
    others = deserved_sum(ProjectQuota.objects.filter(node_pool=pool).exclude(project=quota.project_id))
    yield from over_physical(others.gpu + (values.deserved.gpu or 0), physical_gpus(pool), pool=pool.name)


def _write(
    quota: ProjectQuota | DepartmentQuota,
    values: QuotaValues,
    *,
    actor: Actor,
    reason: str,
    owner: Department | Project,
    project_id: str = "",
) -> None:
    """Save, sign and record the change; nothing at all when nothing changes."""
    why = readable("/reason", reason, longest=LONGEST_REASON)
    before = QuotaValues.of(quota).as_fields() if quota.pk else {}
    after = values.as_fields()
    if before == after:
        return
    for column, value in after.items():
        setattr(quota, column, value)
    with unless_taken(""):
        sign(quota, actor=actor, reason=why).save()
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    detail = {
        "node_pool": quota.node_pool.name,
        "before": {key: before.get(key) for key in changed},
        "after": changed,
        "reason": why,
    }
    _changed(owner, "quota.set", actor=actor, detail=detail, project_id=project_id)


def _changed(
    owner: Department | Project, action: str, *, actor: Actor, detail: Mapping[str, object], project_id: str = ""
) -> None:
    """What follows every change of desired state: the fence moves, the record is written, the cluster is woken."""
    bump(owner)
    touch(owner.cluster, owner=owner.owner)
    if isinstance(owner, Project) and flavour_for(owner.cluster.flavour).traits.sums_projects:
        touch(owner.cluster, owner=owner.department.owner)
    record(actor, action, owner, detail=detail, project_id=project_id)
