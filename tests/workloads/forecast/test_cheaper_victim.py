"""A preview says which other victim of the same queue and priority would lose less, and why the scheduler differs."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM, Actor
from scheduling.forecast.cycle import FLAVOURS
from tenants.quotas.services.runtime_rules import set_min_runtime
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from tests.workloads.forecast.test_preview import ask
from tests.workloads.sandbox_lab import Lab
from workloads.forecast.rules.estimates import VICTIM_ORDER
from workloads.forecast.serializers import forecast_json
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Lab:
    """One node of 8 GPUs that two trainings share: the older one has just saved, the newer one did hours ago."""
    lab = Lab("kai")
    team = lab.project("llm-team")
    older = lab.submit(team, "older", gpus=4, priority="low", preemptibility="preemptible")
    lab.settle()
    newer = lab.submit(team, "newer", gpus=4, priority="low", preemptibility="preemptible")
    lab.settle()
    ran(older, saved=timedelta(minutes=6))
    ran(newer, saved=timedelta(minutes=90))
    return lab


def ran(workload: Workload, *, saved: timedelta) -> None:
    """It has run for ten hours, and saved so long ago."""
    now = timezone.now()
    ObservedPod.objects.filter(owner_id=str(workload.pk)).update(started_at=now - timedelta(hours=10))
    notes = {"rung.dev/last-checkpoint-at": (now - saved).isoformat()}
    Workload.objects.filter(pk=workload.pk).update(spec={**workload.spec, "annotations": notes})


def sentence(lab: Lab, actor: Actor = SYSTEM, gpus: int = 4) -> str:
    project = Workload.objects.select_related("project").earliest("created_at").project
    found = ask(project, gpus=gpus, priority="high", preemptibility="preemptible", actor=actor)
    assert found.victims
    return found.cheaper.sentence if found.cheaper else ""


def test_the_cheaper_victim_is_named_with_both_losses_and_the_schedulers_order(lab: Lab) -> None:
    assert sentence(lab) == (
        "Evicting older instead of newer (same priority) would lose 0.4 GPU-hours instead of 6.0 GPU-hours. "
        "KAI Scheduler does not know checkpoints; it chooses by the lowest priority in a queue, then the latest "
        "creation."
    )


def test_rest_has_it_as_values(lab: Lab) -> None:
    project = Workload.objects.select_related("project").earliest("created_at").project
    found = forecast_json(ask(project, gpus=4, priority="high", preemptibility="preemptible"))["cheaperVictim"]
    assert (found["name"], found["insteadOf"]) == ("older", "newer")
    assert (found["gpuHours"], found["insteadGpuHours"]) == (pytest.approx(0.4, abs=0.05), pytest.approx(6, abs=0.1))


def test_none_is_named_where_both_go_or_the_chosen_one_loses_least(lab: Lab) -> None:
    assert sentence(lab, gpus=8) == ""
    ran(Workload.objects.get(name="newer"), saved=timedelta(minutes=2))
    assert sentence(lab) == ""


def test_a_smaller_workload_and_one_of_another_priority_are_not_offered(lab: Lab) -> None:
    pods = ObservedPod.objects.filter(owner_id=str(Workload.objects.get(name="older").pk))
    pods.update(priority_class="medium")
    assert sentence(lab) == ""
    pods.update(priority_class="low", gpu_milli=1000)
    assert sentence(lab) == ""


def test_a_minimum_runtime_keeps_it_from_being_offered(lab: Lab) -> None:
    set_min_runtime(owner=Workload.objects.earliest("created_at").project, minutes=5, actor=SYSTEM)
    assert sentence(lab) == ""


def test_a_reader_sees_it_only_in_projects_of_theirs(lab: Lab) -> None:
    member = acting(MembershipFactory(project=Workload.objects.earliest("created_at").project).user)
    assert sentence(lab, actor=member).startswith("Evicting older")


def test_the_order_of_victims_of_each_modelled_scheduler_is_known() -> None:
    assert VICTIM_ORDER.keys() == set(map(str, FLAVOURS))
