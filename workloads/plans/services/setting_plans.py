"""Plans of single settings: the service runs in a savepoint that is taken back, and what it moves is compared.

A kind is a subclass of `SettingPlan`: the rows that it is computed on, the service that makes the change, its inverse,
and the workloads that it concerns. `workloads.apps` registers it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest
from portal.kit.db.validation import camel
from portal.kit.errors import NotFound, Problem, ValidationFailed
from portal.kit.pages.api_snippets import ApiRequest
from portal.kit.security.actors import Actor
from scheduling.model.resources import DIMENSIONS
from tenants.access.rules import Permission
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.rules import QuotaValues, amount_text
from tenants.quotas.services.quotas import deserved_by_projects, deserved_sum
from workloads.plans.models import Plan, PlanScope
from workloads.plans.selectors import (
    AT_RISK,
    GROUP_WORDS,
    WHEN_LOST,
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
    unfit,
    waiting_in,
)
from workloads.plans.services.plans import trial_savepoint
from workloads.state.models import DesiredPhase
from workloads.state.rules import WAITING
from workloads.state.selectors.usage import live

SHOWN: Final = 3
"""Changed settings in one sentence."""
Groups = Mapping[str, Collection[UUID]]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a setting bounds: clusters whose objects may change, projects by id whose workloads it may concern."""

    clusters: tuple[Cluster, ...] = ()
    projects: Mapping[int, Project] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Readings:
    """What is compared: texts of settings, objects by cluster, workloads by group, sums of deserved GPUs."""

    settings: Facts
    objects: tuple[Iterable[Manifest], ...]
    groups: Groups
    sums: list[dict[str, Any]]


class SettingPlan(ABC):
    """One kind of plan. Every method gets the change as data and reads the rows of now."""

    page: ClassVar[str] = "workloads:plans"

    @abstractmethod
    def title(self, change: Change) -> str:
        """The change in a few words."""

    @abstractmethod
    def scopes(self, change: Change) -> list[PlanScope]:
        """The permissions that it needs, unsaved. NotFound where a place is absent."""

    @abstractmethod
    def facts(self, change: Change) -> Facts:
        """The settings that it is computed on, a short text each; those that it changes are shown."""

    @abstractmethod
    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        """Make the change by its service; answers what the service warns of."""

    @abstractmethod
    def undo(self, change: Change) -> Change | None:
        """The inverse, from the rows of now; None where there is none."""

    @abstractmethod
    def reach(self, change: Change) -> Reach:
        """What it bounds."""

    def figures(self, change: Change) -> Facts:
        """More texts to compare, which do not make a plan outdated when they move."""
        del change
        return {}

    def groups(self, change: Change, reach: Reach) -> Groups:
        """Workloads by group of `GROUP_WORDS`, as the settings of now make them."""
        del change
        return {"no_longer_fit": unfit(waiting_in(list(reach.projects)), reach.projects)}

    def sums(self, change: Change) -> list[dict[str, Any]]:
        """Deserved GPUs and what bounds them; `before` and `most` as of now."""
        del change
        return []

    def notes(self, change: Change) -> Iterable[str]:
        """Warnings, read with the change made."""
        del change
        return ()

    def effect(self, change: Change, actor: Actor) -> Effect:
        """Run the change in a savepoint and compare."""
        reach = self.reach(change)
        before = self._readings(change, reach)
        with trial_savepoint():
            warnings = [str(each.message) for each in self.apply(change, actor)]
            after = self._readings(change, self.reach(change))
            warnings += self.notes(change)
        found = blank_effect()
        compared = zip(reach.clusters, before.objects, after.objects, strict=True)
        found["objects"] = [each for row in compared if (each := object_changes(*row))["changes"]]
        found["settings"] = list(_settings(before.settings, after.settings))
        moved = _moved(before.groups, after.groups)
        found["workloads"] |= {name: group_of(ids) for name, ids in moved.items() if ids}
        found["workloads"] |= _involved(reach)
        found["gpu_hours_at_risk"] = gpu_hours_at_risk({pk for name in AT_RISK for pk in moved.get(name, ())})
        found["sums"] = [
            {**new, "before": old["before"], "after": new["before"]}
            for old, new in zip(before.sums, after.sums, strict=True)
        ]
        found["warnings"] = list(dict.fromkeys(warnings))
        return {**found, "sentence": effect_sentence(found)}

    def _readings(self, change: Change, reach: Reach) -> _Readings:
        return _Readings(
            {**self.facts(change), **self.figures(change)},
            tuple(objects_on(cluster) for cluster in reach.clusters),
            self.groups(change, reach),
            self.sums(change),
        )

    def as_kind(self, name: str) -> PlanKind:
        """As the engine takes it."""

        def apply(change: Change, actor: Actor) -> None:
            for _warning in self.apply(change, actor):
                pass

        return PlanKind(
            self.title,
            self.scopes,
            self.facts,
            self.effect,
            apply,
            self.undo,
            requests=lambda plan: setting_requests(name, plan),
            page=self.page,
        )


