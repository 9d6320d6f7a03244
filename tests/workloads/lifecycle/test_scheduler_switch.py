"""Workloads of a cluster that gets another scheduler: what runs stays as it is, what waits is recreated."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.services.workload_hooks import WorkloadSample
from clusters.ports.gateway import Manifest
from clusters.ports.objects import GANG_POD_GROUP, GANG_WORKLOAD, KAI_QUEUE
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sync.models import OrphanedObject
from clusters.sync.services.scheduler_switch import SwitchPlan, plan_switch, switch_flavour
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import job, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh, made
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services import relocation
from workloads.lifecycle.services.actions import delete, resume, stop
from workloads.plans.services.plans import plan_change
from workloads.state.models import Workload, WorkloadEvent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the queues: the test makes them first."""
    monkeypatch.setattr(relocation, "FIRST_THE_QUEUES", relocation.FIRST_THE_QUEUES * 0)


def switch(lab: Lab, flavour: str) -> SwitchPlan:
    plan = plan_switch(cluster=lab.cluster, flavour=flavour)
    switch_flavour(cluster=lab.cluster, flavour=flavour, generation=plan.generation, actor=SYSTEM)
    return plan


def scheduler_of(manifest: Manifest | None) -> str:
    assert manifest is not None
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return str(spec.get("schedulerName", "default"))


def until(lab: Lab, true: Callable[[], bool]) -> None:
    """Go on until it is so."""
    for _ in range(12):
        if true():
            return
        Workload.objects.exclude(due_at=None).update(due_at=timezone.now())
        lab.settle(1, seconds=15)
    assert true()


@pytest.fixture
def lab() -> Lab:
    """Eight GPUs under KAI."""
    return Lab("kai")


@pytest.fixture
def pair(lab: Lab) -> tuple[Workload, Workload]:
    """One that runs, and one that waits for its room."""
    team = lab.project("llm-team", deserved=16)
    runs = lab.submit(team, "runs", gpus=6)
    lab.settle()
    waits = lab.submit(team, "waits", gpus=6)
    lab.settle()
    return runs, waits


def test_the_plan_says_what_stays_and_what_is_recreated(lab: Lab, pair: tuple[Workload, Workload]) -> None:
    work = plan_switch(cluster=lab.cluster, flavour="kube").work
    runs, waits = pair
    assert (work.stays.count, work.stays.samples) == (1, ((str(runs.pk), "runs (llm-team)"),))
    assert (work.recreated.count, work.recreated.samples) == (1, ((str(waits.pk), "waits (llm-team)"),))
    assert work.unexpressed.count == 0


def test_a_preemptibility_that_the_new_one_does_not_know_is_told(lab: Lab) -> None:
    flexible = lab.submit(lab.project("llm-team"), "flexible", preemptibility="semi-preemptible")
    assert plan_switch(cluster=lab.cluster, flavour="kube").work.unexpressed.samples[0][0] == str(flexible.pk)


def test_the_plan_names_what_the_new_schedulers_model_evicts_for_what_waits(lab: Lab) -> None:
    """On KAI a priority counts in its own queue alone, on kube-scheduler on the whole cluster."""
    weak = lab.submit(lab.project("llm-team"), "weak", gpus=8, priority="low")
    lab.settle()
    strong = lab.submit(lab.project("vision"), "strong", gpus=8, priority="high", preemptibility="preemptible")
    lab.settle()
    assert (fresh(weak).phase, fresh(strong).phase) == ("Running", "Pending")
    evicted = plan_switch(cluster=lab.cluster, flavour="kube").work.evicted
    assert evicted is not None
    assert evicted.samples == ((str(weak.pk), "weak (llm-team)"),)
    switch(lab, "kube")
    until(lab, lambda: fresh(strong).phase == "Running")
    assert fresh(weak).phase != "Running"


def test_a_change_plan_counts_the_gpu_hours_of_victims_that_the_old_scheduler_never_evicts(lab: Lab) -> None:
    weak = lab.submit(lab.project("llm-team"), "weak", gpus=8, priority="low", preemptibility="non-preemptible")
    lab.settle()
    lab.submit(lab.project("vision"), "strong", gpus=8, priority="high", preemptibility="preemptible")
    lab.settle()
    Workload.objects.filter(pk=weak.pk).update(started_at=timezone.now() - timedelta(hours=2))
    plan = plan_change(kind="scheduler", change={"cluster": lab.cluster.name, "flavour": "kube"}, actor=SYSTEM)
    assert plan.effect["workloads"]["evicted"]["count"] == 1
    assert plan.effect["gpu_hours_at_risk"] == 16.0
    assert "1 running workload would be evicted by the new scheduler" in plan.effect["sentence"]
    assert plan.effect["sentence"].endswith("16 GPU-hours at risk.")


def test_a_change_plan_counts_queues_that_are_deleted_once_no_workload_uses_them(
    lab: Lab, pair: tuple[Workload, Workload]
) -> None:
    plan = plan_change(kind="scheduler", change={"cluster": lab.cluster.name, "flavour": "kube"}, actor=SYSTEM)
    ((kept,),) = ([row for row in each["changes"] if row["mark"] == "…"] for each in plan.effect["objects"])
    (kind,) = (each for each in plan_switch(cluster=lab.cluster, flavour="kube").kinds if each.kept)
    assert (kept["kind"], kept["count"]) == (kind.kind, kind.kept)
    assert f"{kind.kept} objects deleted later on 1 cluster" in plan.effect["sentence"]
    assert "1 waiting or stopped workload is recreated" in plan.effect["sentence"]


