"""Kueue and Volcano on the simulated cluster: held back, told why and in which place, let go, and taken back whole."""

from typing import Any

import pytest

from clusters.flavours.volcano_config import ASSUMED, GANG_LIMITS, WITHOUT
from clusters.ports.objects import KUEUE_WORKLOAD
from clusters.sandbox.services.simulation import SandboxGateway
from portal.kit.security.actors import SYSTEM
from scheduling.model.preemptibility import Cause
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota
from tests.factories.workloads import bare_pod, deployment, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, configure, fresh
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import queue_place, why_waiting
from workloads.lifecycle.services.actions import resume, stop
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
GPU = 1000


@pytest.fixture
def kueue() -> Lab:
    """Two nodes of 8 GPUs, and as much quota."""
    lab = Lab("kueue", nodes=2)
    DepartmentQuota.objects.update(gpu_deserved=16 * GPU)
    return lab


@pytest.fixture
def volcano() -> Lab:
    """One node of 8 GPUs."""
    return Lab("volcano")


def ask(project: Project, *, gpus: int = 8, **wanted: Any) -> Forecast:
    """What is predicted of a training."""
    spec = spec_of(pytorch_job("asked", gpus=gpus), namespace=project.namespace, **wanted)
    return forecast(spec=spec, project=Project.objects.get(pk=project.pk), actor=SYSTEM)


def standing(workload: Workload) -> tuple[str, str, int]:
    found = fresh(workload)
    return found.phase, found.phase_reason, found.running_pods


def test_what_finds_no_quota_waits_without_pods_and_is_told_why_and_where(kueue: Lab) -> None:
    team = kueue.project("llm-team", deserved=16)
    kueue.submit(team, "first", manifest=pytorch_job("first", gpus=6, workers=1))
    kueue.settle()
    second, third = (kueue.submit(team, name, gpus=8) for name in ("second", "third"))
    kueue.settle()
    kueue.look()
    assert standing(second) == (Phase.PENDING, "WaitingForQuota", 0)
    assert "Waits for quota: 4 GPUs more in" in fresh(second).phase_message
    places = [queue_place(fresh(each)) for each in (second, third)]
    assert [(each.number, each.among) for each in places if each] == [(1, 2), (2, 2)]


def test_more_than_could_ever_be_lent_says_so(kueue: Lab) -> None:
    team = kueue.project("llm-team", deserved=8)
    waiting = kueue.submit(team, "huge", manifest=pytorch_job("huge", gpus=8, workers=2))
    kueue.settle()
    assert standing(waiting) == (Phase.PENDING, "OverLimit", 0)


def test_a_queue_takes_its_quota_back_and_the_record_names_the_job_that_gains(kueue: Lab) -> None:
    borrower, owner = kueue.project("borrower", deserved=0), kueue.project("owner", deserved=16)
    lent = {"priority": "high", "preemptibility": "preemptible"}
    loan = kueue.submit(borrower, "loan", manifest=pytorch_job("loan", gpus=8, workers=1), **lent)
    kueue.settle()
    assert standing(loan) == (Phase.RUNNING, "", 2)
    mine = kueue.submit(owner, "mine", gpus=8, priority="very-low")
    kueue.settle(3)
    assert standing(mine)[:2] == (Phase.PENDING, "PreemptionPending")
    records = PreemptionRecord.objects.all()
    assert {(each.victim, each.preemptor, each.cause) for each in records} == {(loan, mine, "reclaim")}
    assert len(records) == 2
    kueue.settle(3, seconds=40)
    assert standing(mine) == (Phase.RUNNING, "", 1)
    assert standing(loan) == (Phase.PENDING, "WaitingForQuota", 0)
    assert len(eviction_timelines(fresh(loan), SYSTEM)) == 1


