"""Plans of quotas: the services run in a savepoint that is taken back, and what they would do is compared.

A change is `{"quotas": [entry, …], "reason": text}`, or one entry with the reason beside it. An entry is
`{"project" | "department": name, "cluster": name, "pool": name, "values": columns}`. `values` holds columns of a quota
(`gpu_deserved` in thousandths of a GPU, …); absent ones stay; None removes the quota. `cluster` is needed where
departments of several clusters share a name.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.connection.services.scheduler_config import eviction_assumption
from clusters.inventory.models import NodePool
from portal.kit.errors import NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.resources import DIMENSIONS, Limit
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Quota
from tenants.quotas.rules import QuotaValues, amounts_text, over_physical, sum_over_department
from tenants.quotas.selectors.reclaims import reclaim_changes, reclaimable_gpus
from tenants.quotas.services.pool_quotas import refusals_at
from tenants.quotas.services.quotas import (
    QuotaWarning,
    deserved_by_projects,
    deserved_sum,
    physical_gpus,
    reset_quota,
    set_department_quota,
    set_project_quota,
)
from tenants.usage.selectors import Usage, usage_by_queue
from workloads.plans.models import PlanScope
from workloads.plans.selectors import (
    Change,
    Effect,
    Facts,
    PlanKind,
    blank_effect,
    counted,
    gpu_hours_at_risk,
    group_of,
    object_changes,
    objects_on,
    objects_sentence,
    running_in,
    unfit,
    waiting_in,
)
from workloads.plans.services.plans import TrialOfStarts, trial_savepoint
from workloads.plans.services.setting_plans import (
    department_sum,
    devices,
    owner_named,
    owner_scope,
    pool_sums,
    quota_change_words,
    quota_requests,
    quota_text,
    shown_value,
)

RECLAIMABLE: Final = "becomes_reclaimable"
OF_SUMS: Final = frozenset({"sum_over_department", "over_physical"})
"""Warnings of a quota that depend on the others."""
MOST: Final = 200
"""Quotas in one plan."""
COLUMNS: Final = tuple(QuotaValues().as_fields())


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """One entry of a change with its rows. `pointer`: where it is in the change. `values`: None removes the quota."""

    owner: Project | Department
    pool: NodePool
    row: ProjectQuota | DepartmentQuota | None
    values: QuotaValues | None
    pointer: str

    @property
    def label(self) -> str:
        """`project llm-team`."""
        return f"{self.owner._meta.model_name} {self.owner.name}"

    @property
    def department(self) -> Department:
        return self.owner.department if isinstance(self.owner, Project) else self.owner

    @property
    def before(self) -> QuotaValues:
        return QuotaValues.of(self.row) if self.row else QuotaValues()

    @property
    def after(self) -> QuotaValues:
        return self.values or QuotaValues()

    @property
    def turn(self) -> int:
        """Parents are raised before their projects, which are lowered first: an enforced sum holds at every step."""
        raised = (self.after.deserved.gpu or 0) > (self.before.deserved.gpu or 0)
        if isinstance(self.owner, Department):
            return 0 if raised else 3
        return 2 if raised else 1


def edits_of(change: Change) -> list[QuotaEdit]:
    """The entries of a change with their rows, in its order. NotFound for owners, ValidationFailed for pools.

    Queries do not grow with the entries of projects.
    """
    named = list(_owners(change))
    clusters = {owner.cluster_id for owner, _entry, _pointer in named}
    pools: defaultdict[object, dict[str, NodePool]] = defaultdict(dict)
    for pool in NodePool.objects.filter(cluster__in=clusters).select_related("cluster"):
        pools[pool.cluster_id][pool.name] = pool
    rows: dict[object, ProjectQuota | DepartmentQuota] = {}
    for own in ProjectQuota.objects.filter(project__in=_keys(named, Project)).select_related("node_pool"):
        rows[Project, own.project_id, own.node_pool_id] = own
    for above in DepartmentQuota.objects.filter(department__in=_keys(named, Department)).select_related("node_pool"):
        rows[Department, above.department_id, above.node_pool_id] = above
    edits: dict[object, QuotaEdit] = {}
    for owner, entry, pointer in named:
        known = pools[owner.cluster_id]
        if (home := known.get(entry["pool"])) is None:
            text = f"{owner.cluster.name} has no node pool {entry['pool'][:63]!r}."
            raise ValidationFailed.at(f"{pointer}/pool", "unknown_node_pool", text, allowed=known)
        row = rows.get((type(owner), owner.pk, home.pk))
        values = None if entry["values"] is None else _values(row, entry["values"])
        edit = QuotaEdit(owner, home, row, values, pointer)
        if (owner, home) in edits:
            raise ValidationFailed.at(pointer, "repeated", f"The quota of {edit.label} is named twice.")
        edits[owner, home] = edit
    return list(edits.values())


Named = tuple[Project | Department, Mapping[str, Any], str]


def _keys(named: Sequence[Named], model: type[Project] | type[Department]) -> set[int]:
    return {owner.pk for owner, _entry, _pointer in named if isinstance(owner, model)}


def _owners(change: Change) -> Iterator[Named]:
    """Owner, entry and pointer of each. Nothing else is read: who may change them is not known yet."""
    entries = change.get("quotas", [change])
    if not 0 < len(entries) <= MOST:
        text = f"A plan changes 1 to {MOST} quotas, not {len(entries)}."
        raise ValidationFailed.at("/quotas", "required", text, most=MOST)
    names = {entry["project"] for entry in entries if entry.get("project")}
    projects = list(Project.objects.filter(name__in=names).select_related("department", "cluster"))
    for number, entry in enumerate(entries):
        pointer = f"/quotas/{number}" if "quotas" in change else ""
        if name := entry.get("project"):
            on = entry.get("cluster")
            found = [each for each in projects if each.name == name and on in {None, "", each.cluster.name}]
            if not found:
                raise NotFound
            yield found[0], entry, pointer
        else:
            yield owner_named(entry, pointer), entry, pointer


def _values(row: Quota | None, given: Mapping[str, Any]) -> QuotaValues:
    before = (QuotaValues.of(row) if row else QuotaValues()).as_fields()
    fields: dict[str, Any] = {**before, **{name: given[name] for name in COLUMNS if name in given}}
    deserved, limit = (Limit(*(fields[f"{each}_{kind}"] for each in DIMENSIONS)) for kind in ("deserved", "limit"))
    weights = (fields["cpu_weight"], fields["memory_weight"])
    return QuotaValues(deserved, limit, fields["over_quota_weight"], fields["rank"], *weights)


def title(change: Change) -> str:
    """`Quota of llm-team in h100`, or how many quotas."""
    entries = change.get("quotas", [change])
    if len(entries) != 1:
        return f"Change {len(entries)} quotas"
    return f"Quota of {entries[0].get('project') or entries[0].get('department')} in {entries[0]['pool']}"


def scopes(change: Change) -> list[PlanScope]:
    """One permission for each project and department that is named."""
    owners = dict.fromkeys(owner for owner, _entry, _pointer in _owners(change))
    return [owner_scope(owner) for owner in owners]


def facts(change: Change) -> Facts:
    """The quotas named, and the sums that they are compared with."""
    found: dict[str, str] = {}
    for edit in edits_of(change):
        where, department = f"in {edit.pool.name}", edit.department
        found[f"quota of {edit.label} {where}"] = quota_text(QuotaValues.of(edit.row)) if edit.row else "none"
        if (together := f"projects of {department.name} {where}") not in found:
            parent = DepartmentQuota.objects.filter(department=department, node_pool=edit.pool).first()
            enforced = ", enforced" if department.enforce_deserved else ""
            own = quota_text(QuotaValues.of(parent)) if parent else "none"
            found[f"quota of department {department.name} {where}"] = own + enforced
            found[together] = f"{amounts_text(deserved_by_projects(department, edit.pool))} deserved"
        everyone = f"all {edit.owner._meta.model_name}s {where} of {edit.pool.cluster.name}"
        if everyone not in found:
            model = ProjectQuota if isinstance(edit.owner, Project) else DepartmentQuota
            rows = model._default_manager.filter(node_pool=edit.pool)
            found[everyone] = f"{amounts_text(deserved_sum(rows))} deserved"
    return found


def apply(change: Change, actor: Actor) -> None:
    """Set the quotas named by the services that set one."""
    _set_all(edits_of(change), change.get("reason", ""), actor)


def _set_all(edits: Sequence[QuotaEdit], reason: str, actor: Actor) -> list[Problem]:
    """Set them, then collect warnings where all are set: on the way sums are those of half a change.

    What becomes reclaimable is known only from each step.
    """
    stepwise = [problem for edit in sorted(edits, key=lambda each: each.turn) for problem in _set(edit, reason, actor)]
    if len(edits) == 1:
        return stepwise
    if any(isinstance(edit.owner, Department) for edit in edits):
        reclaimable = [problem for problem in stepwise if problem.code == RECLAIMABLE]
        final = [problem for edit in edits if edit.values for problem in _set(edit, reason, actor)]
        return reclaimable + [problem for problem in final if problem.code != RECLAIMABLE]
    return [*(problem for problem in stepwise if problem.code not in OF_SUMS), *_sum_warnings(edits)]


def _sum_warnings(edits: Sequence[QuotaEdit]) -> Iterator[Problem]:
    """What the services warn of sums once all quotas of projects are set, each sum read once."""
    for department, pool in dict.fromkeys((edit.department, edit.pool) for edit in edits if edit.values):
        row = DepartmentQuota.objects.filter(department=department, node_pool=pool).first()
        parent, together = QuotaValues.of(row) if row else QuotaValues(), deserved_by_projects(department, pool)
        yield from sum_over_department(together, parent.deserved, department=department.name, pool=pool.name)
    for pool in dict.fromkeys(edit.pool for edit in edits if edit.values):
        promised = deserved_sum(ProjectQuota.objects.filter(node_pool=pool)).gpu
        yield from over_physical(promised, physical_gpus(pool), pool=pool.name)


def _set(edit: QuotaEdit, reason: str, actor: Actor) -> list[Problem]:
    """Set one; answers its warnings with its owner and node pool, unless they name these themselves."""

    def named(each: Problem) -> Problem:
        pool = "" if each.code == RECLAIMABLE else f" in {edit.pool.name}"
        return replace(each, message=f"{edit.owner.name}{pool}: {each.message}")

    return [each if each.code in OF_SUMS else named(each) for each in _saved(edit, reason, actor)]


def _saved(edit: QuotaEdit, reason: str, actor: Actor) -> Sequence[Problem]:
    with refusals_at(edit.pointer):
        if edit.values is None:
            return reset_quota(quota=edit.row, actor=actor, reason=reason) if edit.row else ()
        if isinstance(edit.owner, Project):
            return set_project_quota(
                project=edit.owner, node_pool=edit.pool, values=edit.values, actor=actor, reason=reason
            ).warnings
        return set_department_quota(
            department=edit.owner, node_pool=edit.pool, values=edit.values, actor=actor, reason=reason
        ).warnings


def undo(change: Change) -> Change:
    """The quotas as they are now."""
    entries: list[dict[str, Any]] = [
        {
            str(edit.owner._meta.model_name): edit.owner.name,
            "cluster": edit.pool.cluster.name,
            "pool": edit.pool.name,
            "values": QuotaValues.of(edit.row).as_fields() if edit.row else None,
        }
        for edit in edits_of(change)
    ]
    inverse: Change = {"quotas": entries} if "quotas" in change else entries[0]
    return {**inverse, "reason": f"Rolled back: {title(change)}"}


def effect(change: Change, actor: Actor, trial_of: TrialOfStarts) -> Effect:
    """Run the change in a savepoint and compare."""
    edits = edits_of(change)
    projects = _projects(edits)
    clusters = {edit.pool.cluster_id: edit.pool.cluster for edit in edits}
    waiting = waiting_in(list(projects))
    objects = {pk: objects_on(cluster) for pk, cluster in clusters.items()}
    pools = list(dict.fromkeys(edit.pool for edit in edits))
    unfit_before, sums_before, reclaims = unfit(waiting, projects), _sums(edits), reclaimable_gpus(pools)
    starts = trial_of(_more_for(edits, projects))
    with trial_savepoint():
        warnings = _set_all(edits, change.get("reason", ""), actor)
        unfit_after, sums_after = unfit(waiting, projects), _sums(edits)
        starts.under_planned()
        changed_reclaims = reclaim_changes(reclaims, reclaimable_gpus(pools))
        changes = [object_changes(cluster, objects[pk], objects_on(cluster)) for pk, cluster in clusters.items()]
    reclaimable = list(dict.fromkeys(_reclaimable(warnings)))
    names = frozenset(edit.pool.name for edit in edits)
    found = blank_effect()
    found["objects"] = [each for each in changes if each["changes"]]
    found["workloads"] |= {
        RECLAIMABLE: group_of(reclaimable),
        "no_longer_fit": group_of([each.pk for each in waiting if each.pk in unfit_after - unfit_before]),
        "fit_again": group_of([each.pk for each in waiting if each.pk in unfit_before - unfit_after]),
        "running": {"count": running_in(list(projects), names), "examples": []},
        "waiting": {"count": sum(not names.isdisjoint(each.pools) for each in waiting), "examples": []},
    }
    found["gpu_hours_at_risk"] = gpu_hours_at_risk(reclaimable)
    found["reclaims"], found["starts"] = changed_reclaims, starts.compared()
    found["quotas"] = list(_quota_rows(edits, projects))
    found["sums"] = [{**old, "after": new["before"]} for old, new in zip(sums_before, sums_after, strict=True)]
    assumed = (f"{each.name}: {text}" for each in clusters.values() if (text := eviction_assumption(each)))
    found["warnings"] = list(dict.fromkeys([*(str(problem.message) for problem in warnings), *assumed]))
    return {**found, "sentence": _sentence(found)}


def _projects(edits: Sequence[QuotaEdit]) -> dict[int, Project]:
    """Projects whose workloads the quotas bound, with their departments."""
    named = [edit.owner.pk for edit in edits if isinstance(edit.owner, Project)]
    above = [edit.owner.pk for edit in edits if isinstance(edit.owner, Department)]
    rows = Project.objects.filter(pk__in=named) | Project.objects.filter(department__in=above)
    return {row.pk: row for row in rows.select_related("department")}


def _own(edit: QuotaEdit, projects: Mapping[int, Project]) -> list[int]:
    return [pk for pk, each in projects.items() if edit.owner in {each, each.department}]


def _more_for(edits: Sequence[QuotaEdit], projects: Mapping[int, Project]) -> dict[NodePool, list[int]]:
    """Ids of projects by node pool of which something may start: all but those whose amounts are only lowered."""
    found: dict[NodePool, list[int]] = {}
    for edit in edits:
        old, new = edit.before.as_fields(), edit.after.as_fields()
        if any(_may_raise(name, old[name], new[name]) for name in old if old[name] != new[name]):
            found.setdefault(edit.pool, []).extend(_own(edit, projects))
    return found


def _may_raise(name: str, old: Any, new: Any) -> bool:
    """None is no limit or nothing deserved; what another weight or rank does is for the model to say."""
    return None in {old, new} or not name.endswith(("deserved", "limit")) or new > old


def _reclaimable(warnings: Sequence[Problem]) -> Iterator[str]:
    for problem in warnings:
        if isinstance(problem, QuotaWarning):
            yield from (each.workload_id for each in problem.work if each.workload_id)


def _quota_rows(edits: Sequence[QuotaEdit], projects: Mapping[int, Project]) -> Iterator[dict[str, Any]]:
    """Each quota: what changes, and the use that it is to hold."""
    used = usage_by_queue(list(projects))
    for edit in edits:
        use = sum((used.get((pk, edit.pool.name), Usage()) for pk in _own(edit, projects)), Usage())
        old, new = edit.before.as_fields(), edit.after.as_fields()
        changed = [name for name in old if old[name] != new[name]]
        yield {
            "of": edit.label,
            "cluster": edit.pool.cluster.name,
            "pool": edit.pool.name,
            "fields": [[name, shown_value(name, old[name]), shown_value(name, new[name])] for name in changed],
            "allocated": devices(use.allocated.gpu),
            "non_preemptible": devices(use.non_preemptible.gpu),
            "requested": devices(use.requested.gpu),
            "over_quota": {"before": _over(use, edit.before), "after": _over(use, edit.after)},
        }


def _over(use: Usage, values: QuotaValues) -> float:
    return devices(max(use.allocated.gpu - (values.deserved.gpu or 0), 0))


def _sums(edits: Sequence[QuotaEdit]) -> list[dict[str, Any]]:
    """Deserved GPUs that are bounded together: of a department's projects, and of a pool."""
    departments = dict.fromkeys((edit.department, edit.pool) for edit in edits)
    pools = dict.fromkeys(edit.pool for edit in edits)
    in_pools = (row for pool in pools for row in pool_sums(pool, physical_gpus(pool)))
    return [*(department_sum(*each) for each in departments), *in_pools]


