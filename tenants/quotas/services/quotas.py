"""Set quotas and GPU caps with a reason; refuse what does not add up, warn about what becomes reclaimable."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import transaction
from django.db.models import F, QuerySet, Sum
from django.utils.translation import gettext as _

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import KEEPS_NON_PREEMPTIBLE, flavour_for
from clusters.inventory.models import Node, NodePool
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import RECLAIM
from portal.audit.services import record
from portal.kit.api.routes import PlannedWrite
from portal.kit.db.validation import MAX_REASON_LENGTH, raise_problems, unique_or_conflict, validate_text
from portal.kit.errors import Conflict, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change
from scheduling.model.resources import DIMENSIONS, LARGEST, RANGES, Limit, Resources
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services.subjects import set_change_author
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, PriorityCap, ProjectQuota
from tenants.quotas.rules import (
    QuotaValues,
    amount_text,
    below_non_preemptible_use,
    limit_below_use,
    over_parent_limit,
    over_physical,
    readable_fields,
    sum_over_department,
    value_problems,
    weights_without_effect,
)
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage, evictable_work, priority_names, usage_by_queue, usage_of


@dataclass(frozen=True, slots=True)
class QuotaWarning(Problem):
    """What a change brings with it, with the workloads that it concerns."""

    work: tuple[EvictableWork, ...] = ()


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
    require(actor, Permission.MANAGE_PROJECT_QUOTA, project=project)
    raise_problems(value_problems(values))
    _check_pool(node_pool, project.cluster_id)
    department = _locked(project.department_id)
    use = usage_of(project, node_pool.name)
    raise_problems(below_non_preemptible_use(values, use.non_preemptible), Conflict)
    beyond = tuple(_beyond_department(project, department, node_pool, values))
    if department.enforce_deserved:
        raise_problems(beyond)
    row = ProjectQuota.objects.filter(project=project, node_pool=node_pool).first()
    quota = row or ProjectQuota(project=project, node_pool=node_pool)
    reclaimable = newly_reclaimable(
        node_pool=node_pool,
        projects=[project.pk],
        allocated=use.allocated,
        before=quota.deserved,
        after=values.deserved,
    )
    warnings = (
        *beyond,
        *_project_warnings(quota, department, values, use),
        *reclaimable,
        *_weight_warnings(values, node_pool),
    )
    _write(quota, values, actor=actor, reason=reason, owner=project, project_id=str(project.pk))
    return QuotaChange(quota, warnings)


@transaction.atomic
def set_department_quota(
    *, department: Department, node_pool: NodePool, values: QuotaValues, actor: Actor, reason: str = ""
) -> QuotaChange:
    """Set a department's quota in a pool. The same rules, seen from above: use and sums are those of its projects."""
    require(actor, Permission.MANAGE_DEPARTMENT_QUOTA, department=department)
    raise_problems(value_problems(values))
    _check_pool(node_pool, department.cluster_id)
    locked = _locked(department.pk)
    use = department_usage(locked, node_pool)
    raise_problems(below_non_preemptible_use(values, use.non_preemptible), Conflict)
    together = deserved_by_projects(locked, node_pool)
    beyond = tuple(sum_over_department(together, values.deserved, department=locked.name, pool=node_pool.name))
    if locked.enforce_deserved:
        raise_problems(beyond)
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
    warnings = (
        *beyond,
        *limit_below_use(values, use.allocated),
        *physical,
        *reclaimable,
        *_weight_warnings(values, node_pool),
    )
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
    set_change_author(quota, actor=actor, reason=reason).delete()
    return change.warnings


@transaction.atomic
def set_priority_cap(
    *, project: Project, priority: str, gpu_limit: int | None, actor: Actor, reason: str = ""
) -> PriorityCap | None:
    """Allow at most `gpu_limit` GPU thousandths of one priority in a project; None lifts the cap."""
    require(actor, Permission.MANAGE_PROJECT_QUOTA, project=project)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    _check_cap(priority, gpu_limit)
    _locked(project.department_id)
    cap = PriorityCap.objects.filter(project=project, priority=priority).first()
    before = cap.gpu_limit if cap else None
    if before == gpu_limit:
        return cap
    check_direct(project)
    if gpu_limit is None:
        if cap:
            set_change_author(cap, actor=actor, reason=why).delete()
        cap = None
    else:
        cap = cap or PriorityCap(project=project, priority=priority)
        cap.gpu_limit = gpu_limit
        set_change_author(cap, actor=actor, reason=why).save()
    was, becomes = (None if each is None else amount_text("gpu", each) for each in (before, gpu_limit))
    detail = {"priority": priority, "before": was, "after": becomes, "reason": why}
    _changed(project, "cap.set", actor=actor, detail=detail, project_id=str(project.pk))
    return cap