def quota_requests(plan: Plan) -> list[ApiRequest]:
    """A plan of quotas over REST."""
    entries = [_quota_entry(each) for each in plan.change.get("quotas", [plan.change])]
    change = {"quotas": entries, "reason": plan.change.get("reason", "")}
    return [ApiRequest("POST", "/api/v1/plans", {"kind": "quotas", "change": change})]


def _quota_entry(entry: Change) -> dict[str, Any]:
    """Columns of a quota as REST has them: GPUs in devices, CPU in millicores, memory in MB."""
    owner = {name: entry[name] for name in ("project", "department", "cluster") if entry.get(name)}
    found: dict[str, Any] = {**owner, "nodePool": entry["pool"]}
    values = entry["values"]
    if values is None:
        return {**found, "remove": True}
    for name, size, weight in (
        ("gpu", 1000, "over_quota_weight"),
        ("cpu", 1, "cpu_weight"),
        ("memory", 10**6, "memory_weight"),
    ):
        amounts = {part: values[f"{name}_{part}"] for part in ("deserved", "limit") if f"{name}_{part}" in values}
        one: dict[str, Any] = {part: value if value is None else value / size for part, value in amounts.items()}
        one |= {"overQuotaWeight": values[weight]} if weight in values else {}
        if one:
            found[name] = {**one, "units": "MB"} if name == "memory" else one
    return {**found, "rank": values["rank"]} if "rank" in values else found


def devices(milli: int) -> float:
    """GPUs of thousandths; a whole number where it is one."""
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def quota_text(values: QuotaValues) -> str:
    """`4 GPUs deserved, at most 12 GPUs, weight 2, rank medium-low`."""
    parts = []
    for dimension in DIMENSIONS:
        deserved, limit = getattr(values.deserved, dimension), getattr(values.limit, dimension)
        if deserved is not None:
            parts.append(f"{amount_text(dimension, deserved)} deserved")
        if limit is not None:
            parts.append(f"at most {amount_text(dimension, limit)}")
    weights = "/".join(f"{weight:.7g}" for weight in dict.fromkeys(values.weights.values()))
    return ", ".join([*parts, f"weight {weights}", f"rank {values.rank}"])


def shown_value(name: str, value: Any) -> str:
    if value is None:
        return "unlimited" if name.endswith("limit") else "as for GPUs" if name.endswith("weight") else "not counted"
    dimension, _, kind = name.partition("_")
    return amount_text(dimension, value) if kind in {"deserved", "limit"} else f"{value}"


def quota_change_words(quotas: Sequence[Mapping[str, Any]]) -> str:
    """`Project llm-team in h100: GPU limit 40 → 44`, or how many quotas change."""
    changed = [each for each in quotas if each["fields"]]
    if len(changed) != 1:
        return f"{counted(len(changed), 'quota')} changed"
    only = changed[0]
    fields = ", ".join(f"{_field_words(name)} {old} → {new}" for name, old, new in only["fields"])
    return f"{only['of'].capitalize()} in {only['pool']}: " + re.sub(r"(?<=\d) GPUs?", "", fields)


def _field_words(name: str) -> str:
    if name == "gpu_deserved":
        return "GPUs deserved"
    return name.replace("_", " ").replace("gpu", "GPU").replace("cpu", "CPU")


def department_sum(department: Department, pool: NodePool) -> dict[str, Any]:
    """GPUs that the department's projects deserve in a pool, against its own."""
    parent = DepartmentQuota.objects.filter(department=department, node_pool=pool).first()
    return {
        "of": f"projects of {department.name}",
        "cluster": pool.cluster.name,
        "pool": pool.name,
        "before": devices(deserved_by_projects(department, pool).gpu),
        "bound": "department quota",
        "most": devices(parent.gpu_deserved) if parent else 0,
    }


def pool_sums(pool: NodePool, physical: int | None) -> Iterator[dict[str, Any]]:
    """All GPUs deserved in a pool against its GPUs in thousandths; None: no node was observed."""
    for model, of in ((ProjectQuota, "all projects"), (DepartmentQuota, "all departments")):
        yield {
            "of": of,
            "cluster": pool.cluster.name,
            "pool": pool.name,
            "before": devices(deserved_sum(model._default_manager.filter(node_pool=pool)).gpu),
            "bound": "physical GPUs",
            "most": None if physical is None else devices(physical),
        }


