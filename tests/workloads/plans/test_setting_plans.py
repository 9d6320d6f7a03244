"""Plans of caps, limits, minimum runtimes, policies, node pools and schedulers: over REST, from plan to rollback."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.backends.memory import store_of
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import POOL_LABEL
from clusters.sync.services.reconcile import reconcile
from clusters.watch.models import ObservedPod
from portal.audit.models import AuditRecord
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, ProjectQuota, TimeLimit
from tests.clusters.connection.test_scheduler_config import configure_volcano
from tests.factories.tenants import GPU
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Priority, WorkloadType
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
    values.setdefault("allocated_gpu_milli", GPU)
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
    (
        "enforce_deserved",
        {"department": "research", "enforceDeserved": True},
        lambda: Department.objects.get(name="research").enforce_deserved,
    ),
    (
        "defer_preemptors",
        {"cluster": "lab", "deferPreemptors": True},
        lambda: Cluster.objects.get().defer_preemptors,
    ),
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


def test_a_cap_names_what_holds_more_and_what_no_longer_fits(robot: Robot, llm_team: Project) -> None:
    Cluster.objects.update(flavour="kube")
    high = Priority.objects.get(name="high")
    for number in range(3):
        running(llm_team, f"run-{number}", minutes=60 - number, priority=high, gpu_milli=GPU)
    WorkloadFactory(project=llm_team, name="wide", priority=high, gpu_milli=4 * GPU)
    plan = planned(robot, "priority_cap", **CAP)
    groups = plan["workloads"]
    assert [each["name"] for each in groups["over_cap"]["examples"]] == ["run-2"]
    assert [each["name"] for each in groups["no_longer_fit"]["examples"]] == ["wide"]
    assert plan["sentence"] == (
        "GPU cap of high in project llm-team: none → 2 GPUs. 1 object created on 1 cluster; "
        "1 running workload holds GPUs above the cap; 1 waiting workload no longer fits."
    )
    assert plan["warnings"] == []


def test_where_the_scheduler_has_no_caps_the_plan_says_so(robot: Robot, llm_team: Project) -> None:
    (warning,) = planned(robot, "priority_cap", **CAP)["warnings"]
    assert "KAI Scheduler has no caps per priority" in warning


def test_a_time_limit_names_runs_that_have_passed_it_and_their_gpu_hours(robot: Robot, llm_team: Project) -> None:
    running(llm_team, "old", minutes=90, category="Train")
    running(llm_team, "young", minutes=30, category="Train")
    running(llm_team, "other", minutes=90, category="Build")
    plan = planned(robot, "time_limit", **TIME)
    assert [each["name"] for each in plan["workloads"]["stopped"]["examples"]] == ["old"]
    assert (plan["gpuHoursAtRisk"], plan["workloads"]["running"]["count"]) == (1.5, 3)
    assert plan["settings"] == [["time limit of Train in project llm-team", "none", "60 min, notice 15 min"]]


def test_a_shorter_minimum_runtime_names_runs_that_lose_their_protection(robot: Robot, llm_team: Project) -> None:
    running(llm_team, "covered", minutes=30)
    running(llm_team, "fixed", minutes=30, preemptibility="non-preemptible")
    plan = planned(robot, "min_runtime", department="research", minutes=60)
    assert [each["name"] for each in plan["workloads"]["protected"]["examples"]] == ["covered"]
    applied(robot, plan)
    plan = planned(robot, "min_runtime", department="research", minutes=20)
    assert [each["name"] for each in plan["workloads"]["evictable"]["examples"]] == ["covered"]
    assert plan["gpuHoursAtRisk"] == 0.5


def test_deferring_preemptors_names_runs_that_it_protects_and_stopping_it_what_is_sent(
    robot: Robot, llm_team: Project
) -> None:
    Cluster.objects.update(flavour="kube")
    MinRuntime.objects.create(project=llm_team, minutes=60)
    running(llm_team, "covered", minutes=30)
    running(llm_team, "done", minutes=90)
    plan = planned(robot, "defer_preemptors", cluster="lab", deferPreemptors=True)
    assert [each["name"] for each in plan["workloads"]["protected"]["examples"]] == ["covered"]
    assert plan["settings"] == [
        ["defer preemptors on lab", "off", "on"],
        ["minimum runtimes are enforced", "no", "partly"],
    ]
    assert plan["warnings"]
    applied(robot, plan)
    WorkloadFactory(project=llm_team, name="held", phase_reason="HeldBack")
    back = robot.send("POST", f"{PATH}/{plan['id']}/rollback").json()
    assert [each["name"] for each in back["workloads"]["sent"]["examples"]] == ["held"]
    assert [each["name"] for each in back["workloads"]["evictable"]["examples"]] == ["covered"]
    assert back["gpuHoursAtRisk"] == 0.5


def test_where_the_scheduler_enforces_minimum_runtimes_the_plan_says_that_deferring_changes_nothing(
    robot: Robot, llm_team: Project
) -> None:
    (warning,) = planned(robot, "defer_preemptors", cluster="lab", deferPreemptors=True)["warnings"]
    assert warning == "KAI Scheduler enforces minimum runtimes itself on lab, so this changes nothing there."


def test_enforcing_a_deserved_quota_shows_the_sums_and_is_refused_where_projects_deserve_more(
    robot: Robot, llm_team: Project
) -> None:
    running(llm_team, "run")
    plan = planned(robot, "enforce_deserved", department="research", enforceDeserved=True)
    assert plan["settings"] == [["deserved quota of department research", "not enforced", "enforced"]]
    sums = {each["pool"]: (each["of"], each["after"], each["bound"], each["most"]) for each in plan["sums"]}
    assert sums["h100"] == ("projects of research", 4, "department quota", 8)
    assert plan["workloads"]["running"]["count"] == 0
    assert plan["objects"] == []
    ProjectQuota.objects.update(gpu_deserved=9 * GPU, gpu_limit=None)
    change = {"department": "research", "enforceDeserved": True}
    refused = robot.send("POST", PATH, {"kind": "enforce_deserved", "change": change})
    assert (refused.status_code, refused.json()["details"]) == (409, "sum_over_department")
    assert refused.json()["errors"][0]["pointer"] == "/change/enforceDeserved"


def test_a_policy_names_workloads_that_could_not_be_submitted_again(robot: Robot, llm_team: Project) -> None:
    training = WorkloadType.objects.get(name="Training")
    named = {"priority_source": "explicit", "type": training}
    running(llm_team, "loud", priority=Priority.objects.get(name="high"), **named)
    running(llm_team, "calm", priority=Priority.objects.get(name="low"), **named)
    change = {"department": "research", "workloadKind": "training", "name": "calm", "policy": RULES}
    plan = planned(robot, "policy", **change)
    assert [each["name"] for each in plan["workloads"]["refused_again"]["examples"]] == ["loud"]
    assert plan["objects"] == []
    applied(robot, plan)
    back = robot.send("POST", f"{PATH}/{plan['id']}/rollback").json()
    assert [each["name"] for each in back["workloads"]["allowed_again"]["examples"]] == ["loud"]


def test_a_node_pool_names_nodes_that_leave_what_runs_there_and_deserved_gpus(robot: Robot, llm_team: Project) -> None:
    for number, node in enumerate(Node.objects.filter(pool__name="h100")):
        Node.objects.filter(pk=node.pk).update(labels={POOL_LABEL: "h100"}, name=f"n{number}")
    NodePool.objects.filter(name="a100").update(is_default=False)
    workload = running(llm_team, "run", node_pools=["h100"])
    workload_pod(workload).update(node_name="n0", pool_name="h100")
    WorkloadFactory(project=llm_team, name="waits", node_pools=["h100"], pool_name="h100", gpu_milli=GPU)
    NodePool.objects.filter(name="h100").update(is_default=False)
    plan = planned(robot, "node_pool", **POOL)
    assert ["nodes of h100", "2 nodes, 16 GPUs", "0 nodes, 0 GPUs"] in plan["settings"]
    groups = plan["workloads"]
    assert [each["name"] for each in groups["leaves_pool"]["examples"]] == ["run"]
    assert [each["name"] for each in groups["no_longer_fit"]["examples"]] == ["waits"]
    assert [each["name"] for each in groups["recreated"]["examples"]] == ["waits"]
    sums = {(each["of"], each["pool"]): (each["before"], each["after"], each["most"]) for each in plan["sums"]}
    assert sums["all projects", "h100"] == (4, 4, 0)
    assert "All projects deserve 4 GPUs in h100; its nodes have 0." in plan["warnings"]


def test_a_scheduler_names_objects_work_promises_and_who_may_evict_whom(robot: Robot, llm_team: Project) -> None:
    reconcile(Cluster.objects.get())
    running(llm_team, "run")
    WorkloadFactory(project=llm_team, name="waits")
    plan = planned(robot, "scheduler", cluster="lab", flavour="kube")
    assert plan["settings"] == [["scheduler of lab", "KAI Scheduler", "kube-scheduler"]]
    kinds = {(change["mark"], change["kind"]) for change in plan["objects"][0]["changes"]}
    assert ("+", "ResourceQuota") in kinds
    assert (plan["workloads"]["stays"]["count"], plan["workloads"]["recreated"]["count"]) == (1, 1)
    (scope,) = plan["victims"]["scopes"]
    assert scope["clusters"] == [{"name": "lab", "scheduler": "kube-scheduler"}]
    assert scope["rules"]
    assert plan["warnings"]


def test_a_scheduler_evicts_as_its_configuration_there_says(robot: Robot, llm_team: Project) -> None:
    cluster = Cluster.objects.get()
    reconcile(cluster)
    (unread,) = planned(robot, "scheduler", cluster="lab", flavour="volcano")["victims"]["scopes"]
    assert (unread["reach"], unread["assumption"][:29]) == (
        "no priority evicts another",
        "Assumption: Volcano neither p",
    )
    configure_volcano(store_of(str(cluster.pk)), "allocate, preempt, reclaim")
    (read,) = planned(robot, "scheduler", cluster="lab", flavour="volcano")["victims"]["scopes"]
    assert (read["reach"], read["assumption"]) == ("within one queue, preemptible workloads only", "")


def test_a_plan_whose_setting_moved_is_refused_with_what_moved(robot: Robot, llm_team: Project) -> None:
    plan = planned(robot, "time_limit", **TIME)
    path = f"v1/org-unit/departments/{llm_team.department_id}/time-limits/Train"
    assert robot.send("PUT", path, {"minutes": 90}).status_code == 200
    refused = robot.send("POST", f"{PATH}/{plan['id']}/apply")
    assert (refused.status_code, refused.json()["details"]) == (409, "plan_moved")
    assert "time limit of Train in department research: none → 90 min, notice 15 min" in refused.json()["message"]
    assert not TimeLimit.objects.filter(project=llm_team).exists()


@pytest.mark.parametrize(
    ("kind", "change", "status", "pointer", "code"),
    [
        ("priority_cap", {"project": "llm-team", "priority": "high"}, 422, "/change/gpuLimit", "required"),
        ("priority_cap", {**CAP, "priority": "bogus"}, 422, "/change/priority", "unknown_priority"),
        ("priority_cap", {**CAP, "gpuLimit": -1}, 422, "/change/gpuLimit", "min_value"),
        ("priority_cap", {**CAP, "minutes": 3}, 422, "/change/minutes", "unknown_field"),
        ("time_limit", {**TIME, "category": "Dream"}, 422, "/change/category", "unknown_category"),
        ("time_limit", {**TIME, "department": "research"}, 422, "/change/project", "one_owner"),
        ("time_limit", {**TIME, "noticeMinutes": 60}, 422, "/change/noticeMinutes", "out_of_range"),
        ("min_runtime", {"minutes": 5}, 422, "/change/project", "one_owner"),
        ("node_pool", {**POOL, "op": "paint"}, 422, "/change/op", "unknown_op"),
        ("node_pool", {**POOL, "pool": "b200"}, 422, "/change/pool", "unknown_node_pool"),
        ("node_pool", {**POOL, "labelValue": "no spaces"}, 422, "/change/label_value", "invalid"),
        ("scheduler", {"cluster": "lab", "flavour": "cron"}, 422, "/change/flavour", "unknown"),
        ("scheduler", {"cluster": "lab", "flavour": "kai"}, 422, "/change/flavour", "same"),
        ("enforce_deserved", {"department": "research"}, 422, "/change/enforceDeserved", "required"),
        ("enforce_deserved", {"enforceDeserved": True}, 422, "/change/department", "required"),
        (
            "enforce_deserved",
            {"department": "research", "enforceDeserved": "often"},
            422,
            "/change/enforceDeserved",
            "invalid",
        ),
        ("defer_preemptors", {"cluster": "lab"}, 422, "/change/deferPreemptors", "required"),
        ("defer_preemptors", {"cluster": "lab", "deferPreemptors": None}, 422, "/change/deferPreemptors", "null"),
        ("policy", {"workloadKind": "party", "policy": RULES}, 422, "/change/workloadKind", "unknown_kind"),
        ("policy", {"workloadKind": "training", "policy": RULES}, 422, "/change/meta/name", "bad_name"),
    ],
)
def test_a_malformed_change_points_at_its_field(
    robot: Robot, llm_team: Project, kind: str, change: dict[str, Any], status: int, pointer: str, code: str
) -> None:
    answer = robot.send("POST", PATH, {"kind": kind, "change": change})
    assert answer.status_code == status, answer.content
    assert (answer.json()["errors"][0]["pointer"], answer.json()["errors"][0]["code"]) == (pointer, code)
    assert not Plan.objects.exists()


@pytest.mark.parametrize(("kind", "change", "_rows"), KINDS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_member_can_neither_plan_nor_see_such_changes(
    robot: Robot, member: Robot, llm_team: Project, kind: str, change: dict[str, Any], _rows: object
) -> None:
    plan = planned(robot, kind, **change)
    assert member.send("POST", PATH, {"kind": kind, "change": change}).status_code in {403, 404}
    assert member.get(f"{PATH}/{plan['id']}").status_code == 404
    assert member.send("POST", f"{PATH}/{plan['id']}/apply").status_code == 404
    assert member.get(PATH).json()["plans"] == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("priority_cap", {**CAP, "project": "no-such"}),
        ("min_runtime", {"department": "no-such", "minutes": 1}),
        ("node_pool", {**POOL, "cluster": "no-such"}),
        ("scheduler", {"cluster": "no-such", "flavour": "kube"}),
        ("enforce_deserved", {"department": "no-such", "enforceDeserved": True}),
        ("defer_preemptors", {"cluster": "no-such", "deferPreemptors": True}),
        ("policy", {"workloadKind": "training", "policy": RULES, "project": "no-such"}),
        ("approval", {"department": "no-such", "required": True}),
    ],
)
def test_what_is_absent_is_404(robot: Robot, llm_team: Project, kind: str, change: dict[str, Any]) -> None:
    assert robot.send("POST", PATH, {"kind": kind, "change": change}).status_code == 404


def test_a_dry_run_of_every_write_answers_the_plan_that_posting_it_would(robot: Robot, llm_team: Project) -> None:
    project, pool = f"v1/org-unit/projects/{llm_team.pk}", llm_team.cluster.node_pools.get(name="h100")
    scheduler = {"flavour": "kube", "generation": Cluster.objects.get().generation}
    place = {"meta": {"scope": "department", "departmentId": str(llm_team.department_id), "name": "calm"}}
    quota = {"nodePool": {"id": str(pool.pk)}, "gpu": {"deserved": 2}}
    writes: list[tuple[str, str, object, str, dict[str, Any]]] = [
        ("PUT", f"{project}/priority-caps/high", {"gpuLimit": 2}, "priority_cap", CAP),
        ("PUT", f"{project}/time-limits/Train", {"minutes": 60}, "time_limit", TIME),
        ("PUT", f"{project}/min-runtime", {"minutes": 5}, "min_runtime", {"project": "llm-team", "minutes": 5}),
        ("PATCH", f"v1/node-pools/{pool.pk}", {"labelValue": "h200"}, "node_pool", POOL),
        (
            "PUT",
            f"v1/clusters/{llm_team.cluster_id}/scheduler",
            scheduler,
            "scheduler",
            {"cluster": "lab", "flavour": "kube"},
        ),
        (
            "PUT",
            f"v1/org-unit/departments/{llm_team.department_id}/enforce-deserved",
            {"enforceDeserved": True},
            "enforce_deserved",
            {"department": "research", "enforceDeserved": True},
        ),
        (
            "PUT",
            f"v1/clusters/{llm_team.cluster_id}/defer-preemptors",
            {"deferPreemptors": True},
            "defer_preemptors",
            {"cluster": "lab", "deferPreemptors": True},
        ),
        ("PUT", "v2/policy/trainings", {**place, "policy": RULES}, "policy", KINDS[4][1]),
        (
            "PATCH",
            f"{project}/resources",
            [quota],
            "quotas",
            {"quotas": [{"project": "llm-team", "nodePool": "h100", "gpu": {"deserved": 2}}]},
        ),
    ]
    for method, path, body, kind, change in writes:
        answer = robot.send(method, f"{path}?dryRun=true", body)
        assert answer.status_code == 200, (path, answer.content)
        found, posted = answer.json()["plan"], planned(robot, kind, **change)
        same = ("kind", "sentence", "settings", "objects", "workloads", "sums", "victims", "gpuHoursAtRisk")
        assert {name: found[name] for name in same} == {name: posted[name] for name in same}, path
    removal = robot.send("DELETE", f"v1/node-pools/{llm_team.cluster.node_pools.get(name='a100').pk}?dryRun=true")
    assert removal.json()["plan"]["title"] == "Delete node pool a100 of lab"
    assert (Plan.objects.count(), PriorityCap.objects.count(), Policy.objects.count()) == (len(writes), 0, 0)


def workload_pod(workload: Workload) -> Any:
    return ObservedPod.objects.filter(owner_id=str(workload.pk))
