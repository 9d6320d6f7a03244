"""Workloads of a cluster that gets another scheduler: what runs stays as it is, what waits is made anew."""

from collections.abc import Callable

import pytest
from django.utils import timezone

from clusters.backends.sandbox import SandboxGateway
from clusters.kinds_core import GANG_POD_GROUP, GANG_WORKLOAD, KAI_QUEUE
from clusters.models import LeftBehind
from clusters.ports import Manifest
from clusters.services.switching import SwitchPlan, plan_switch, switch_flavour
from portal.core.actors import SYSTEM
from tests.factories.workloads import pytorch_job
from tests.workloads.lab import Lab, fresh, made
from workloads.models import Workload, WorkloadEvent
from workloads.services import switching
from workloads.services.lifecycle import delete, resume, stop

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the queues: the test makes them first."""
    monkeypatch.setattr(switching, "FIRST_THE_QUEUES", switching.FIRST_THE_QUEUES * 0)


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


def test_the_plan_says_what_stays_and_what_is_made_anew(lab: Lab, pair: tuple[Workload, Workload]) -> None:
    work = plan_switch(cluster=lab.cluster, flavour="kube").work
    runs, waits = pair
    assert (work.stays.count, work.stays.samples) == (1, ((str(runs.pk), "runs (llm-team)"),))
    assert (work.anew.count, work.anew.samples) == (1, ((str(waits.pk), "waits (llm-team)"),))
    assert work.unexpressed.count == 0


def test_a_preemptibility_that_the_new_one_does_not_know_is_told(lab: Lab) -> None:
    flexible = lab.submit(lab.project("llm-team"), "flexible", preemptibility="semi-preemptible")
    assert plan_switch(cluster=lab.cluster, flavour="kube").work.unexpressed.samples[0][0] == str(flexible.pk)


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
    assert list(LeftBehind.objects.values_list("workload_id", flat=True)) == [str(runs.pk)]


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
    assert not LeftBehind.objects.exists()


def test_what_is_stopped_and_resumed_comes_back_under_the_new_one(lab: Lab, pair: tuple[Workload, Workload]) -> None:
    runs, waits = pair
    delete(workload=fresh(waits), actor=SYSTEM)
    switch(lab, "kube")
    stop(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: fresh(runs).phase == "Stopped")
    resume(workload=fresh(runs), actor=SYSTEM)
    until(lab, lambda: fresh(runs).phase == "Running")
    assert scheduler_of(made(lab, runs)) == "default"


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
    assert str(runs.pk) not in LeftBehind.objects.values_list("workload_id", flat=True)
    until(lab, lambda: not LeftBehind.objects.exists())
    until(lab, lambda: (found := made(lab, waits)) is not None and scheduler_of(found) == "kai-scheduler")
    lab.settle()
    assert (fresh(runs).phase, fresh(waits).phase) == ("Running", "Pending")
    assert len(SandboxGateway(lab.cluster).list(KAI_QUEUE)[0]) == 2
