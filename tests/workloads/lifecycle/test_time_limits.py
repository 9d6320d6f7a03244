"""A run whose time is over is stopped, never without notice."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import TimeLimit
from tenants.quotas.services.runtime_rules import set_limit
from tests.factories.cast import acting
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import resume, stop
from workloads.lifecycle.services.run_limits import enforce, run_end
from workloads.state.models import DesiredPhase, Phase, Workload

NOW = timezone.now()
MINUTE = timedelta(minutes=1)


@pytest.fixture
def an_hour(research: Department) -> None:
    """Trainings of the department last an hour at most, with ten minutes of notice."""
    set_limit(TimeLimit, owner=research, category="Train", minutes=60, notice_minutes=10, actor=SYSTEM)


def run(project: Project, *, minutes: int, category: str = "Train", phase: str = Phase.RUNNING) -> Workload:
    """A workload whose run began so many minutes ago."""
    began = NOW - minutes * MINUTE
    made: Workload = WorkloadFactory(project=project, category=category, phase=phase, started_at=began, phase_at=began)
    return made


def told(workload: Workload) -> list[str]:
    return list(
        workload.timeline.filter(reason__startswith="TimeLimit").order_by("id").values_list("reason", flat=True)
    )


def at(minutes: float) -> datetime:
    return NOW + minutes * MINUTE


def test_a_run_is_told_and_then_stopped(an_hour: None, llm_team: Project) -> None:
    workload = run(llm_team, minutes=49)
    assert enforce(at(0)) == 0
    assert told(workload) == []
    enforce(at(1))
    enforce(at(2))
    assert told(workload) == ["TimeLimitNear"]
    assert enforce(at(10)) == 0
    assert enforce(at(11)) == 1
    workload.refresh_from_db()
    assert (workload.desired_phase, workload.phase) == (DesiredPhase.STOPPED, Phase.STOPPING)
    assert told(workload) == ["TimeLimitNear", "TimeLimitReached"]
    assert "department research" in workload.timeline.get(reason="TimeLimitReached").message
    assert AuditRecord.objects.get(action="workload.stop").actor_name == "rung"
    assert enforce(at(12)) == 0


def test_a_rule_that_comes_late_leaves_the_whole_notice(an_hour: None, llm_team: Project) -> None:
    workload = run(llm_team, minutes=500)
    assert enforce(at(0)) == 0
    assert told(workload) == ["TimeLimitNear"]
    assert enforce(at(9)) == 0
    assert enforce(at(10)) == 1


def test_another_run_has_the_whole_time_again(an_hour: None, llm_team: Project, as_alice: Actor) -> None:
    workload = run(llm_team, minutes=55)
    enforce(at(0))
    stop(workload=workload, actor=as_alice)
    resume(workload=workload, actor=as_alice)
    Workload.objects.filter(pk=workload.pk).update(phase=Phase.RUNNING, started_at=at(1))
    assert enforce(at(30)) == 0
    enforce(at(52))
    assert told(workload) == ["TimeLimitNear", "TimeLimitNear"]


@pytest.mark.parametrize(
    ("category", "phase"), [("Deploy", Phase.RUNNING), ("Train", Phase.PENDING), ("Train", Phase.STOPPED)]
)
def test_only_what_runs_and_is_bounded_ends(an_hour: None, llm_team: Project, category: str, phase: str) -> None:
    workload = run(llm_team, minutes=500, category=category, phase=phase)
    enforce(at(0))
    assert enforce(at(60)) == 0
    assert told(workload) == []
    assert run_end(workload) is None


def test_queries_do_not_grow_with_the_runs_that_know_their_end(an_hour: None, llm_team: Project) -> None:
    def queries() -> int:
        enforce(at(0))
        with CaptureQueriesContext(connection) as captured:
            enforce(at(1))
        return len(captured)

    run(llm_team, minutes=52)
    few = queries()
    for minutes in (51, 52, 53, 54):
        run(llm_team, minutes=minutes)
    assert queries() == few


def test_runs_whose_end_is_far_are_not_read(an_hour: None, llm_team: Project) -> None:
    run(llm_team, minutes=40)
    with CaptureQueriesContext(connection) as captured:
        enforce(at(0))
    read = [each["sql"] for each in captured if 'FROM "workloads_workload"' in each["sql"]]
    assert len(read) == 1
    assert '"spec"' not in read[0]


def test_projects_of_other_departments_run_on(an_hour: None, vision_team: Project) -> None:
    workload = run(vision_team, minutes=500)
    assert enforce(at(0)) + enforce(at(60)) == 0
    assert told(workload) == []


def test_the_page_says_when_it_will_be_stopped(
    an_hour: None, llm_team: Project, client_of: Callable[[User], Client], alice: User
) -> None:
    workload, began = run(llm_team, minutes=20), timezone.now() - 20 * MINUTE
    Workload.objects.filter(pk=workload.pk).update(started_at=began, phase_at=began)
    workload.refresh_from_db()
    shown = " ".join(client_of(alice).get(f"/workloads/{workload.pk}/").content.decode().split())
    assert "Stops at" in shown
    assert "time limit of department research" in shown
    end = run_end(workload)
    assert end is not None
    assert end.at == began + 60 * MINUTE


def test_the_forecast_says_so_before_anything_is_sent(an_hour: None, llm_team: Project, alice: User) -> None:
    cautions = forecast(spec=spec_of(pytorch_job()), project=llm_team, actor=acting(alice)).cautions
    assert "It will be stopped: workloads of department research run at most 1 h. Notice: 10 min." in " ".join(cautions)
