"""Odds of eviction are counted from runs and records of the last week; of few runs nothing is said."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from workloads.forecast.rules.eviction_risk import EvictionOdds
from workloads.forecast.selectors.eviction_risk import eviction_odds
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.serializers import forecast_json
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def run(project: Project, *, ago: timedelta, **about: Any) -> Workload:
    values = {"phase": Phase.COMPLETED, "preemptibility": "preemptible", "pool_name": "h100", **about}
    return WorkloadFactory(
        project=project, name=f"run-{Workload.objects.count()}", started_at=timezone.now() - ago, **values
    )


def evicted(project: Project, *, ago: timedelta, ran: timedelta, cause: str = "reclaim", **about: Any) -> None:
    """It ended so long ago, after it had run so long, and waits since."""
    victim = run(project, ago=ago + ran, phase=Phase.PENDING, **about)
    PreemptionRecord.objects.create(
        cluster=project.cluster,
        pod_uid=str(victim.pk),
        pod_name=victim.name,
        victim=victim,
        at=timezone.now() - ago,
        ran_seconds=int(ran.total_seconds()),
        cause=cause,
    )


def odds(project: Project, preemptibility: str = "preemptible") -> EvictionOdds | None:
    return eviction_odds(project.cluster, "h100", preemptibility)


@pytest.fixture
def recorded(llm_team: Project) -> Project:
    """44 runs that went on or ended, 4 that were reclaimed and 2 that were preempted within 4 h."""
    for _ in range(44):
        run(llm_team, ago=10 * HOUR)
    for _ in range(4):
        evicted(llm_team, ago=20 * HOUR, ran=HOUR)
    for _ in range(2):
        evicted(llm_team, ago=20 * HOUR, ran=2 * HOUR, cause="preempt")
    return llm_team


def test_they_name_share_number_and_period(recorded: Project) -> None:
    found = odds(recorded)
    assert found == EvictionOdds("h100", 50, 6, 4)
    assert found.sentence == (
        "In h100, 12 % of 50 preemptible runs were evicted within 4 h of their start in the last 7 days: "
        "4 reclaimed while over quota, 2 preempted by higher priority."
    )


def test_what_is_not_yet_decided_or_of_elsewhere_does_not_count(recorded: Project) -> None:
    run(recorded, ago=HOUR, phase=Phase.RUNNING)
    run(recorded, ago=HOUR, pool_name="a100")
    run(recorded, ago=HOUR, preemptibility="non-preemptible")
    run(recorded, ago=timedelta(days=8))
    assert odds(recorded) == EvictionOdds("h100", 50, 6, 4)
    run(recorded, ago=5 * HOUR, phase=Phase.RUNNING)
    evicted(recorded, ago=HOUR, ran=5 * HOUR)
    assert odds(recorded) == EvictionOdds("h100", 52, 6, 4), "those lasted longer"


def test_there_are_none_for_what_is_never_evicted_and_of_few_runs(recorded: Project) -> None:
    assert odds(recorded, "non-preemptible") is None
    assert eviction_odds(recorded.cluster, "a100", "preemptible") is None


def test_a_preview_shows_them_beside_preemptibility(recorded: Project) -> None:
    spec = spec_of(pytorch_job("mine"), namespace=recorded.namespace, preemptibility="preemptible")
    found = forecast_json(forecast(spec=spec, project=recorded, actor=SYSTEM))["evictionOdds"]
    assert (found["percent"], found["runs"]) == (12, 50)
    fixed = spec_of(pytorch_job("mine"), namespace=recorded.namespace, preemptibility="non-preemptible")
    assert forecast_json(forecast(spec=fixed, project=recorded, actor=SYSTEM))["evictionOdds"] is None
