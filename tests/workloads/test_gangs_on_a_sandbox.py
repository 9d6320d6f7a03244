"""Gangs of the plain scheduler on the embedded cluster, and what is foretold of them: whole starts, whole evictions."""

import pytest

from portal.core.actors import SYSTEM
from tests.factories.workloads import bare_pod, pytorch_job, spec_of
from tests.workloads.lab import Lab, fresh
from workloads.forecasts import Verdict
from workloads.models import Phase, PreemptionRecord
from workloads.services.preview import forecast

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Lab:
    """Three nodes of 8 GPUs."""
    return Lab("kube-gangs", nodes=3)


def test_a_gang_without_room_for_all_of_it_starts_nothing(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    first = lab.submit(team, "first", manifest=pytorch_job("first", gpus=8, workers=1))
    lab.settle()
    second = lab.submit(team, "second", manifest=pytorch_job("second", gpus=8, workers=1))
    lab.settle()
    assert (fresh(first).phase, fresh(first).running_pods) == (Phase.RUNNING, 2)
    assert (fresh(second).phase, fresh(second).allocated_gpu_milli) == (Phase.PENDING, 0)


def test_a_stronger_gang_takes_a_weaker_one_whole_as_it_was_foretold(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=pytorch_job("weak", gpus=8, workers=1), priority="low")
    lab.settle()
    wanted = pytorch_job("strong", gpus=8, workers=1)
    foretold = forecast(spec=spec_of(wanted, priority="high", namespace=team.namespace), project=team, actor=SYSTEM)
    assert foretold.verdict is Verdict.EVICTS
    assert [(victim.workload, victim.gpu_milli) for victim in foretold.victims] == [(weak, 16_000)]
    strong = lab.submit(team, "strong", manifest=wanted, priority="high")
    lab.settle(rounds=8, seconds=20)
    assert fresh(strong).phase == Phase.RUNNING
    [preemption] = PreemptionRecord.objects.filter(first=None)
    assert (preemption.victim, preemption.preemptor, preemption.others.count()) == (weak, strong, 1)
    assert fresh(weak).preempted_count == 1
    assert fresh(weak).allocated_gpu_milli == 0


def test_a_single_pod_breaks_a_gang(lab: Lab) -> None:
    team = lab.project("llm-team", deserved=64)
    weak = lab.submit(team, "weak", manifest=pytorch_job("weak", gpus=8, workers=2), priority="low")
    lab.settle()
    lab.submit(team, "single", manifest=bare_pod("single", gpus=8), priority="high")
    lab.settle()
    assert PreemptionRecord.objects.filter(victim=weak).count() == 1
