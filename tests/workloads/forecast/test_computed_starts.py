"""Start estimates for which a page has no time: a worker computes them, and pages show what it found."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tenants.access.models import Role, User
from tests.factories.tenants import UserFactory
from tests.support.rest_clients import Robot
from tests.workloads.forecast.test_start_estimate import Full, ended
from workloads.forecast.models import ComputedStarts
from workloads.forecast.selectors.start_estimate import start_estimate
from workloads.forecast.services import start_estimates
from workloads.forecast.services.start_estimates import compute_requested, estimated_start
from workloads.lifecycle.tasks import compute_starts
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Full:
    """A workload that waits, with enough history, on a cluster whose model takes longer than a page has."""
    full = Full()
    ended(full.team, full.holder, *range(560, 640, 4))
    monkeypatch.setattr("workloads.forecast.selectors.time_budget.SECONDS", 0.0)
    return full


def code_of(workload: Workload) -> str:
    found = estimated_start(workload)
    assert found
    return "known" if found.is_known else found.code


def aged(**ages: timedelta) -> None:
    ComputedStarts.objects.update(**{name: timezone.now() - age for name, age in ages.items()})


def test_what_a_worker_computes_is_what_a_page_with_time_would_show(slow: Full) -> None:
    assert code_of(slow.mine) == "computing"
    assert compute_requested()
    shown, whole = estimated_start(slow.mine), start_estimate(slow.mine, seconds=60)
    assert shown
    assert whole
    assert shown.median
    assert whole.median
    assert abs(shown.median - whole.median) < timedelta(seconds=5)
    assert shown.basis == whole.basis
    assert shown.data_at == slow.mine.project.cluster.observed_at
    assert not compute_requested(), "nothing is asked for"


def test_the_periodic_task_computes_what_was_asked_for(slow: Full) -> None:
    assert code_of(slow.mine) == "computing"
    compute_starts()
    assert code_of(slow.mine) == "known"


def test_who_asks_while_it_is_computed_waits_for_the_same(slow: Full) -> None:
    assert code_of(slow.mine) == "computing"
    requested = ComputedStarts.objects.get().requested_at
    assert code_of(slow.mine) == "computing"
    assert ComputedStarts.objects.get().requested_at == requested
    aged(requested_at=6 * MINUTE)
    assert code_of(slow.mine) == "computing"
    assert ComputedStarts.objects.get().requested_at > requested, "the worker may be gone: asked for again"


def test_an_estimate_of_some_minutes_is_shown_and_renewed(slow: Full) -> None:
    code_of(slow.mine)
    compute_requested()
    Workload.objects.filter(pk=slow.mine.pk).update(phase_at=timezone.now() - timedelta(hours=1))
    slow.mine.refresh_from_db()
    aged(requested_at=5 * MINUTE, computed_at=4 * MINUTE)
    assert (code_of(slow.mine), ComputedStarts.objects.get().is_due) == ("known", False)
    aged(requested_at=7 * MINUTE, computed_at=6 * MINUTE)
    assert (code_of(slow.mine), ComputedStarts.objects.get().is_due) == ("known", True)
    aged(requested_at=17 * MINUTE, computed_at=16 * MINUTE)
    assert (code_of(slow.mine), ComputedStarts.objects.get().is_due) == ("computing", True)


def test_another_version_or_another_wait_is_computed_again(slow: Full) -> None:
    code_of(slow.mine)
    compute_requested()
    slow.mine.generation += 1
    assert code_of(slow.mine) == "computing"
    slow.mine.generation -= 1
    assert code_of(slow.mine) == "known"
    slow.mine.phase_at = timezone.now() + MINUTE
    assert code_of(slow.mine) == "computing"


def test_one_worker_computes_a_pool_and_another_takes_over_where_it_dies(slow: Full) -> None:
    code_of(slow.mine)
    ComputedStarts.objects.update(claimed_until=timezone.now() + MINUTE)
    assert not compute_requested()
    aged(claimed_until=MINUTE)
    assert compute_requested()
    assert code_of(slow.mine) == "known"


def test_a_worker_that_runs_out_of_time_says_so(slow: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    code_of(slow.mine)
    monkeypatch.setattr(start_estimates, "WORKER_SECONDS", 0.0)
    compute_requested()
    found = estimated_start(slow.mine)
    assert found
    assert (found.code, found.why) == (
        "out_of_time",
        "the estimate was stopped after 0 s because too many workloads compete on this cluster",
    )


def test_a_reason_that_needs_no_model_comes_first(slow: Full) -> None:
    code_of(slow.mine)
    compute_requested()
    slow.mine.project.cluster.observed_at = timezone.now() - 6 * MINUTE
    assert code_of(slow.mine) == "stale"


def test_what_was_not_looked_at_for_a_day_is_dropped(slow: Full) -> None:
    code_of(slow.mine)
    aged(requested_at=timedelta(days=1, minutes=1))
    assert not compute_requested()
    assert not ComputedStarts.objects.exists()


def test_pages_and_rest_say_that_it_is_computed(slow: Full, client_of: Callable[[User], Client]) -> None:
    admin, robot = UserFactory(is_superuser=True), Robot("platform-robot", role=Role.PLATFORM_ADMIN)
    card = client_of(admin).get(f"/workloads/{slow.mine.pk}/waiting/").content.decode()
    assert "a worker was asked to compute it" in card
    said = robot.get(f"v1/workloads/{slow.mine.pk}/waiting").json()["startEstimate"]
    assert (said["code"], said["median"]) == ("computing", None)
    compute_requested()
    assert "in half of the model runs" in client_of(admin).get(f"/workloads/{slow.mine.pk}/waiting/").content.decode()
    assert robot.get(f"v1/workloads/{slow.mine.pk}/waiting").json()["startEstimate"]["median"]