def _sentence(found: Effect) -> str:
    """What changes, then what it does to workloads."""
    groups, hours, reclaims = found["workloads"], found["gpu_hours_at_risk"], found["reclaims"]
    risk = f" ({hours:g} GPU-hours at risk)"
    parts = [
        (groups[RECLAIMABLE]["count"], "running workload", f"becomes reclaimable{risk}", f"become reclaimable{risk}"),
        (groups["no_longer_fit"]["count"], "waiting workload", "no longer fits", "no longer fit"),
        (groups["fit_again"]["count"], "waiting workload", "fits again", "fit again"),
        (len(found["starts"]["workloads"]), "waiting workload", "could start", "could start, each by itself"),
        (reclaims["new"], "reclaim relation", "is new", "are new"),
        (reclaims["lost"], "reclaim relation", "ends", "end"),
    ]
    words = [f"{counted(number, noun)} {one if number == 1 else many}" for number, noun, one, many in parts if number]
    return "; ".join([f"{quota_change_words(found['quotas'])}. {objects_sentence(found['objects'])}", *words]) + "."


def kinds_with(trial_of: TrialOfStarts) -> dict[str, PlanKind]:
    """The kinds of this module."""

    def with_starts(change: Change, actor: Actor) -> Effect:
        return effect(change, actor, trial_of)

    kind = PlanKind(title, scopes, facts, with_starts, apply, undo, requests=quota_requests)
    return {"project_quota": kind, "department_quota": kind, "quotas": kind}