@pytest.mark.parametrize("maker", [deployment, bare_pod])
def test_what_cannot_be_suspended_waits_behind_a_gate_and_is_let_go(kueue: Lab, maker: Any) -> None:
    team = kueue.project("llm-team", deserved=16)
    weak = kueue.submit(team, "weak", manifest=maker("weak", gpus=16 // 2), priority="very-low")
    kueue.submit(team, "other", gpus=8, priority="high")
    kueue.settle(4)
    assert standing(weak) == (Phase.RUNNING, "", 1)
    strong = kueue.submit(team, "strong", gpus=8, priority="high")
    kueue.settle(4, seconds=40)
    assert standing(strong) == (Phase.RUNNING, "", 1)
    assert standing(weak) == (Phase.PENDING, "WaitingForQuota", 0)
    assert PreemptionRecord.objects.get().victim == weak
    stop(workload=fresh(strong), actor=SYSTEM)
    kueue.settle(6, seconds=40)
    assert standing(weak) == (Phase.RUNNING, "", 1)


def test_a_stopped_workload_leaves_the_queue_and_comes_back_to_it(kueue: Lab) -> None:
    team = kueue.project("llm-team", deserved=16)
    train = kueue.submit(team, "train", gpus=8)
    kueue.settle()
    stop(workload=fresh(train), actor=SYSTEM)
    kueue.settle(3, seconds=40)
    gateway = SandboxGateway(kueue.cluster)
    assert gateway.list(KUEUE_WORKLOAD, managed_only=False)[0] == []
    resume(workload=fresh(train), actor=SYSTEM)
    kueue.settle(4)
    assert standing(train) == (Phase.RUNNING, "", 1)


def test_a_finished_job_gives_its_quota_back(kueue: Lab) -> None:
    team = kueue.project("llm-team", deserved=16)
    kueue.submit(team, "short", manifest=pytorch_job("short", gpus=8, workers=1), seconds="30")
    kueue.settle()
    waiting = kueue.submit(team, "next", gpus=8)
    kueue.settle(2)
    assert standing(waiting)[0] == Phase.PENDING
    kueue.settle(5, seconds=40)
    assert standing(waiting) == (Phase.RUNNING, "", 1)


def test_volcano_as_shipped_evicts_nobody_and_the_forecast_says_so(volcano: Lab) -> None:
    team = volcano.project("llm-team", deserved=16)
    volcano.submit(team, "weak", gpus=8, priority="very-low")
    volcano.settle()
    said = ask(team, priority="high")
    assert (said.verdict, said.victims) == (Verdict.WAITS, ())
    assert ASSUMED in said.cautions
    assert "over_quota_and_reclaim" in [each.code for each in said.broken]
    strong = volcano.submit(team, "strong", gpus=8, priority="high")
    volcano.settle(5, seconds=40)
    assert standing(strong) == (Phase.PENDING, "Unschedulable", 0)
    assert not PreemptionRecord.objects.exists()


def test_volcano_with_its_actions_preempts_as_predicted(volcano: Lab) -> None:
    configure(volcano, 'actions: "allocate, preempt, reclaim, backfill"\n')
    team = volcano.project("llm-team", deserved=16)
    weak = volcano.submit(team, "weak", gpus=8, priority="very-low")
    volcano.settle()
    said = ask(team, priority="high")
    assert (said.verdict, [each.workload for each in said.victims]) == (Verdict.EVICTS, [weak])
    assert ASSUMED not in said.cautions
    strong = volcano.submit(team, "strong", gpus=8, priority="high")
    volcano.settle(3)
    assert standing(strong)[:2] == (Phase.PENDING, "Evicting")
    record = PreemptionRecord.objects.get()
    assert (record.victim, record.cause, record.preemptor) == (weak, "preempt", None)
    volcano.settle(3, seconds=40)
    assert standing(strong) == (Phase.RUNNING, "", 1)


def test_a_gang_of_volcanos_starts_whole_or_waits(volcano: Lab) -> None:
    team = volcano.project("llm-team", deserved=16)
    gang = volcano.submit(team, "gang", manifest=pytorch_job("gang", gpus=8, workers=1))
    volcano.settle()
    assert standing(gang)[0::2] == (Phase.PENDING, 0)
    volcano.node("node-9")
    volcano.settle(3)
    assert standing(gang) == (Phase.RUNNING, "", 2)


def test_a_queue_at_its_limit_says_that(volcano: Lab) -> None:
    team = volcano.project("llm-team", deserved=4, limit=4)
    volcano.submit(team, "first", gpus=4)
    volcano.settle()
    second = volcano.submit(team, "second", gpus=4)
    volcano.settle()
    assert standing(second) == (Phase.PENDING, "OverLimit", 0)


def test_volcano_without_reclaim_takes_nothing_back_for_another_project(volcano: Lab) -> None:
    configure(volcano, 'actions: "allocate, preempt, backfill"\n')
    borrower, owner = volcano.project("borrower", deserved=0), volcano.project("owner", deserved=8)
    volcano.submit(borrower, "loan", gpus=8, priority="very-low")
    volcano.settle()
    said = ask(owner, priority="high")
    assert (said.verdict, said.victims) == (Verdict.WAITS, ())
    assert WITHOUT[Cause.RECLAIM,] in said.cautions
    mine = volcano.submit(owner, "mine", gpus=8, priority="high")
    volcano.settle(5, seconds=40)
    assert standing(mine)[0] == Phase.PENDING
    headline = why_waiting(fresh(mine))
    assert headline is not None
    assert headline.sentence.endswith(
        f"the scheduler finds no evictions that would free enough for it. {WITHOUT[Cause.RECLAIM,]}"
    )
    assert not PreemptionRecord.objects.exists()


def test_volcano_whose_plugin_gang_is_asked_evicts_nobody_who_stands_alone(volcano: Lab) -> None:
    plugins = "tiers: [{plugins: [{name: priority}, {name: gang}]}]\n"
    configure(volcano, f'actions: "allocate, preempt, reclaim, backfill"\n{plugins}')
    team = volcano.project("llm-team", deserved=16)
    volcano.submit(team, "weak", gpus=8, priority="very-low")
    volcano.settle()
    said = ask(team, priority="high")
    assert said.verdict is Verdict.WAITS
    assert GANG_LIMITS in said.cautions
    strong = volcano.submit(team, "strong", gpus=8, priority="high")
    volcano.settle(5, seconds=40)
    assert standing(strong)[0] == Phase.PENDING
    assert not PreemptionRecord.objects.exists()


def test_what_waits_for_something_else_is_not_told_of_the_configuration(volcano: Lab) -> None:
    team = volcano.project("llm-team", deserved=16)
    volcano.settle()
    said = ask(team, gpus=16)
    assert said.reason == "NeverFits"
    assert ASSUMED not in said.cautions


@pytest.mark.parametrize(("actions", "told"), [("preempt", False), ("reclaim", True)])
def test_at_its_limit_only_preemption_would_help(volcano: Lab, actions: str, told: bool) -> None:
    configure(volcano, f'actions: "allocate, {actions}"\n')
    team = volcano.project("llm-team", deserved=4, limit=4)
    volcano.submit(team, "first", gpus=4, priority="high")
    volcano.settle()
    said = ask(team, gpus=4, priority="high")
    assert said.reason == "OverLimit"
    assert any("Volcano's configuration" in each for each in said.cautions) is told
