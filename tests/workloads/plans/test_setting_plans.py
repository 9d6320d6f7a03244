"""Plans of caps, limits, minimum runtimes, policies, node pools and schedulers: over REST, from plan to rollback."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import POOL_LABEL
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, TimeLimit
from tests.factories.tenants import GPU
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.plans.models import Plan
from workloads.policies.models import Policy
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
PATH = "v1/plans"
RULES = {"defaults": {}, "rules": {"priorityClass": {"options": [{"value": "low"}]}}}


def running(project: Project, name: str, *, minutes: int = 30, **more: Any) -> Workload:
    """One GPU of h100 for so many minutes."""
    started = timezone.now() - timedelta(minutes=minutes)
    values = {"phase": Phase.RUNNING, "running_pods": 1, "started_at": started, "pool_name": "h100", **more}
    row: Workload = WorkloadFactory(project=project, name=name, **values)
    ObservedPodFactory(workload=row)
    return row


def planned(robot: Robot, kind: str, **change: Any) -> dict[str, Any]:
    answer = robot.send("POST", PATH, {"kind": kind, "change": change})
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def applied(robot: Robot, plan: dict[str, Any]) -> None:
    answer = robot.send("POST", f"{PATH}/{plan['id']}/apply")
    assert answer.status_code == 200, answer.content


CAP = {"project": "llm-team", "priority": "high", "gpuLimit": 2}
TIME = {"project": "llm-team", "category": "Train", "minutes": 60}
POOL = {"op": "change", "cluster": "lab", "pool": "h100", "labelValue": "h200"}
KINDS: list[tuple[str, dict[str, Any], Callable[[], object]]] = [
    ("priority_cap", CAP, lambda: list(PriorityCap.objects.values_list("gpu_limit"))),
    ("time_limit", TIME, lambda: list(TimeLimit.objects.values_list("minutes", "notice_minutes"))),
    ("idle_limit", TIME, lambda: list(IdleLimit.objects.values_list("minutes", "notice_minutes"))),
    ("min_runtime", {"department": "research", "minutes": 20}, lambda: list(MinRuntime.objects.values_list("minutes"))),
    (
        "policy",
        {"department": "research", "workloadKind": "training", "name": "calm", "policy": RULES},
        lambda: list(Policy.objects.values_list("name", "document")),
    ),
    ("node_pool", POOL, lambda: list(NodePool.objects.order_by("pk").values_list("name", "label_value", "is_default"))),
    (
        "node_pool",
        {"op": "create", "cluster": "lab", "pool": "b200", "labelValue": "b200", "isDefault": True},
        lambda: list(NodePool.objects.order_by("pk").values_list("name", "label_value", "is_default")),
    ),
    (
        "node_pool",
        {"op": "delete", "cluster": "lab", "pool": "a100"},
        lambda: sorted(NodePool.objects.values_list("name", "label_value", "is_default")),
    ),
    ("scheduler", {"cluster": "lab", "flavour": "kube"}, lambda: Cluster.objects.get().flavour),
    ("approval", {"department": "research", "required": True}, lambda: None),
]


@pytest.mark.parametrize(("kind", "change", "rows"), KINDS, ids=lambda each: each if isinstance(each, str) else "")
def test_every_kind_is_planned_applied_once_and_rolled_back(
    robot: Robot, llm_team: Project, kind: str, change: dict[str, Any], rows: Callable[[], object]
) -> None:
    before = rows()
    plan = planned(robot, kind, **change)
    assert (rows(), plan["state"], plan["kind"]) == (before, "open", kind)
    assert plan["settings"]
    assert robot.get(f"{PATH}/{plan['id']}").json() == plan
    applied(robot, plan)
    again = robot.send("POST", f"{PATH}/{plan['id']}/apply")
    assert (again.status_code, again.json()["details"]) == (409, "plan_closed")
    if kind == "approval":
        return
    assert rows() != before
    back = robot.send("POST", f"{PATH}/{plan['id']}/rollback").json()
    assert (back["state"], back["rollsBack"]) == ("open", plan["id"]), back
    applied(robot, back)
    assert rows() == before
    actions = list(
        AuditRecord.objects.filter(entity_type="plan", result="Succeeded")
        .order_by("id")
        .values_list("action", flat=True)
    )
    assert actions == ["plan.create", "plan.apply", "plan.create", "plan.apply"]
