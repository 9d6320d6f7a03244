"""Changing the dictionary: what is refused, what a plan shows, and what applying it does."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster
from clusters.sync.selectors import desired_state
from clusters.watch.models import ObservedPod
from clusters.watch.services.observations import Observation
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, RungError, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.organisation.models import Project
from tests.clusters.flavours.test_volcano_cdp import FIRST, SECOND
from tests.clusters.flavours.test_volcano_cdp import facts as volcano_facts
from tests.factories.clusters import ClusterFactory, NodePoolFactory
from tests.factories.tenants import ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, job, spec_of
from workloads.dictionary.models import Priority, WorkloadType
from workloads.dictionary.services.changes import (
    add_priority,
    change_priority_entry,
    rename_priority,
    retire_priority,
    update_type,
)
from workloads.dictionary.services.plans import plan_preset, plan_priority_change, plan_type_change
from workloads.lifecycle.services.observe import on_observation
from workloads.plans.models import Plan, PlanState
from workloads.plans.services.plans import apply_plan, discard_plan, plan_inverse
from workloads.state.models import Phase, Workload
from workloads.submission.services import submit


def change(name: str, **values: object) -> dict[str, object]:
    """A change of one entry."""
    return {"op": "change", "name": name, **values}


@pytest.mark.parametrize(
    ("entry", "pointer", "code"),
    [
        pytest.param({"name": "huge", "value": 1000000001}, "/value", "out_of_range", id="too high"),
        pytest.param({"name": "tiny", "value": -2147483649}, "/value", "out_of_range", id="too low"),
        pytest.param({"name": "twin", "value": 125}, "/value", "value_taken", id="a value that is taken"),
        pytest.param({"name": "high", "value": 130}, "/name", "name_taken", id="a name that is taken"),
        pytest.param({"name": "system-mine", "value": 130}, "/name", "system_prefix", id="the cluster's own prefix"),
        pytest.param({"name": "High", "value": 130}, "/name", "bad_name", id="no name of an object"),
        pytest.param(
            {"name": "odd", "value": 130, "preemption_policy": "PreemptHigherPriority"},
            "/preemptionPolicy",
            "policy_unknown",
            id="a policy that does not exist",
        ),
    ],
)
def test_t40_an_entry_that_no_cluster_would_take_is_refused(
    entry: dict[str, object], pointer: str, code: str, as_admin: Actor
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        add_priority(**entry, actor=as_admin)  # type: ignore[arg-type]  # a table of keyword arguments
    assert (refusal.value.problems[0].pointer, refusal.value.problems[0].code) == (pointer, code)
    assert Priority.objects.count() == 7
    assert [row.result for row in AuditRecord.objects.all()] == ["Denied"]


def test_t40_no_entry_is_ever_the_global_default(as_admin: Actor, cluster: Cluster) -> None:
    add_priority(name="extra", value=7, actor=as_admin)
    for flavour in FLAVOURS.values():
        objects = flavour.objects_for(desired_state(cluster))
        classes = [each for each in objects if each["kind"] == "PriorityClass"]
        assert len(classes) == 8
        assert not any(each["globalDefault"] for each in classes)


def test_t40_an_entry_in_use_is_not_retired_and_the_users_are_listed(llm_team: Project, as_admin: Actor) -> None:
    WorkloadFactory(project=llm_team, name="train", priority=Priority.objects.get(name="medium"))
    with pytest.raises(Conflict) as by_workload:
        retire_priority(name="medium", actor=as_admin)
    with pytest.raises(Conflict) as by_types:
        retire_priority(name="very-high", actor=as_admin)
    assert by_workload.value.problems[0].allowed == ("workload llm-team/train",)
    assert "category Deploy" in by_types.value.message


def test_a_retired_entry_is_no_longer_accepted_nor_synced(llm_team: Project, as_admin: Actor, cluster: Cluster) -> None:
    retire_priority(name="medium-high", actor=as_admin)
    assert "medium-high" not in {each.name for each in desired_state(cluster).priorities}
    with pytest.raises(ValidationFailed):
        submit(spec=spec_of(job(gpus=0), priority="medium-high"), project=llm_team, actor=as_admin)
    add_priority(name="medium-high", value=91, actor=as_admin)
    assert "medium-high" in {each.name for each in desired_state(cluster).priorities}


def test_a_finished_workload_does_not_hold_an_entry(llm_team: Project, as_admin: Actor) -> None:
    WorkloadFactory(project=llm_team, priority=Priority.objects.get(name="medium"), phase=Phase.COMPLETED)
    retire_priority(name="medium", actor=as_admin)
    assert Priority.objects.get(name="medium").retired_at is not None


def test_a_rename_is_a_new_class_that_leaves_its_old_name_as_an_alias(
    llm_team: Project, as_admin: Actor, cluster: Cluster
) -> None:
    old = WorkloadFactory(project=llm_team)
    rename_priority(name="low", new_name="training", actor=as_admin)
    assert WorkloadType.objects.get(name="PyTorchJob").priority == Priority.objects.get(name="training")
    alias = Priority.objects.get(name="low")
    assert (alias.alias_of_id, alias.value) == (Priority.objects.get(name="training").pk, 40)
    old.refresh_from_db()
    assert old.priority == alias
    assert {"low", "training"} <= {each.name for each in desired_state(cluster).priorities}
    by_old_name = submit(spec=spec_of(job("by-old-name", gpus=0), priority="low"), project=llm_team, actor=as_admin)
    assert by_old_name.priority == alias


def test_an_alias_follows_the_value_of_what_it_stands_for(as_admin: Actor) -> None:
    apply_plan(plan=plan_preset(preset="runai-legacy", actor=as_admin), actor=as_admin)
    assert Priority.objects.get(name="inference").alias_of == Priority.objects.get(name="high")
    change_priority_entry(name="high", value=126, actor=as_admin)
    assert Priority.objects.get(name="inference").value == 126


def test_a_plan_shows_objects_per_cluster_and_victim_relations(as_admin: Actor, cluster: Cluster) -> None:
    ClusterFactory(name="plain", flavour="kube")
    plan = plan_priority_change(change=change("medium", value=130), actor=as_admin)
    marks = {each["cluster"]: [(c["mark"], c["name"]) for c in each["changes"]] for each in plan.effect["objects"]}
    assert marks == {"lab": [("±", "medium")], "plain": [("±", "medium")]}
    assert ["medium", "high"] in plan.effect["victims"]["new"]
    assert ["high", "medium"] in plan.effect["victims"]["lost"]
    assert plan.effect["sentence"].startswith("2 objects replaced on 2 clusters")
    assert Priority.objects.get(name="medium").value == 80


def test_a_value_across_the_threshold_turns_what_waits_and_leaves_what_runs(llm_team: Project, as_admin: Actor) -> None:
    medium = Priority.objects.get(name="medium")
    common = {"project": llm_team, "priority": medium, "priority_source": "explicit"}
    waiting = WorkloadFactory(**common, preemptibility_source="threshold")
    too_big = WorkloadFactory(
        **common,
        preemptibility_source="threshold",
        spec=spec_of(job("big", gpus=6)).as_json(),
        name="big",
        gpu_milli=6000,
    )
    chosen = WorkloadFactory(**common, preemptibility_source="explicit")
    running = WorkloadFactory(**common, preemptibility_source="threshold", phase=Phase.RUNNING, running_pods=1)
    plan = plan_priority_change(change=change("medium", value=100), actor=as_admin)
    workloads = plan.effect["workloads"]
    assert (workloads["take_new_value"]["count"], workloads["flip"]["count"]) == (1, 2)
    assert [each["name"] for each in workloads["no_longer_fit"]["examples"]] == ["big"]
    assert "2 queued become non-preemptible; 1 of them no longer fits" in plan.effect["sentence"]
    apply_plan(plan=plan, actor=as_admin)
    rows = [waiting, too_big, chosen, running]
    for row in rows:
        row.refresh_from_db()
    assert [row.preemptibility for row in rows] == ["non-preemptible", "non-preemptible", "preemptible", "preemptible"]
    assert [row.priority_value for row in rows] == [100] * 4


def test_a_plan_is_refused_when_anything_moved_and_says_what(as_admin: Actor) -> None:
    plan = plan_priority_change(change=change("medium", value=81), actor=as_admin)
    change_priority_entry(name="low", value=41, actor=as_admin)
    with pytest.raises(RungError) as refusal:
        apply_plan(plan=plan, actor=as_admin)
    assert isinstance(refusal.value, Conflict)
    assert refusal.value.code == "plan_moved"
    assert "priority low: 40" in refusal.value.message
    assert Priority.objects.get(name="medium").value == 80


def test_an_expired_or_discarded_plan_is_not_applied(as_admin: Actor) -> None:
    old = plan_priority_change(change=change("medium", value=81), actor=as_admin)
    Plan.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    laid_aside = discard_plan(
        plan=plan_priority_change(change=change("medium", value=82), actor=as_admin), actor=as_admin
    )
    codes = []
    for plan in (old, laid_aside):
        with pytest.raises(Conflict) as refusal:
            apply_plan(plan=plan, actor=as_admin)
        codes.append(refusal.value.code)
    assert codes == ["plan_expired", "plan_closed"]


def test_a_plan_is_applied_once_and_moves_every_clusters_generation(as_admin: Actor, cluster: Cluster) -> None:
    before = cluster.generation
    plan = plan_priority_change(change=change("medium", value=81), actor=as_admin)
    apply_plan(plan=plan, actor=as_admin)
    with pytest.raises(Conflict):
        apply_plan(plan=plan, actor=as_admin)
    cluster.refresh_from_db()
    assert cluster.generation == before + 1
    assert Plan.objects.get(pk=plan.pk).state == PlanState.APPLIED


def rolled_back(plan: Plan, actor: Actor) -> None:
    """Apply the plan, then the plan of its inverse."""
    apply_plan(plan=plan_inverse(plan=apply_plan(plan=plan, actor=actor), actor=actor), actor=actor)


def dictionary() -> dict[str, tuple[object, ...]]:
    """Every entry that may be named."""
    rows = Priority.objects.filter(retired_at=None).values_list("name", "value", "preemption_policy", "alias_of__name")
    return {name: tuple(rest) for name, *rest in rows}


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"op": "add", "name": "urgent", "value": 200}, id="add"),
        pytest.param(change("medium", value=85, preemption_policy="Never"), id="change"),
        pytest.param({"op": "rename", "name": "low", "new_name": "training"}, id="rename"),
        pytest.param({"op": "retire", "name": "medium-high"}, id="retire"),
    ],
)
def test_a_rollback_restores_entries_and_type_defaults(wanted: dict[str, object], as_admin: Actor) -> None:
    entries, types = dictionary(), dict(WorkloadType.objects.values_list("name", "priority__name"))
    rolled_back(plan_priority_change(change=wanted, actor=as_admin), as_admin)
    assert dictionary() == entries
    assert dict(WorkloadType.objects.values_list("name", "priority__name")) == types


def test_a_rollback_of_a_preset_and_of_a_disabled_type_restores_both(as_admin: Actor) -> None:
    entries = dictionary()
    rolled_back(plan_preset(preset="three-tiers", actor=as_admin), as_admin)
    job = WorkloadType.objects.get(name="Job")
    rolled_back(plan_type_change(type=job, change={"op": "withdraw"}, actor=as_admin), as_admin)
    assert dictionary() == entries
    assert WorkloadType.objects.get(name="Job").withdrawn_at is None


def test_a_rollback_is_refused_while_a_workload_uses_the_entry_that_it_would_retire(
    llm_team: Project, as_admin: Actor
) -> None:
    plan = plan_priority_change(change={"op": "add", "name": "urgent", "value": 200}, actor=as_admin)
    apply_plan(plan=plan, actor=as_admin)
    WorkloadFactory(project=llm_team, name="now", priority=Priority.objects.get(name="urgent"))
    with pytest.raises(Conflict) as refusal:
        plan_inverse(plan=Plan.objects.get(), actor=as_admin)
    assert refusal.value.problems[0].allowed == ("workload llm-team/now",)


def test_only_platform_admins_plan(as_alice: Actor) -> None:
    with pytest.raises(Forbidden):
        plan_priority_change(change=change("medium", value=81), actor=as_alice)
    assert not Plan.objects.exists()


def test_another_type_default_acts_at_once_and_keeps_the_plan_it_would_have_shown(
    llm_team: Project, as_admin: Actor
) -> None:
    old = WorkloadFactory(project=llm_team)
    WorkloadFactory(project=llm_team, name="ended", phase=Phase.COMPLETED)
    row = update_type(workload_type=WorkloadType.objects.get(name="PyTorchJob"), priority="medium", actor=as_admin)
    assert (row.priority and row.priority.name, row.preemptibility, row.updated_by) == (
        "medium",
        "preemptible",
        "admin",
    )
    plan = Plan.objects.get()
    assert (plan.state, plan.kind) == (PlanState.APPLIED, "type")
    assert plan.effect["types"][0]["used_by"] == 1
    assert AuditRecord.objects.get(action="workload_type.update").detail["plan"] == str(plan.pk)
    old.refresh_from_db()
    assert old.priority.name == "low"


@pytest.mark.parametrize(
    ("name", "given", "pointer", "code"),
    [
        pytest.param("PyTorchJob", {"priority": "urgent"}, "/priority", "priority_unknown", id="unknown priority"),
        pytest.param("PyTorchJob", {"category": "Play"}, "/category", "category_unknown", id="unknown category"),
        pytest.param(
            "PyTorchJob", {"preemptibility": "maybe"}, "/preemptibility", "preemptibility_unknown", id="unknown word"
        ),
        pytest.param("NVCF", {"priority": "low"}, "", "priority_fixed", id="a fixed type"),
    ],
)
def test_a_type_default_that_cannot_be_is_refused_at_its_field(
    name: str, given: dict[str, str], pointer: str, code: str, as_admin: Actor
) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        plan_type_change(type=WorkloadType.objects.get(name=name), change=given, actor=as_admin)
    assert (refusal.value.problems[0].pointer, refusal.value.problems[0].code) == (pointer, code)


def test_a_default_against_the_threshold_is_warned_about(as_admin: Actor) -> None:
    type_ = WorkloadType.objects.get(name="PyTorchJob")
    plan = plan_type_change(type=type_, change={"preemptibility": "non-preemptible"}, actor=as_admin)
    assert "choosing low explicitly makes it preemptible" in plan.effect["warnings"][0]


def test_the_four_tiers_ask_whether_each_type_may_be_evicted(as_admin: Actor) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        plan_preset(preset="four-tiers", actor=as_admin)
    requested = {problem.pointer for problem in refusal.value.problems}
    assert {"/preemptibilities/Train", "/preemptibilities/Build"} <= requested
    answers = {"Train": "preemptible", "Deploy": "non-preemptible", "Build": "preemptible", "CronJob": "preemptible"}
    plan = plan_preset(preset="four-tiers", actor=as_admin, preemptibilities=answers)
    apply_plan(plan=plan, actor=as_admin)
    rows = WorkloadType.objects.filter(name__in=["PyTorchJob", "Job", "Notebook", "Deployment", "CronJob", "NVCF"])
    assert {row.name: (row.priority and row.priority.name, row.preemptibility) for row in rows} == {
        "PyTorchJob": ("gpu-training", "preemptible"),
        "Job": ("gpu-batch", "preemptible"),
        "CronJob": ("gpu-batch", "preemptible"),
        "Notebook": ("gpu-interactive", "preemptible"),
        "Deployment": ("gpu-serving", "non-preemptible"),
        "NVCF": ("very-high", "non-preemptible"),
    }
    assert Priority.objects.get(name="gpu-interactive").preemption_policy == "Never"


def test_the_three_tiers_become_aliases_beside_the_seven_priorities(as_admin: Actor) -> None:
    apply_plan(plan=plan_preset(preset="three-tiers", actor=as_admin), actor=as_admin)
    aliases = Priority.objects.filter(alias_of__isnull=False).values_list("name", "alias_of__name")
    assert dict(aliases) == {"critical": "high", "normal": "medium", "scavenger": "very-low"}


def test_loading_what_is_there_changes_nothing(as_admin: Actor, cluster: Cluster) -> None:
    plan = plan_preset(preset="runai", actor=as_admin)
    assert plan.effect["sentence"] == "No objects change."
    with pytest.raises(ValidationFailed):
        plan_preset(preset="nonsense", actor=as_admin)


def test_a_changed_value_says_that_new_pods_only_get_it(llm_team: Project, as_admin: Actor) -> None:
    Cluster.objects.update(flavour="kube")
    running = WorkloadFactory(project=llm_team, phase=Phase.RUNNING, running_pods=1)
    ObservedPodFactory(workload=running)
    plan = plan_priority_change(change=change("low", value=41), actor=as_admin)
    assert "1 running workload keeps the old value" in plan.effect["sentence"]
    assert any("replaced" in warning for warning in plan.effect["warnings"])


def test_running_workloads_keep_the_preemptibility_that_the_threshold_gave_them(
    llm_team: Project, as_admin: Actor
) -> None:
    high = {"project": llm_team, "priority": Priority.objects.get(name="high"), "priority_value": 125}
    fixed = {**high, "preemptibility": "non-preemptible", "phase": Phase.RUNNING, "running_pods": 1}
    stays = WorkloadFactory(**fixed, name="stays", preemptibility_source="threshold")
    WorkloadFactory(**fixed, name="chosen", preemptibility_source="explicit")
    waits = WorkloadFactory(**{**fixed, "phase": Phase.PENDING, "running_pods": 0}, preemptibility_source="threshold")
    plan = plan_priority_change(change=change("high", value=95), actor=as_admin)
    group = plan.effect["workloads"]["keep_preemptibility"]
    assert (group["count"], [each["name"] for each in group["examples"]]) == (1, ["stays"])
    assert "1 running workload keeps the old preemptibility" in plan.effect["sentence"]
    apply_plan(plan=plan, actor=as_admin)
    stays.refresh_from_db()
    waits.refresh_from_db()
    assert (stays.preemptibility, waits.preemptibility) == ("non-preemptible", "preemptible")


class TestWhoKeepsTheOldNumber:
    """Pods copy it when they are created; what a scheduler makes of that differs."""

    @pytest.fixture
    def waiting(self, llm_team: Project) -> Workload:
        """One with a pod that waits, one without a pod, and one that has chosen its preemptibility."""
        common = {"project": llm_team, "preemptibility_source": "explicit"}
        row: Workload = WorkloadFactory(**common, name="waits", applied_generation=1)
        ObservedPodFactory(workload=row, phase="Pending", node_name="", started_at=None)
        WorkloadFactory(**common, name="not-sent", applied_generation=0)
        return row

    def _names(self, plan: Plan, group: str) -> list[str]:
        return [each["name"] for each in plan.effect["workloads"][group]["examples"]]

    def test_a_pod_that_waits_keeps_it_too(self, waiting: Workload, as_admin: Actor) -> None:
        Cluster.objects.update(flavour="kube")
        plan = plan_priority_change(change=change("low", value=41), actor=as_admin)
        assert self._names(plan, "wait_with_old_value") == ["waits"]
        assert "1 waiting workload keeps the old value until recreated" in plan.effect["sentence"]

    def test_a_job_that_kueue_queues_keeps_it_before_it_has_a_pod(self, waiting: Workload, as_admin: Actor) -> None:
        Cluster.objects.update(flavour="kueue")
        ObservedPod.objects.all().delete()
        plan = plan_priority_change(change=change("low", value=41), actor=as_admin)
        assert self._names(plan, "wait_with_old_value") == ["waits"]

    def test_kai_goes_by_the_present_value_of_the_class(
        self, llm_team: Project, waiting: Workload, as_admin: Actor
    ) -> None:
        running = WorkloadFactory(project=llm_team, name="runs", phase=Phase.RUNNING, running_pods=1)
        ObservedPodFactory(workload=running)
        plan = plan_priority_change(change=change("low", value=41), actor=as_admin)
        assert sorted(self._names(plan, "take_new_value")) == ["runs", "waits"]
        assert self._names(plan, "keep_old_value") == self._names(plan, "wait_with_old_value") == []
        assert "2 workloads take the new value immediately" in plan.effect["sentence"]

    @pytest.mark.parametrize(("flavour", "waits"), [("kai", 41), ("kube", 40), ("kueue", 40)])
    def test_a_workload_shows_the_value_that_its_scheduler_counts(
        self, flavour: str, waits: int, waiting: Workload, as_admin: Actor
    ) -> None:
        Cluster.objects.update(flavour=flavour)
        plan = plan_priority_change(change=change("low", value=41), actor=as_admin)
        apply_plan(plan=plan, actor=as_admin)
        assert dict(Workload.objects.values_list("name", "priority_value")) == {"waits": waits, "not-sent": 41}

    def test_recreated_pods_bring_the_new_value(self, waiting: Workload, cluster: Cluster, as_admin: Actor) -> None:
        Cluster.objects.update(flavour="kube")
        change_priority_entry(name="low", value=41, actor=as_admin)
        old = ObservedPod.objects.get()
        new = ObservedPodFactory(workload=waiting, priority=41)
        for pods, value in (([new], 40), ([old, new], 41)):
            on_observation(Cluster.objects.get(pk=cluster.pk), Observation(at=timezone.now(), pods=tuple(pods)))
            assert Workload.objects.get(pk=waiting.pk).priority_value == value
            ObservedPod.objects.filter(pk=old.pk).update(gone_at=timezone.now())

    def test_a_value_that_is_rolled_back_is_shown_again(self, waiting: Workload, as_admin: Actor) -> None:
        rolled_back(plan_priority_change(change=change("low", value=41), actor=as_admin), as_admin)
        assert set(Workload.objects.values_list("priority_value", flat=True)) == {40}

    def test_what_turns_with_the_threshold_is_recreated_and_keeps_nothing(
        self, llm_team: Project, as_admin: Actor
    ) -> None:
        Cluster.objects.update(flavour="kube")
        row = WorkloadFactory(project=llm_team, preemptibility_source="threshold", applied_generation=1)
        ObservedPodFactory(workload=row, phase="Pending", node_name="", started_at=None)
        plan = plan_priority_change(change=change("low", value=110), actor=as_admin)
        assert plan.effect["workloads"]["flip"]["count"] == 1
        assert self._names(plan, "wait_with_old_value") == []


@pytest.mark.parametrize(
    ("flavour", "reach", "foreign"),
    [
        pytest.param(
            "kube", "in the whole cluster, in any project, including non-preemptible workloads", True, id="kube"
        ),
        pytest.param(
            "kube-gangs", "in the whole cluster, in any project, including non-preemptible workloads", True, id="gangs"
        ),
        pytest.param("kai", "within one queue, preemptible workloads only", False, id="kai"),
        pytest.param("kueue", "within one queue, including non-preemptible workloads", False, id="kueue"),
        pytest.param("volcano", "within one queue, preemptible workloads only", False, id="volcano"),
    ],
)
def test_how_far_a_priority_evicts_is_said_for_each_clusters_scheduler(
    flavour: str, reach: str, foreign: bool, as_admin: Actor, cluster: Cluster
) -> None:
    configured = volcano_facts(FIRST, SECOND) if flavour == "volcano" else {}
    Cluster.objects.update(flavour=flavour, configured=configured)
    plan = plan_priority_change(change=change("medium", value=130), actor=as_admin)
    (scope,) = plan.effect["victims"]["scopes"]
    assert [each["name"] for each in scope["clusters"]] == ["lab"]
    assert (scope["reach"], bool(scope["foreign"])) == (reach, foreign)
    assert ["medium", "high"] in scope["new"]
    assert ["high", "medium"] in scope["lost"]


def test_a_scheduler_without_the_action_preempt_gains_and_loses_nothing(as_admin: Actor, cluster: Cluster) -> None:
    Cluster.objects.update(flavour="volcano", configured={})
    ClusterFactory(name="plain", flavour="kube")
    ClusterFactory(name="read", flavour="volcano", configured={"actions": ["allocate"], "plugins": {}})
    plan = plan_priority_change(change=change("medium", value=130), actor=as_admin)
    scopes = {each["clusters"][0]["name"]: each for each in plan.effect["victims"]["scopes"]}
    assert (scopes["lab"]["new"], scopes["lab"]["reach"]) == ([], "no priority evicts another")
    assert scopes["lab"]["assumption"].startswith("Assumption: Volcano neither preempts nor reclaims")
    assert scopes["read"]["assumption"] == scopes["plain"]["assumption"] == ""
    assert ["medium", "high"] in scopes["plain"]["new"]


def test_the_matrix_of_a_plan_marks_what_is_gained_and_lost(as_admin: Actor, cluster: Cluster) -> None:
    plan = plan_priority_change(change=change("medium", value=130), actor=as_admin)
    (scope,) = plan.effect["victims"]["scopes"]
    assert [each["name"] for each in scope["priorities"]][:3] == ["very-high", "medium", "high"]
    marks = {
        (row["who"], cell["whom"]): (cell["mark"], cell["evicts"]) for row in scope["matrix"] for cell in row["cells"]
    }
    assert marks["medium", "high"] == ("+", "preemptible")
    assert marks["high", "medium"] == ("-", "none")
    assert marks["very-high", "low"] == ("", "preemptible")


def test_a_policy_never_takes_evictions_away_only_where_it_is_obeyed(as_admin: Actor, cluster: Cluster) -> None:
    ClusterFactory(name="plain", flavour="kube")
    plan = plan_priority_change(change=change("high", preemption_policy="Never"), actor=as_admin)
    lost = {each["clusters"][0]["name"]: each["lost"] for each in plan.effect["victims"]["scopes"]}
    assert ["high", "low"] in lost["plain"]
    assert lost["lab"] == []


def test_a_change_of_types_alone_says_nothing_of_evictions(as_admin: Actor, cluster: Cluster) -> None:
    type_ = WorkloadType.objects.get(name="PyTorchJob")
    plan = plan_type_change(type=type_, change={"preemptibility": "non-preemptible"}, actor=as_admin)
    assert plan.effect["victims"]["scopes"] == []


def test_a_value_across_the_threshold_says_what_naming_it_means_and_for_which_types(as_admin: Actor) -> None:
    medium = Priority.objects.get(name="medium")
    WorkloadType.objects.filter(name="Job").update(priority=medium, preemptibility="")
    WorkloadType.objects.filter(name="PyTorchJob").update(priority=medium, preemptibility="preemptible")
    up = plan_priority_change(change=change("medium", value=110), actor=as_admin)
    assert up.effect["warnings"][1:] == [
        "New submissions with medium and no preemptibility become non-preemptible: counted against the deserved "
        "quota. The same applies to Kubernetes Job submitted without a priority.",
        "PyTorch training is preemptible by default, but choosing medium explicitly makes it non-preemptible: at "
        "least 100.",
    ]
    within = plan_priority_change(change=change("medium", value=81), actor=as_admin)
    assert not any("From now on" in each for each in within.effect["warnings"])


def test_types_that_a_value_across_the_threshold_concerns_alike_are_named_in_one_warning(as_admin: Actor) -> None:
    medium, names = Priority.objects.get(name="medium"), ["AMLJob", "JAXJob", "PyTorchJob"]
    WorkloadType.objects.filter(priority=medium).update(priority=Priority.objects.get(name="low"))
    WorkloadType.objects.filter(name__in=names).update(priority=medium, preemptibility="preemptible")
    plan = plan_priority_change(change=change("medium", value=110), actor=as_admin)
    assert [each for each in plan.effect["warnings"] if "by default" in each] == [
        "Azure ML job, JAX training and PyTorch training are preemptible by default, but choosing medium explicitly "
        "makes them non-preemptible: at least 100."
    ]


def test_the_sentence_counts_one_type_with_its_verb(as_admin: Actor) -> None:
    type_ = WorkloadType.objects.get(name="PyTorchJob")
    plan = plan_type_change(type=type_, change={"preemptibility": "non-preemptible"}, actor=as_admin)
    assert "1 workload type gets new defaults for submissions from now on" in plan.effect["sentence"]


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_queries_of_a_plan_do_not_grow_with_clusters_or_waiting_workloads(
    flavour: str, llm_team: Project, as_admin: Actor
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            plan_priority_change(change=change("medium", value=66), actor=as_admin)
        return len(captured)

    few = queries()
    for number in range(3):
        project = ProjectFactory(department__cluster=ClusterFactory(flavour=flavour))
        WorkloadFactory(project=project, name=f"waits-{number}", phase=Phase.PENDING)
    assert queries() == few


def test_queries_of_a_plan_do_not_grow_with_workloads_that_turn(llm_team: Project, as_admin: Actor) -> None:
    medium = Priority.objects.get(name="medium-high")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            plan = plan_priority_change(change=change("medium-high", value=101), actor=as_admin)
        assert plan.effect["workloads"]["flip"]["count"] == Workload.objects.count()
        return len(captured)

    def waits(name: str) -> None:
        WorkloadFactory(
            project=llm_team,
            name=name,
            phase=Phase.PENDING,
            priority=medium,
            preemptibility="preemptible",
            preemptibility_source="threshold",
        )

    waits("first")
    few = queries()
    for number in range(3):
        waits(f"more-{number}")
    assert queries() == few


def test_a_value_across_the_threshold_changes_the_quotas_that_name_classes(as_admin: Actor) -> None:
    cluster = ClusterFactory(flavour="kube")
    project = ProjectFactory(department__cluster=cluster)
    ProjectQuotaFactory(project=project, node_pool=NodePoolFactory(cluster=cluster), gpu_deserved=4000)
    plan = plan_priority_change(change=change("medium-high", value=101), actor=as_admin)
    (kinds,) = (
        {row["kind"] for row in each["changes"]} for each in plan.effect["objects"] if each["cluster"] == cluster.name
    )
    assert kinds == {"PriorityClass", "ResourceQuota"}