def _check_cap(priority: str, gpu_limit: int | None) -> None:
    if gpu_limit is not None and not 0 <= gpu_limit <= LARGEST:
        text = _("Amount out of range: %(range)s.") % {"range": RANGES["gpu"]}
        raise ValidationFailed.at("/gpuLimit", "out_of_range", text)
    known = priority_names()
    if known and priority not in known:
        text = _("Unknown priority.")
        raise ValidationFailed.at("/priority", "unknown_priority", text, allowed=sorted(known))


def _check_pool(node_pool: NodePool, cluster_id: object) -> None:
    if node_pool.cluster_id != cluster_id:
        raise ValidationFailed.at("/nodePool", "foreign_node_pool", _("This node pool belongs to another cluster."))


def _locked(department_id: int) -> Department:
    """The department's row, held until the transaction ends."""
    row = Department.objects.select_for_update().filter(pk=department_id).first()
    if row is None:
        raise NotFound
    return row


def _beyond_department(
    project: Project, department: Department, node_pool: NodePool, values: QuotaValues
) -> Iterator[Problem]:
    own = DepartmentQuota.objects.filter(department=department, node_pool=node_pool).first()
    parent = QuotaValues.of(own) if own else QuotaValues()
    total = deserved_by_projects(department, node_pool, but=project) + amounts(values.deserved)
    yield from sum_over_department(total, parent.deserved, department=department.name, pool=node_pool.name)


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


def _weight_warnings(values: QuotaValues, node_pool: NodePool) -> Iterator[Problem]:
    flavour = flavour_for(node_pool.cluster.flavour)
    return weights_without_effect(values, flavour.traits.weights, scheduler=flavour.title)


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
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    if values != (QuotaValues.of(quota) if quota.pk else QuotaValues()):
        check_direct(owner)
    before = QuotaValues.of(quota).as_fields() if quota.pk else {}
    after = values.as_fields()
    if before == after:
        return
    for column, value in after.items():
        setattr(quota, column, value)
    with unique_or_conflict(""):
        set_change_author(quota, actor=actor, reason=why).save()
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    was, becomes = readable_fields({key: before.get(key) for key in changed}), readable_fields(changed)
    detail = {"node_pool": quota.node_pool.name, "before": was, "after": becomes, "reason": why}
    _changed(owner, "quota.set", actor=actor, detail=detail, project_id=project_id)


def _changed(
    owner: Department | Project, action: str, *, actor: Actor, detail: Mapping[str, object], project_id: str = ""
) -> None:
    """What follows every change of desired state: the fence moves, the record is written, the cluster is woken."""
    bump_generation(owner)
    mark_dirty(owner.cluster, owner=owner.owner)
    if isinstance(owner, Project) and flavour_for(owner.cluster.flavour).traits.sums_projects:
        mark_dirty(owner.cluster, owner=owner.department.owner)
    record(actor, action, owner, detail=detail, project_id=project_id)


def deserved_sum(quotas: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota]) -> Resources:
    """All deserved amounts of these rows together; what is not counted adds nothing."""
    sums = quotas.aggregate(**{dimension: Sum(f"{dimension}_deserved", default=0) for dimension in DIMENSIONS})
    return Resources(**sums)


def deserved_by_projects(department: Department, node_pool: NodePool, *, but: Project | None = None) -> Resources:
    """What the department's projects deserve in a pool, one of them left out."""
    rows = ProjectQuota.objects.filter(project__department=department, node_pool=node_pool)
    return deserved_sum(rows.exclude(project=but) if but else rows)


def amounts(deserved: Limit) -> Resources:
    """Deserved as plain amounts; what is not counted is zero."""
    return Resources(deserved.gpu or 0, deserved.cpu or 0, deserved.memory or 0)


def physical_gpus(node_pool: NodePool) -> int | None:
    """GPU thousandths of the pool's nodes as last observed, None while no node was."""
    answer: int | None = Node.objects.filter(pool=node_pool).aggregate(sum=Sum("gpu_milli"))["sum"]
    return answer


def department_usage(department: Department, node_pool: NodePool) -> Usage:
    """Use of all projects of a department in a pool."""
    used = usage_by_queue(list(department.projects.values_list("pk", flat=True)))
    return sum((use for (_project, pool), use in used.items() if pool == node_pool.name), Usage())


