"""A run whose GPUs do nothing for too long is stopped, never without notice, and only where they are measured."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.connection.models import MetricsSource
from clusters.watch.models import GpuUse
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import IdleLimit
from tenants.quotas.services.runtime_rules import set_limit
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, pytorch_job, spec_of
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.run_limits import enforce, run_end
from workloads.state.models import DesiredPhase, Phase, Workload

NOW = timezone.now()
MINUTE = timedelta(minutes=1)


@pytest.fixture
def half_an_hour(research: Department) -> None:
    """Trainings of the department may be idle for half an hour, with ten minutes of notice."""
    set_limit(IdleLimit, owner=research, category="Train", minutes=30, notice_minutes=10, actor=SYSTEM)


@pytest.fixture
def run(llm_team: Project) -> Workload:
    """It runs for a day on one GPU."""
    began = NOW - timedelta(days=1)
    made: Workload = WorkloadFactory(
        project=llm_team, category="Train", phase=Phase.RUNNING, started_at=began, phase_at=began
    )
    ObservedPodFactory(workload=made)
    return made


def idle(run: Workload, since: datetime | None, measured_at: datetime) -> None:
    """What was measured."""
    for pod in run.project.cluster.pods.filter(owner_id=str(run.pk)):
        row = {"percent": 0 if since else 50, "idle_since": since, "measured_at": measured_at}
        GpuUse.objects.update_or_create(pod=pod, defaults=row)


def told(run: Workload) -> list[str]:
    rows = run.timeline.filter(reason__startswith="IdleLimit").order_by("id")
    return list(rows.values_list("reason", flat=True))


def at(minutes: float) -> datetime:
    return NOW + minutes * MINUTE


def test_it_is_told_and_then_stopped(half_an_hour: None, run: Workload) -> None:
    idle(run, NOW, at(19))
    enforce(at(19))
    assert told(run) == []
    for minutes in (20, 25, 29):
        idle(run, NOW, at(minutes))
        assert enforce(at(minutes)) == 0
    assert told(run) == ["IdleLimitNear"]
    idle(run, NOW, at(30))
    assert enforce(at(30)) == 1
    run.refresh_from_db()
    assert run.desired_phase == DesiredPhase.STOPPED
    message = run.timeline.get(reason="IdleLimitReached").message
    assert "may be idle for at most 30 min" in message
    assert "department research" in message


def test_work_starts_the_clock_again_and_brings_the_whole_notice_again(half_an_hour: None, run: Workload) -> None:
    idle(run, NOW, at(20))
    enforce(at(20))
    idle(run, None, at(25))
    assert enforce(at(40)) == 0
    idle(run, at(41), at(60))
    assert enforce(at(60)) == 0
    idle(run, at(41), at(61))
    assert enforce(at(61)) == 0
    assert told(run) == ["IdleLimitNear", "IdleLimitNear"]
    idle(run, at(41), at(71))
    assert enforce(at(71)) == 1


def test_nothing_is_stopped_that_was_not_measured_lately(half_an_hour: None, run: Workload) -> None:
    assert enforce(at(600)) == 0
    idle(run, NOW, at(20))
    enforce(at(20))
    assert enforce(at(600)) == 0


def test_its_page_says_since_when_and_by_whose_rule(
    half_an_hour: None, run: Workload, client_of: Callable[[User], Client], alice: User
) -> None:
    now = timezone.now()
    idle(run, now - 25 * MINUTE, now)
    end = run_end(run)
    assert end is not None
    assert end.idle
    page = client_of(alice).get(f"/workloads/{run.pk}/").content.decode()
    assert "GPUs idle since" in page
    assert "idle limit of department research" in page


def test_a_project_may_only_tighten_it(half_an_hour: None, llm_team: Project) -> None:
    with pytest.raises(Conflict):
        set_limit(IdleLimit, owner=llm_team, category="Train", minutes=31, notice_minutes=10, actor=SYSTEM)
    set_limit(IdleLimit, owner=llm_team, category="Train", minutes=29, notice_minutes=10, actor=SYSTEM)


def test_who_submits_is_told_whether_it_acts(half_an_hour: None, llm_team: Project, as_alice: Actor) -> None:
    def cautions() -> str:
        return " ".join(forecast(spec=spec_of(pytorch_job()), project=llm_team, actor=as_alice).cautions)

    assert "this cluster has no GPU metrics" in cautions()
    MetricsSource.objects.create(cluster=llm_team.cluster, server="https://p.example", read_at=timezone.now())
    assert "may be idle for at most 30 min" in cautions()
    assert "no GPU metrics" not in cautions()