def test_on_kueue_what_runs_is_neither_counted_nor_evicted_and_new_work_waits_for_nodes_beside_it() -> None:
    lab = Lab("kube")
    runs = lab.submit(lab.project("llm-team"), "runs", manifest=job("runs", gpus=8), priority="very-low")
    lab.project("vision")
    lab.settle()
    work = plan_switch(cluster=lab.cluster, flavour="kueue").work
    assert (work.stays.count, work.evicted, work.uncounted) == (1, WorkloadSample(), 8000)
    switch(lab, "kueue")
    lab.settle()
    vision = Project.objects.select_related("cluster", "department").get(name="vision")
    requested = {"priority": "high", "preemptibility": "preemptible"}
    said = forecast(
        spec=spec_of(job("strong", gpus=8), namespace=vision.namespace, **requested), project=vision, actor=SYSTEM
    )
    assert (said.verdict, said.reason, said.victims) == (Verdict.WAITS, "NoRoom", ())
    strong = lab.submit(vision, "strong", manifest=job("strong", gpus=8), **requested)
    lab.settle(5)
    assert (fresh(runs).phase, fresh(strong).phase) == ("Running", "Pending")


def test_what_runs_is_not_touched_and_what_waits_is_made_for_the_new_one(
    lab: Lab, pair: tuple[Workload, Workload]
) -> None:
    runs, waits = pair
    before = made(lab, runs)
    switch(lab, "kube")
    until(lab, lambda: scheduler_of(made(lab, waits) or before) == "default")
    after = made(lab, runs)
    assert scheduler_of(after) == "kai-scheduler"
    assert (after or {})["metadata"]["uid"] == (before or {})["metadata"]["uid"]
    assert fresh(runs).phase == "Running"
    assert WorkloadEvent.objects.filter(workload=waits, reason="SchedulerSwitched").count() == 1
    assert list(OrphanedObject.objects.values_list("workload_id", flat=True)) == [str(runs.pk)]


def test_the_old_queues_go_with_the_last_workload_that_was_made_for_them(
    lab: Lab, pair: tuple[Workload, Workload]
) -> None:
    runs, _waits = pair
    switch(lab, "kube")
    lab.settle()
    gateway = SandboxGateway(lab.cluster)
    assert len(gateway.list(KAI_QUEUE)[0]) == 2
    delete(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: not gateway.list(KAI_QUEUE)[0])
    assert not OrphanedObject.objects.exists()


def test_what_is_stopped_and_resumed_comes_back_under_the_new_one(lab: Lab, pair: tuple[Workload, Workload]) -> None:
    runs, waits = pair
    delete(workload=fresh(waits), actor=SYSTEM)
    switch(lab, "kube")
    stop(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: fresh(runs).phase == "Stopped")
    resume(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: fresh(runs).phase == "Running")
    assert scheduler_of(made(lab, runs)) == "default"


def test_what_is_resumed_while_its_pods_still_end_comes_back_under_the_new_one() -> None:
    """Its object was held back, not gone: let go again, it would run outside every queue of the new scheduler."""
    lab = Lab("kube")
    runs = lab.submit(lab.project("llm-team"), "runs", manifest=job("runs"))
    lab.settle()
    switch(lab, "kueue")
    lab.settle()
    stop(workload=fresh(runs), actor=SYSTEM)
    lab.settle(1)
    assert fresh(runs).phase == "Stopping", "its pods have their grace period"
    resume(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: fresh(runs).phase == "Running")
    found = made(lab, runs)
    assert found is not None
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert not OrphanedObject.objects.exists()


def test_nothing_of_a_gang_is_left_when_it_goes_after_a_switch() -> None:
    lab = Lab("kube-gangs", nodes=2)
    gang = lab.submit(lab.project("llm-team", deserved=64), "gang", manifest=pytorch_job("gang", gpus=4, workers=2))
    lab.settle()
    assert made(lab, gang, GANG_POD_GROUP)
    switch(lab, "kai")
    lab.settle()
    assert made(lab, gang, GANG_POD_GROUP)
    delete(workload=fresh(gang), actor=SYSTEM)
    until(lab, lambda: fresh(gang).deleted_at is not None)
    assert [made(lab, gang, kind) for kind in (GANG_POD_GROUP, GANG_WORKLOAD)] == [None, None]


def test_switching_back_is_at_home_for_what_ran_all_the_time(lab: Lab, pair: tuple[Workload, Workload]) -> None:
    runs, waits = pair
    switch(lab, "kube")
    lab.settle()
    switch(lab, "kai")
    assert str(runs.pk) not in OrphanedObject.objects.values_list("workload_id", flat=True)
    until(lab, lambda: not OrphanedObject.objects.exists())
    until(lab, lambda: (found := made(lab, waits)) is not None and scheduler_of(found) == "kai-scheduler")
    lab.settle()
    assert (fresh(runs).phase, fresh(waits).phase) == ("Running", "Pending")
    assert len(SandboxGateway(lab.cluster).list(KAI_QUEUE)[0]) == 2
