"""Plans of quotas: what they show, what they refuse, and that they store nothing before they are applied."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.services import start_estimates
from workloads.plans.models import Plan, PlanState
from workloads.plans.selectors import plan_reclaims, visible_plans
from workloads.plans.services.plans import apply_plan, plan_change, plan_inverse
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db


def quota(name: str = "llm-team", pool: str = "h100", **values: Any) -> dict[str, Any]:
    return {"project": name, "pool": pool, "values": values, "reason": "Less work"}


def running(project: Project, name: str, **more: Any) -> Workload:
    """One GPU for two hours, the last checkpoint half an hour ago."""
    started = timezone.now() - timedelta(hours=2)
    saved = (timezone.now() - timedelta(minutes=30)).isoformat()
    spec = {**spec_of(job(name)).as_json(), "annotations": {"rung.dev/last-checkpoint-at": saved}}
    values = {"phase": Phase.RUNNING, "running_pods": 1, "started_at": started, "spec": spec}
    row: Workload = WorkloadFactory(project=project, name=name, allocated_gpu_milli=GPU, **{**values, **more})
    ObservedPodFactory(workload=row)
    return row


def test_a_plan_shows_the_effect_of_a_quota_and_stores_nothing_else(
    llm_team: Project, as_admin: Actor, cluster: Cluster
) -> None:
    for number in range(3):
        running(llm_team, f"run-{number}")
    WorkloadFactory(project=llm_team, name="big", preemptibility="non-preemptible", gpu_milli=4 * GPU)
    WorkloadFactory(project=llm_team, name="small", preemptibility="non-preemptible", gpu_milli=GPU)
    generation, versions = cluster.generation, ProjectQuota.history.count()
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=GPU), actor=as_admin)
    workloads = plan.effect["workloads"]
    assert workloads["becomes_reclaimable"]["count"] == 2
    assert [each["name"] for each in workloads["no_longer_fit"]["examples"]] == ["big"]
    assert (workloads["running"]["count"], workloads["waiting"]["count"]) == (3, 2)
    assert plan.effect["gpu_hours_at_risk"] == 1.0
    assert plan.effect["quotas"][0]["over_quota"] == {"before": 0, "after": 2}
    assert plan.effect["quotas"][0]["fields"] == [["gpu_deserved", "4 GPUs", "1 GPU"]]
    assert [(c["mark"], c["kind"]) for c in plan.effect["objects"][0]["changes"]] == [("~", "Queue")]
    assert plan.effect["sentence"] == (
        "Project llm-team in h100: GPUs deserved 4 → 1. 1 object changed on 1 cluster; "
        "2 running workloads become reclaimable (1 GPU-hours at risk); 1 waiting workload no longer fits."
    )
    assert any("2 GPUs can be reclaimed from preemptible workloads" in warning for warning in plan.effect["warnings"])
    assert ProjectQuota.objects.get().gpu_deserved == 4 * GPU
    assert ProjectQuota.history.count() == versions
    assert list(AuditRecord.objects.values_list("action", flat=True)) == ["plan.create"]
    cluster.refresh_from_db()
    assert cluster.generation == generation


def test_sums_are_compared_with_the_department_and_the_physical_gpus(
    llm_team: Project, vision_team: Project, as_admin: Actor
) -> None:
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=12 * GPU), actor=as_admin)
    sums = {each["of"]: (each["before"], each["after"], each["most"]) for each in plan.effect["sums"]}
    assert sums == {"projects of research": (4, 12, 8), "all projects": (8, 16, 16), "all departments": (16, 16, 16)}
    assert any("projects of research deserve 12 GPUs" in warning for warning in plan.effect["warnings"])


def test_an_applied_plan_sets_the_quota_once_and_its_rollback_restores_the_row(
    llm_team: Project, as_admin: Actor
) -> None:
    before = ProjectQuota.objects.values().get()
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=2 * GPU, rank="high"), actor=as_admin)
    applied = apply_plan(plan=plan, actor=as_admin)
    assert (applied.state, ProjectQuota.objects.get().gpu_deserved) == (PlanState.APPLIED, 2 * GPU)
    with pytest.raises(Conflict) as again:
        apply_plan(plan=plan, actor=as_admin)
    assert again.value.code == "plan_closed"
    back = plan_inverse(plan=applied, actor=as_admin)
    assert (back.title, back.rolls_back) == ("Roll back: Quota of llm-team in h100", applied)
    assert ProjectQuota.objects.get().gpu_deserved == 2 * GPU
    apply_plan(plan=back, actor=as_admin)
    after = ProjectQuota.objects.values().get()
    assert {**after, "updated_at": None} == {**before, "updated_at": None}


def test_the_rollback_of_a_first_quota_removes_it(llm_team: Project, a100: NodePool, as_admin: Actor) -> None:
    plan = plan_change(kind="project_quota", change=quota(pool="a100", gpu_deserved=GPU), actor=as_admin)
    applied = apply_plan(plan=plan, actor=as_admin)
    assert ProjectQuota.objects.filter(node_pool=a100).exists()
    apply_plan(plan=plan_inverse(plan=applied, actor=as_admin), actor=as_admin)
    assert not ProjectQuota.objects.filter(node_pool=a100).exists()


def test_a_rollback_warns_of_what_changed_since(llm_team: Project, as_admin: Actor) -> None:
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=2 * GPU), actor=as_admin)
    applied = apply_plan(plan=plan, actor=as_admin)
    ProjectQuota.objects.update(gpu_deserved=3 * GPU)
    back = plan_inverse(plan=applied, actor=as_admin)
    assert "Changed since this plan was applied: " in back.effect["warnings"][0]
    assert "2 GPUs deserved" in back.effect["warnings"][0]


def test_a_plan_whose_basis_moved_is_refused_and_says_what_moved(llm_team: Project, as_admin: Actor) -> None:
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=2 * GPU), actor=as_admin)
    DepartmentQuota.objects.update(gpu_deserved=6 * GPU)
    with pytest.raises(Conflict) as refusal:
        apply_plan(plan=plan, actor=as_admin)
    assert refusal.value.code == "plan_moved"
    assert "quota of department research in h100: 8 GPUs deserved" in refusal.value.message
    assert ProjectQuota.objects.get().gpu_deserved == 4 * GPU


def test_an_expired_plan_is_refused(llm_team: Project, as_admin: Actor) -> None:
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=2 * GPU), actor=as_admin)
    Plan.objects.update(expires_at=timezone.now())
    with pytest.raises(Conflict) as refusal:
        apply_plan(plan=plan, actor=as_admin)
    assert refusal.value.code == "plan_expired"


def test_what_setting_the_quota_would_refuse_is_refused_with_its_pointer(llm_team: Project, as_admin: Actor) -> None:
    fixed = running(llm_team, "fixed", preemptibility="non-preemptible", gpu_milli=GPU)
    assert fixed.preemptibility == "non-preemptible"
    entries = [{"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 0}}]
    with pytest.raises(Conflict) as refusal:
        plan_change(kind="quotas", change={"quotas": entries, "reason": ""}, actor=as_admin)
    problem = refusal.value.problems[0]
    assert (problem.pointer, problem.code) == ("/quotas/0/gpu/deserved", "below_non_preemptible_use")
    assert problem.numbers["held"] == "1 GPU"
    assert not Plan.objects.exists()
    assert [row.result for row in AuditRecord.objects.all()] == ["Denied"]


def test_several_quotas_are_one_plan_in_an_order_that_keeps_enforced_sums(
    research: Department, llm_team: Project, h100: NodePool, as_admin: Actor
) -> None:
    other = ProjectFactory(department=research, name="nlp-team")
    Department.objects.filter(pk=research.pk).update(enforce_deserved=True)
    entries = [
        {"project": "nlp-team", "pool": "h100", "values": {"gpu_deserved": 10 * GPU}},
        {"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 2 * GPU}},
        {"department": "research", "pool": "h100", "values": {"gpu_deserved": 12 * GPU}},
    ]
    plan = plan_change(kind="quotas", change={"quotas": entries, "reason": "Shift"}, actor=as_admin)
    assert (plan.title, plan.effect["warnings"]) == ("Change 3 quotas", [])
    sums = {each["of"]: (each["before"], each["after"]) for each in plan.effect["sums"]}
    assert sums["projects of research"] == (4, 12)
    applied = apply_plan(plan=plan, actor=as_admin)
    assert ProjectQuota.objects.get(project=other).gpu_deserved == 10 * GPU
    apply_plan(plan=plan_inverse(plan=applied, actor=as_admin), actor=as_admin)
    assert not ProjectQuota.objects.filter(project=other).exists()
    assert DepartmentQuota.objects.get(department=research, node_pool=h100).gpu_deserved == 8 * GPU


def test_a_warning_names_the_project_or_department_that_it_is_about(
    llm_team: Project, vision_team: Project, as_admin: Actor
) -> None:
    Cluster.objects.update(flavour="kai")
    for project in (llm_team, vision_team):
        running(project, f"{project.name}-1")
        running(project, f"{project.name}-2")
    one = {"gpu_deserved": GPU, "gpu_limit": GPU}
    above = {"department": "research", "pool": "h100", "values": {"gpu_deserved": GPU}}
    entries = [quota(**one), quota("vision-team", **one), above]
    warnings = plan_change(kind="quotas", change={"quotas": entries, "reason": ""}, actor=as_admin).effect["warnings"]
    in_use = "2 GPUs are in use. With a limit of 1 GPU nothing is evicted, but nothing else starts."
    assert {f"{name} in h100: {in_use}" for name in ("llm-team", "vision-team")} <= set(warnings)
    over = "research: In h100 the use of 2 GPUs exceeds the deserved 1 GPU by 1 GPU."
    assert any(each.startswith(over) for each in warnings)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        pytest.param({"quotas": []}, "/quotas", "required", id="no quota"),
        pytest.param({"quotas": [quota(), quota()]}, "/quotas/1", "repeated", id="one quota twice"),
        pytest.param({"quotas": [quota(pool="b200")]}, "/quotas/0/pool", "unknown_node_pool", id="unknown pool"),
        pytest.param(
            {"quotas": [quota(gpu_deserved=-1)]}, "/quotas/0/gpu/deserved", "out_of_range", id="a negative amount"
        ),
    ],
)
def test_a_malformed_change_is_refused(
    change: dict[str, Any], pointer: str, code: str, llm_team: Project, as_admin: Actor
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        plan_change(kind="quotas", change=change, actor=as_admin)
    assert (refusal.value.problems[0].pointer, refusal.value.problems[0].code) == (pointer, code)


def test_plans_of_other_scopes_are_absent(
    llm_team: Project, vision_team: Project, as_admin: Actor, as_alice: Actor, as_charlie: Actor
) -> None:
    own = plan_change(kind="project_quota", change=quota(gpu_deserved=5 * GPU), actor=as_admin)
    both = [quota(), quota("vision-team")]
    shared = plan_change(kind="quotas", change={"quotas": both, "reason": ""}, actor=as_admin)
    assert set(visible_plans(as_admin)) == {own, shared}
    assert list(visible_plans(as_charlie)) == []
    with pytest.raises(NotFound):
        plan_change(kind="project_quota", change=quota(pool="b200"), actor=as_charlie)


def test_a_plan_of_a_deleted_project_is_for_platform_admins_and_is_not_applied(
    llm_team: Project, as_admin: Actor, as_alice: Actor
) -> None:
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=5 * GPU), actor=as_admin)
    ProjectQuota.objects.all().delete()
    llm_team.delete()
    assert list(visible_plans(as_admin)) == [plan]
    assert list(visible_plans(as_alice)) == []
    with pytest.raises(Conflict) as refusal:
        apply_plan(plan=plan, actor=as_admin)
    assert refusal.value.code == "plan_moved"


def test_a_plan_says_what_it_assumes_of_a_scheduler_whose_configuration_is_unknown(
    llm_team: Project, as_admin: Actor
) -> None:
    Cluster.objects.update(flavour="volcano")
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=GPU), actor=as_admin)
    assert "lab: Assumption: Volcano neither preempts nor reclaims" in " ".join(plan.effect["warnings"])
    Cluster.objects.update(configured={"actions": ["allocate", "reclaim"], "plugins": {}})
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=GPU), actor=as_admin)
    assert "Assumption" not in " ".join(plan.effect["warnings"])


def test_a_plan_shows_which_reclaims_it_changes_by_the_names_that_its_reader_may_see(
    llm_team: Project, research: Department, h100: NodePool, as_admin: Actor, as_alice: Actor
) -> None:
    Cluster.objects.update(flavour="kai")
    other = ProjectFactory(department=research, name="nlp-team")
    ProjectQuotaFactory(project=other, node_pool=h100, gpu_deserved=2 * GPU)
    for number in range(4):
        running(llm_team, f"run-{number}")
    plan = plan_change(kind="project_quota", change=quota(gpu_deserved=GPU), actor=as_admin)
    (row,) = plan_reclaims(plan, as_admin)
    expected = {"taker": "nlp-team", "giver": "llm-team", "before": 0, "after": 2, "mark": "+"}
    assert {name: row[name] for name in expected} == expected
    assert "; 1 reclaim relation is new." in plan.effect["sentence"]
    (row,) = plan_reclaims(plan, as_alice)
    assert (row["taker"], row["giver"]) == ("another project", "llm-team")


class TestStarts:
    """The waiting workloads that the model lets start with the planned quotas, and not with those of now."""

    @pytest.fixture
    def small(self, db: None) -> tuple[Lab, Workload]:
        """The limit of the department is in use; of those that wait one would fit two GPUs more, the other not."""
        lab = Lab()
        project = lab.project("llm-team", deserved=2)
        DepartmentQuota.objects.update(gpu_deserved=4 * GPU, gpu_limit=4 * GPU)
        lab.submit(project, "first", gpus=4)
        lab.settle(3)
        small = lab.submit(project, "small", gpus=2)
        lab.submit(project, "large", gpus=4)
        lab.settle(4)
        return lab, small

    def test_a_workload_that_a_higher_limit_lets_start_is_named_before_it_starts(
        self, small: tuple[Lab, Workload]
    ) -> None:
        lab, waiting = small
        plan = self._limit(6)
        named = {"id": str(waiting.pk), "name": "small", "project": "llm-team", "gpus": 2, "evicts": False}
        assert plan.effect["starts"] == {"estimated": True, "tried": 2, "more": False, "workloads": [named]}
        assert "1 waiting workload could start" in plan.effect["sentence"]
        assert fresh(waiting).phase == Phase.PENDING
        apply_plan(plan=plan, actor=SYSTEM)
        lab.settle(4)
        assert fresh(waiting).phase == Phase.RUNNING

    def test_only_so_many_are_tried_and_the_plan_says_so(
        self, small: tuple[Lab, Workload], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(start_estimates, "MOST_TRIED", 1)
        starts = self._limit(6).effect["starts"]
        assert (starts["tried"], starts["more"]) == (1, True)

    def test_what_the_time_does_not_suffice_for_is_no_estimate(
        self, small: tuple[Lab, Workload], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(start_estimates, "TRIAL_SECONDS", 0.0)
        none = {"estimated": False, "tried": 0, "more": False, "workloads": []}
        assert self._limit(6).effect["starts"] == none

    def test_where_amounts_are_only_lowered_nothing_is_tried(self, small: tuple[Lab, Workload]) -> None:
        plan = plan_change(kind="project_quota", change=quota(gpu_deserved=GPU), actor=SYSTEM)
        assert (plan.effect["starts"]["estimated"], plan.effect["starts"]["tried"]) == (True, 0)

    def test_without_an_observation_there_is_no_estimate(self, llm_team: Project) -> None:
        plan = plan_change(kind="project_quota", change=quota(gpu_deserved=5 * GPU), actor=SYSTEM)
        assert plan.effect["starts"]["estimated"] is False

    def _limit(self, gpus: int) -> Plan:
        change = {"department": "research", "pool": "h100", "values": {"gpu_limit": gpus * GPU}, "reason": "More"}
        return plan_change(kind="department_quota", change=change, actor=SYSTEM)
