"""Odds of eviction are counted from runs and records of the last week; of few runs nothing is said."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.rules.estimates import EvictionOdds, RunOdds
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
        started_over_quota=victim.started_over_quota,
        cause=cause,
    )


def odds(project: Project, preemptibility: str = "preemptible") -> EvictionOdds | None:
    return eviction_odds(project.cluster, "h100", preemptibility)


@pytest.fixture
def recorded(llm_team: Project) -> Project:
    """Over quota: 44 runs that went on or ended, 4 that were reclaimed and 2 preempted within 4 h. Within: 19 runs.

    Two more were recorded without their quota.
    """
    for over, runs in ((True, 44), (False, 19), (None, 2)):
        for _ in range(runs):
            run(llm_team, ago=10 * HOUR, started_over_quota=over)
    for _ in range(4):
        evicted(llm_team, ago=20 * HOUR, ran=HOUR, started_over_quota=True)
    for _ in range(2):
        evicted(llm_team, ago=20 * HOUR, ran=2 * HOUR, cause="preempt", started_over_quota=True)
    return llm_team


RECORDED = EvictionOdds("h100", RunOdds(50, 6, 4), RunOdds(19), RunOdds(71, 6, 4))


def test_they_are_of_runs_that_started_over_quota_with_both_numbers_and_the_period(recorded: Project) -> None:
    found = odds(recorded)
    assert found == RECORDED
    assert found.sentence == (
        "Over quota in h100: 12 % (6 of 50 runs) were evicted within 4 h of their start in the last 7 days. "
        "Within quota: not enough data (19 runs in the last 7 days, 20 are needed)."
    )


def test_what_is_not_yet_decided_or_of_elsewhere_does_not_count(recorded: Project) -> None:
    run(recorded, ago=HOUR, phase=Phase.RUNNING)
    run(recorded, ago=HOUR)
    evicted(recorded, ago=HOUR, ran=2 * HOUR, started_over_quota=True)
    run(recorded, ago=5 * HOUR, pool_name="a100")
    run(recorded, ago=5 * HOUR, preemptibility="non-preemptible")
    run(recorded, ago=timedelta(days=8))
    assert odds(recorded) == RECORDED
    run(recorded, ago=5 * HOUR, phase=Phase.RUNNING, started_over_quota=True)
    evicted(recorded, ago=HOUR, ran=5 * HOUR, started_over_quota=False)
    assert odds(recorded) == EvictionOdds("h100", RunOdds(51, 6, 4), RunOdds(20), RunOdds(73, 6, 4)), (
        "those lasted longer"
    )


def test_there_are_none_for_what_is_never_evicted_and_of_few_runs_no_share(recorded: Project) -> None:
    assert odds(recorded, "non-preemptible") is None
    found = eviction_odds(recorded.cluster, "a100", "preemptible")
    assert found == EvictionOdds("a100", RunOdds(), RunOdds(), RunOdds())
    assert found.every.percent is None


@pytest.mark.parametrize("flavour", ["kube", "kueue"])
def test_they_are_of_non_preemptible_runs_where_their_scheduler_evicts_them(recorded: Project, flavour: str) -> None:
    Cluster.objects.update(flavour=flavour)
    recorded.cluster.refresh_from_db()
    for _ in range(19):
        run(recorded, ago=10 * HOUR, started_over_quota=False, preemptibility="non-preemptible")
    kept = {"started_over_quota": False, "preemptibility": "non-preemptible"}
    evicted(recorded, ago=20 * HOUR, ran=HOUR, cause="preempt", **kept)
    every = RunOdds(20, 1, 0)
    found = odds(recorded, "non-preemptible")
    assert found == EvictionOdds("h100", RunOdds(), every, every, preemptible=False)
    assert found.sentence == (
        "Non-preemptible runs in h100: 5 % (1 of 20 runs) were evicted within 4 h of their start in the last 7 days."
    )
    assert odds(recorded) == RECORDED


def test_of_runs_that_are_enough_only_together_the_share_of_all_is_stated() -> None:
    found = EvictionOdds("h100", RunOdds(12, 6, 6), RunOdds(10, 1, 0), RunOdds(24, 7, 6))
    assert found.sentence == (
        "All preemptible runs in h100: 29 % (7 of 24 runs) were evicted within 4 h of their start in the last 7 days. "
        "Too few to compare by quota (12 that started over quota, 10 within)."
    )


def test_a_preview_shows_them_beside_preemptibility(recorded: Project) -> None:
    spec = spec_of(pytorch_job("mine"), namespace=recorded.namespace, preemptibility="preemptible")
    found = forecast_json(forecast(spec=spec, project=recorded, actor=SYSTEM))["evictionOdds"]
    assert found["overQuota"] == {"percent": 12, "runs": 50, "evicted": 6, "reclaimed": 4}
    assert (found["withinQuota"]["percent"], found["percent"], found["runs"]) == (None, 8, 71)
    fixed = spec_of(pytorch_job("mine"), namespace=recorded.namespace, preemptibility="non-preemptible")
    assert forecast_json(forecast(spec=fixed, project=recorded, actor=SYSTEM))["evictionOdds"] is None


@pytest.mark.parametrize("gpus", [0, 9, 60])
def test_what_never_fits_and_what_holds_no_gpu_has_none(recorded: Project, gpus: int) -> None:
    recorded.quotas.update(gpu_limit=None)
    spec = spec_of(pytorch_job("mine", gpus=gpus), namespace=recorded.namespace, preemptibility="preemptible")
    found = forecast_json(forecast(spec=spec, project=recorded, actor=SYSTEM))
    assert found["evictionOdds"] is None, found["sentence"]


def test_a_run_is_recorded_over_quota_from_its_start_until_its_eviction() -> None:
    lab = Lab("kai")
    team, other = lab.project("llm-team", deserved=4), lab.project("vision-team", deserved=4)
    within = lab.submit(team, "within", gpus=4, preemptibility="preemptible")
    lab.settle()
    over = lab.submit(team, "over", gpus=4, preemptibility="preemptible")
    lab.settle()
    assert (fresh(within).started_over_quota, fresh(over).started_over_quota) == (False, True)
    lab.submit(other, "reclaims", gpus=4)
    lab.settle(4, seconds=31)
    record = PreemptionRecord.objects.get()
    assert (record.victim_id, record.started_over_quota) == (over.pk, True)