@transaction.atomic
def set_deserved_enforcement(*, department: Department, enforced: bool, actor: Actor, reason: str = "") -> None:
    """Make its projects keep within the department's deserved quota, or stop it. Conflict where they do not now."""
    require(actor, Permission.MANAGE_DEPARTMENT_QUOTA, department=department)
    row = _locked(department.pk)
    if enforced == row.enforce_deserved:
        return
    check_direct(row)
    if enforced:
        raise_problems((replace(each, pointer="/enforceDeserved") for each in departments_overrun(row)), Conflict)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    row.enforce_deserved = enforced
    set_change_author(row, actor=actor, reason=why).save(update_fields=["enforce_deserved", "updated_at"])
    detail = {"before": not enforced, "after": enforced, "reason": why}
    record(actor, "department.enforce_deserved", row, detail=detail)


def departments_overrun(department: Department) -> Iterator[Problem]:
    """Where, in any pool, the projects deserve more together than their department."""
    owned = {quota.node_pool_id: quota.deserved for quota in DepartmentQuota.objects.filter(department=department)}
    for pool in department.cluster.node_pools.all():
        own = owned.get(pool.pk, Limit(gpu=0))
        yield from sum_over_department(
            deserved_by_projects(department, pool), own, department=department.name, pool=pool.name
        )


NAMED: Final = 10
"""How many workloads are named in one sentence."""


def newly_reclaimable(
    *, node_pool: NodePool, projects: Collection[int], allocated: Resources, before: Limit, after: Limit
) -> Iterator[Problem]:
    """What can be reclaimed of these projects only once their deserved quota is lowered; nothing where nothing is.

    Reads what runs only where something is.
    """
    if guarantee_on(node_pool.cluster, RECLAIM).enforced == "no":
        return
    for dimension in DIMENSIONS:
        used = getattr(allocated, dimension)
        was, over = (_over(used, getattr(limit, dimension)) for limit in (before, after))
        work = evictable_work(projects, node_pool.name) if over > was else ()
        held = min(sum(getattr(each.held, dimension) for each in work), over)
        if held > was:
            amounts = {"used": used, "over": over, "deserved": used - over, "reclaimable": held}
            yield _problem(node_pool, dimension, amounts, _taken(work, dimension, was, over))


def _over(used: int, deserved: int | None) -> int:
    return 0 if deserved is None else max(used - deserved, 0)


def _taken(work: Sequence[EvictableWork], dimension: str, was: int, over: int) -> list[EvictableWork]:
    """In the order of reclaim: those that nothing above the quota of before reached, until the new one holds again."""
    found: list[EvictableWork] = []
    above = 0
    for each in work:
        if above >= over:
            break
        if (amount := getattr(each.held, dimension)) and above >= was:
            found.append(each)
        above += amount
    return found


def _problem(
    node_pool: NodePool, dimension: str, amounts: Mapping[str, int], work: Sequence[EvictableWork]
) -> QuotaWarning:
    numbers = {name: amount_text(dimension, amount) for name, amount in amounts.items()}
    named = ", ".join(
        f"{each.label} ({amount_text(dimension, getattr(each.held, dimension))})" for each in work[:NAMED]
    )
    more = _(" and %(count)d more") % {"count": len(work) - NAMED} if len(work) > NAMED else ""
    order = _(" Lowest priority and newest first: %(named)s%(more)s.") % {"named": named, "more": more} if work else ""
    text = _("In %(pool)s the use of %(used)s exceeds the deserved %(deserved)s by %(over)s. Of that, %(reclaimable)s ")
    keeps = node_pool.cluster.flavour in KEEPS_NON_PREEMPTIBLE
    text += _("can be reclaimed from preemptible workloads.") if keeps else _("can be reclaimed.")
    message = text % {**numbers, "pool": node_pool.name} + order
    return QuotaWarning(f"/{dimension}/deserved", "becomes_reclaimable", message, numbers=numbers, work=tuple(work))


def planned_quota(
    owner: Department | Project, node_pool: NodePool, values: QuotaValues | None, reason: str
) -> PlannedWrite:
    """The plan of a quota, instead of setting it; None: of removing it."""
    columns = values.as_fields() if values else None
    return f"{owner._meta.model_name}_quota", planned_rule(owner, reason, pool=node_pool.name, values=columns)


def planned_rule(owner: Department | Project, reason: str, **values: Any) -> dict[str, Any]:
    """A change of a setting of one owner, as plans have it."""
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    named = {str(owner._meta.model_name): owner.name, "cluster": owner.cluster.name}
    return {**named, **values, "reason": why}


def check_direct(owner: Department | Project) -> None:
    """Conflict where a second admin has to approve changes of this owner's settings, and no plan makes this one."""
    check_direct_change(owner.department_id if isinstance(owner, Project) else owner.pk)


def bump_generation(owner: Department | Project) -> None:
    """Count one more change of what clusters should hold for this owner."""
    type(owner).objects.filter(pk=owner.pk).update(generation=F("generation") + 1)