_SENT_AS: Final = {"kind": "workloadKind", "document": "policy"}


def setting_requests(kind: str, plan: Plan) -> list[ApiRequest]:
    """A plan of one setting over REST."""
    change = {_SENT_AS.get(name, camel(name)): value for name, value in plan.change.items()}
    if change.get("gpuLimit") is not None:
        change["gpuLimit"] /= 1000
    return [ApiRequest("POST", "/api/v1/plans", {"kind": kind, "change": change})]


def _settings(before: Facts, after: Facts) -> Iterator[list[str]]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, "none"), after.get(name, "none")
        if old != new:
            yield [name, old, new]


def _moved(before: Groups, after: Groups) -> dict[str, list[UUID]]:
    """Those who come into a group, and of some groups those who leave it."""
    found: dict[str, list[UUID]] = {}
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ()), after.get(name, ())
        found[name] = [pk for pk in new if pk not in old]
        if name in WHEN_LOST:
            found[WHEN_LOST[name]] = [pk for pk in old if pk not in new]
    return found


def _involved(reach: Reach) -> dict[str, dict[str, Any]]:
    rows = live(list(reach.projects))
    waiting = rows.filter(running_pods=0, desired_phase=DesiredPhase.RUNNING, phase__in=WAITING)
    counts = {"running": rows.filter(running_pods__gt=0).count(), "waiting": waiting.count()}
    return {name: {"count": count, "examples": []} for name, count in counts.items()}


def effect_sentence(found: Effect) -> str:
    """What changes, then what it does to objects and workloads."""
    changed = [f"{name}: {old.removesuffix('.')} → {new.removesuffix('.')}" for name, old, new in found["settings"]]
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    head = "; ".join(changed[:SHOWN]) + more if changed else "No setting changes"
    parts = [f"{head[:1].upper()}{head[1:]}. {objects_sentence(found['objects'])}"]
    for name, (noun, one, many) in GROUP_WORDS.items():
        if number := found["workloads"].get(name, {}).get("count", 0):
            parts.append(f"{counted(number, noun)} {one if number == 1 else many}")
    if hours := found["gpu_hours_at_risk"]:
        parts.append(f"{hours:g} GPU-hours at risk")
    return "; ".join(parts) + "."


def owner_named(entry: Mapping[str, Any], pointer: str = "") -> Project | Department:
    """By name. Who may not see it gets the same answer as for an absent one."""
    on = {"cluster__name": entry["cluster"]} if entry.get("cluster") else {}
    if name := entry.get("project"):
        project = Project.objects.filter(name=name, **on).select_related("department", "cluster").first()
        if project is None:
            raise NotFound
        return project
    return department_named(entry, pointer)


def department_named(entry: Mapping[str, Any], pointer: str = "") -> Department:
    """The same for a department, which needs its cluster if another cluster has one of that name."""
    on = {"cluster__name": entry["cluster"]} if entry.get("cluster") else {}
    departments = list(Department.objects.filter(name=entry.get("department", ""), **on).select_related("cluster"))
    if not departments:
        raise NotFound
    if len(departments) > 1:
        names = [each.cluster.name for each in departments]
        raise ValidationFailed.at(
            f"{pointer}/cluster", "ambiguous", "Name the cluster of the department.", allowed=names
        )
    return departments[0]


def owner_scope(owner: Project | Department) -> PlanScope:
    """The permission to change quotas there, unsaved."""
    if isinstance(owner, Project):
        return PlanScope(permission=Permission.MANAGE_PROJECT_QUOTA.value, project=owner)
    return PlanScope(permission=Permission.MANAGE_DEPARTMENT_QUOTA.value, department=owner)


class OwnedSetting(SettingPlan):
    """A setting of one project or department: `{"project" | "department": name, "cluster": name, …, "reason"}`."""

    def scopes(self, change: Change) -> list[PlanScope]:
        return [owner_scope(owner_named(change))]

    def reach(self, change: Change) -> Reach:
        owner = owner_named(change)
        if isinstance(owner, Project):
            return Reach((owner.cluster,), {owner.pk: owner})
        rows = owner.projects.select_related("department", "cluster")
        return Reach((owner.cluster,), {row.pk: row for row in rows})

    def label(self, change: Change) -> str:
        """`project llm-team`."""
        return f"project {change['project']}" if change.get("project") else f"department {change.get('department')}"

    def inverse(self, change: Change, **values: Any) -> Change:
        """The same setting with the values of now."""
        return {**change, **values, "reason": f"Rolled back: {self.title(change)}"}


def reason_of(change: Change) -> str:
    return str(change.get("reason", ""))
