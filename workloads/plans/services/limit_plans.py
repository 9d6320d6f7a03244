"""Plans of caps per priority, time limits, idle limits, minimum runtimes, enforcement, and of required approvals."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from django.utils import timezone
from django.utils.text import get_text_list

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import MIN_RUNTIME
from clusters.watch.services.usage import idle_since
from portal.kit.errors import Problem
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from tenants.access.rules import Permission
from tenants.access.selectors import count_holders
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, RuntimeLimit, TimeLimit
from tenants.quotas.rules import amount_text
from tenants.quotas.selectors.runtime_rules import allowances, min_runtimes_of
from tenants.quotas.services.quotas import set_deserved_enforcement, set_priority_cap
from tenants.quotas.services.runtime_rules import (
    NOTICE,
    owner_fields,
    remove_limit,
    remove_min_runtime,
    set_limit,
    set_min_runtime,
)
from workloads.plans.models import PlanScope
from workloads.plans.selectors import Change, Facts, approval_of, approval_place
from workloads.plans.services.plans import set_approval
from workloads.plans.services.setting_plans import (
    Groups,
    OwnedSetting,
    Reach,
    SettingPlan,
    department_named,
    department_sum,
    owner_named,
    reason_of,
)
from workloads.state.models import DesiredPhase
from workloads.state.rules import WAITING
from workloads.state.selectors.usage import live


class CapPlan(OwnedSetting):
    """`priority`, and `gpu_limit` in thousandths; None removes the cap."""

    def title(self, change: Change) -> str:
        return f"GPU cap of {change['priority']} in {change.get('project')}"

    def facts(self, change: Change) -> Facts:
        cap = self._cap(change)
        name = f"GPU cap of {change['priority']} in {self.label(change)}"
        return {name: amount_text("gpu", cap.gpu_limit) if cap else "none"}

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        how = {"priority": change["priority"], "gpu_limit": change["gpu_limit"], "reason": reason_of(change)}
        set_priority_cap(project=self._project(change), actor=actor, **how)
        return ()

    def undo(self, change: Change) -> Change:
        cap = self._cap(change)
        return self.inverse(change, gpu_limit=cap.gpu_limit if cap else None)

    def groups(self, change: Change, reach: Reach) -> Groups:
        cap = self._cap(change)
        if cap is None:
            return {"no_longer_fit": (), "over_cap": ()}
        rows = live(list(reach.projects)).filter(priority__name=cap.priority)
        waiting = rows.filter(running_pods=0, desired_phase=DesiredPhase.RUNNING, phase__in=WAITING)
        too_big = waiting.filter(gpu_milli__gt=cap.gpu_limit).order_by("created_at").values_list("pk", flat=True)
        held, over = 0, []
        for pk, gpus in rows.filter(running_pods__gt=0).order_by("started_at").values_list("pk", "gpu_milli"):
            held += gpus
            if held > cap.gpu_limit and gpus:
                over.append(pk)
        return {"no_longer_fit": list(too_big), "over_cap": over}

    def notes(self, change: Change) -> Iterable[str]:
        flavour = flavour_for(self._project(change).cluster.flavour)
        if not flavour.traits.quotas_by_class:
            yield (
                f"{flavour.title} has no caps per priority. Rung checks the size of each workload when it is "
                "submitted, not the sum of those that run."
            )

    def _cap(self, change: Change) -> PriorityCap | None:
        rows = PriorityCap.objects.filter(project=self._project(change), priority=change["priority"])
        return rows.first()

    def _project(self, change: Change) -> Project:
        owner = owner_named({**change, "department": ""})
        assert isinstance(owner, Project)  # noqa: S101 - a department is not read
        return owner


class LimitPlan(OwnedSetting):
    """`category`, `minutes`, `notice_minutes`; `minutes` None removes the limit."""

    def __init__(self, kind: type[RuntimeLimit]) -> None:
        self._kind = kind
        self._name = str(kind._meta.verbose_name)

    def title(self, change: Change) -> str:
        return f"{self._name.capitalize()} of {change['category']} in {change.get('project') or change['department']}"

    def facts(self, change: Change) -> Facts:
        owner = owner_named(change)
        own = {f"{self._name} of {change['category']} in {self.label(change)}": self._text(self._row(owner, change))}
        if isinstance(owner, Project):
            above = owner.department
            own[f"{self._name} of {change['category']} in department {above.name}"] = self._text(
                self._row(above, change)
            )
        return own

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        owner = owner_named(change)
        row, minutes, reason = self._row(owner, change), change["minutes"], reason_of(change)
        if minutes is not None:
            notice = change.get("notice_minutes")
            notice = min(NOTICE, minutes - 1) if notice is None else notice
            how = {"category": change["category"], "minutes": minutes, "notice_minutes": notice}
            set_limit(self._kind, owner=owner, actor=actor, reason=reason, **how)
        elif row:
            remove_limit(limit=row, actor=actor, reason=reason)
        return ()

    def undo(self, change: Change) -> Change:
        row = self._row(owner_named(change), change)
        before = {"minutes": row.minutes, "notice_minutes": row.notice_minutes} if row else {"minutes": None}
        return self.inverse(change, **before)

    def groups(self, change: Change, reach: Reach) -> Groups:
        limits, now = allowances(list(reach.projects.values()), self._kind), timezone.now()
        rows = live(list(reach.projects)).filter(category=change["category"], running_pods__gt=0, type__fixed=False)
        runs = rows.exclude(started_at=None).order_by("started_at").values_list("pk", "project_id", "started_at")
        found = list(runs) if limits else []
        starts: Mapping[str, Any] = {str(pk): started for pk, _project, started in found}
        if self._kind is IdleLimit:
            starts = idle_since(list(starts), now=now)
        reached = [
            pk
            for pk, project, _started in found
            if (limit := limits.get((project, change["category"])))
            and (since := starts.get(str(pk)))
            and limit.ends(since) <= now
        ]
        return {"stopped": reached}

    def _row(self, owner: Project | Department, change: Change) -> RuntimeLimit | None:
        return self._kind._default_manager.filter(category=change["category"], **owner_fields(owner)).first()

    def _text(self, row: RuntimeLimit | None) -> str:
        return f"{row.minutes} min, notice {row.notice_minutes} min" if row else "none"


class EnforcementPlan(OwnedSetting):
    """`enforce_deserved`: do the projects of a `department` have to deserve no more than it does, in every pool?"""

    def title(self, change: Change) -> str:
        verb = "Enforce" if change["enforce_deserved"] else "Stop enforcing"
        return f"{verb} the deserved quota of {change['department']}"

    def facts(self, change: Change) -> Facts:
        row = department_named(change)
        return {f"deserved quota of {self.label(change)}": "enforced" if row.enforce_deserved else "not enforced"}

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        how = {"enforced": change["enforce_deserved"], "reason": reason_of(change)}
        set_deserved_enforcement(department=department_named(change), actor=actor, **how)
        return ()

    def undo(self, change: Change) -> Change:
        return self.inverse(change, enforce_deserved=department_named(change).enforce_deserved)

    def reach(self, change: Change) -> Reach:
        """It bounds later changes of quotas, and no workload."""
        return Reach((department_named(change).cluster,))

    def sums(self, change: Change) -> list[dict[str, Any]]:
        department = department_named(change)
        pools = department.cluster.node_pools.select_related("cluster").order_by("name")
        return [department_sum(department, pool) for pool in pools]


def inside_min_runtime(reach: Reach) -> list[UUID]:
    """Preemptible runs inside the minimum runtime of their project or department, the longest first."""
    rules, now = min_runtimes_of(reach.clusters[0]), timezone.now()
    rows = live(list(reach.projects)).filter(running_pods__gt=0).exclude(started_at=None)
    rows = rows.exclude(preemptibility=Preemptibility.NON_PREEMPTIBLE).order_by("started_at")
    return [
        pk
        for pk, project, started in rows.values_list("pk", "project_id", "started_at")
        if started
        and (now - started).total_seconds() < 60 * rules.effective(project, reach.projects[project].department_id)
    ]


class MinRuntimePlan(OwnedSetting):
    """`minutes`; None removes the rule."""

    def title(self, change: Change) -> str:
        return f"Minimum runtime of {change.get('project') or change.get('department')}"

    def facts(self, change: Change) -> Facts:
        owner = owner_named(change)
        found = {f"minimum runtime of {self.label(change)}": self._text(owner)}
        if isinstance(owner, Project):
            found[f"minimum runtime of department {owner.department.name}"] = self._text(owner.department)
        return found

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        owner = owner_named(change)
        row, reason = self._row(owner), reason_of(change)
        if change["minutes"] is not None:
            set_min_runtime(owner=owner, minutes=change["minutes"], actor=actor, reason=reason)
        elif row:
            remove_min_runtime(rule=row, actor=actor, reason=reason)
        return ()

    def undo(self, change: Change) -> Change:
        row = self._row(owner_named(change))
        return self.inverse(change, minutes=row.minutes if row else None)

    def groups(self, change: Change, reach: Reach) -> Groups:
        del change
        return {"protected": inside_min_runtime(reach)}

    def notes(self, change: Change) -> Iterable[str]:
        guarantee = guarantee_on(owner_named(change).cluster, MIN_RUNTIME)
        if guarantee.enforced != "yes":
            yield str(guarantee.explanation)

    def _row(self, owner: Project | Department) -> MinRuntime | None:
        return MinRuntime.objects.filter(**owner_fields(owner)).first()

    def _text(self, owner: Project | Department) -> str:
        row = self._row(owner)
        return f"{row.minutes} min" if row else "none"


_IN_DEPARTMENT: Final = {
    Permission.MANAGE_PROJECT_QUOTA: "its projects' quotas",
    Permission.MANAGE_DEPARTMENT_QUOTA: "its own quota",
    Permission.MANAGE_DEPARTMENT: "this setting",
}
_ANYWHERE: Final = {
    Permission.MANAGE_DEPARTMENT_QUOTA: "quotas",
    Permission.MANAGE_CLUSTERS: "clusters and node pools",
    Permission.MANAGE_DICTIONARY: "priorities, workload types and this setting",
}
LONE_ADMIN: Final = (
    "Only one person or none may change {what}, and the author of a plan cannot approve it. Such plans could not be "
    "applied. Give another user a role that allows it first."
)


class ApprovalPlan(SettingPlan):
    """`required`, for `department` and `cluster` by name, or without them for the whole installation."""

    page = "workloads:plan-approval"

    def title(self, change: Change) -> str:
        verb = "Require" if change["required"] else "Stop requiring"
        return f"{verb} approval of plans for {self._label(change)}"

    def scopes(self, change: Change) -> list[PlanScope]:
        department = approval_place(change)
        permission = Permission.MANAGE_DEPARTMENT if department else Permission.MANAGE_DICTIONARY
        return [PlanScope(permission=permission.value, department=department)]

    def facts(self, change: Change) -> Facts:
        required = approval_of(approval_place(change)) is not None
        return {f"approval of plans for {self._label(change)}": "by a second admin" if required else "not required"}

    def apply(self, change: Change, actor: Actor) -> Iterable[Problem]:
        set_approval(department=approval_place(change), required=change["required"], actor=actor)
        return ()

    def undo(self, change: Change) -> Change:
        return {**change, "required": approval_of(approval_place(change)) is not None}

    def reach(self, change: Change) -> Reach:
        del change
        return Reach()

    def groups(self, change: Change, reach: Reach) -> Groups:
        del change, reach
        return {}

    def notes(self, change: Change) -> Iterable[str]:
        """Which plans no one could approve: their author may not."""
        if not change["required"]:
            return
        department = approval_place(change)
        words = _IN_DEPARTMENT if department else _ANYWHERE
        alone = [text for each, text in words.items() if count_holders(each, department=department) < 2]
        if alone:
            yield LONE_ADMIN.format(what=get_text_list(alone, "and"))

    def _label(self, change: Change) -> str:
        return f"department {change['department']}" if change.get("department") else "the whole installation"


KINDS: Final[Mapping[str, SettingPlan]] = {
    "priority_cap": CapPlan(),
    "time_limit": LimitPlan(TimeLimit),
    "idle_limit": LimitPlan(IdleLimit),
    "min_runtime": MinRuntimePlan(),
    "enforce_deserved": EnforcementPlan(),
    "approval": ApprovalPlan(),
}
