"""When a waiting workload will probably start: from history and time limits, and what then happens."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.watch.models import ObservedPod
from tenants.organisation.models import Project
from tenants.quotas.models import TimeLimit
from tests.factories.workloads import WorkloadFactory
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.dictionary.models import WorkloadType
from workloads.forecast.rules.estimates import RunLengths
from workloads.forecast.selectors import start_estimate as module
from workloads.forecast.selectors.start_estimate import start_estimate, start_estimates
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db


def ended(project: Project, running: Workload, *seconds: int, **about: Any) -> None:
    """Runs of the same type and size that have ended in the last days."""
    for number, lasted in enumerate(seconds):
        done = timezone.now() - timedelta(hours=number + 1)
        values = {
            "type": running.type,
            "gpu_milli": running.gpu_milli,
            "phase": Phase.COMPLETED,
            "phase_at": done,
            "started_at": done - timedelta(seconds=lasted),
            "completed_at": done,
            **about,
        }
        WorkloadFactory(project=project, name=f"ended-{Workload.objects.count()}", **values)


class Full:
    """A node whose 8 GPUs one workload holds, and another one that waits for them."""

    def __init__(self, flavour: str = "kai", *, seconds: int = 600) -> None:
        self.lab = Lab(flavour)
        self.team = self.lab.project("team", deserved=8)
        self.holder = self.lab.submit(self.team, "holder", gpus=8, seconds=str(seconds))
        self.lab.settle(3)
        self.mine = self.lab.submit(self.team, "mine", gpus=8)
        self.lab.settle(3)
        self.holder, self.mine = fresh(self.holder), fresh(self.mine)
        assert (self.holder.phase, self.mine.phase) == (Phase.RUNNING, Phase.PENDING)

    def until_it_starts(self) -> datetime:
        """What then happens on the simulated cluster."""
        for _ in range(20):
            self.lab.settle(1, seconds=60)
            pod = ObservedPod.objects.filter(owner_id=str(self.mine.pk)).exclude(node_name="").first()
            if pod and pod.started_at:
                return pod.started_at
        pytest.fail("it did not start")


@pytest.fixture
def full() -> Full:
    return Full()


@pytest.mark.parametrize("flavour", ["kai", "kube", "kueue"])
def test_what_is_estimated_from_history_is_what_then_happens(flavour: str) -> None:
    full = Full(flavour)
    ended(full.team, full.holder, *range(560, 640, 4))
    found = start_estimate(full.mine)
    assert found is not None
    assert found.median is not None
    assert found.p90 is not None
    assert found.basis.text({full.team.pk: "team"}) == (
        "20 ended runs of PyTorchJob in team with up to 8 GPUs (1 running workload)"
    )
    began = full.until_it_starts()
    assert found.median - timedelta(seconds=60) <= began <= found.p90 + timedelta(seconds=90)


def test_a_terminating_pod_is_waited_for_until_its_grace_is_over(full: Full) -> None:
    ends = timezone.now() + timedelta(seconds=200)
    ObservedPod.objects.filter(owner_id=str(full.holder.pk)).update(deletion_at=ends)
    found = start_estimate(full.mine)
    assert found is not None
    assert found.median is not None
    assert timedelta(0) <= ends - found.median < timedelta(seconds=1)


def test_a_victim_has_the_grace_that_the_cluster_shows() -> None:
    full = Full("kube")
    ObservedPod.objects.filter(owner_id=str(full.mine.pk)).update(priority=150)
    ObservedPod.objects.filter(owner_id=str(full.holder.pk)).update(grace_seconds=900)
    found = start_estimate(full.mine)
    assert found is not None
    assert found.median is not None
    assert timedelta(minutes=14) < found.median - timezone.now() <= timedelta(minutes=15)


def test_a_time_limit_is_the_latest_end(full: Full) -> None:
    TimeLimit.objects.create(project=full.team, category=full.holder.category, minutes=20, notice_minutes=5)
    found = start_estimate(full.mine)
    assert found
    assert found.median
    assert full.holder.started_at
    assert found.median == found.p90
    assert abs(found.median - full.holder.started_at - timedelta(minutes=20)) < timedelta(seconds=5)
    assert found.basis.text({}) == "time limits as the latest end (1 running workload)"
    ended(full.team, full.holder, *[86_400] * 10)
    both = start_estimate(full.mine)
    assert both is not None
    assert both.median == found.median, "history reaches no further than the limit"


def test_without_history_or_limit_there_is_no_estimate(full: Full) -> None:
    ended(full.team, full.holder, *[3600] * 9)
    ended(full.team, full.holder, *[0] * 9)
    WorkloadFactory(project=full.team, name="never-ran", phase=Phase.STOPPED, phase_at=timezone.now())
    found = start_estimate(full.mine)
    assert found
    assert not found.is_known
    assert found.code == "thin_history"
    assert "fewer than 10 comparable runs of the last 90 days lasted as long" in found.why


def test_other_kinds_of_runs_are_used_where_its_own_are_few(full: Full) -> None:
    other = full.lab.project("other")
    ended(other, full.holder, *[900] * 10, gpu_milli=1000)
    found = start_estimate(full.mine)
    assert found
    assert found.median
    assert "10 ended runs of PyTorchJob in all projects" in found.basis.text({})
    ended(full.team, full.holder, *[1200] * 10)
    own = start_estimate(full.mine)
    assert own
    assert own.median
    assert own.median > found.median
    assert "in another project with up to 8 GPUs" in own.basis.text({}), "who may not see the project gets no name"


def test_runs_of_another_category_say_nothing_of_its_end(full: Full) -> None:
    """A training among inferences: those are stopped by people, or never."""
    service = WorkloadType.objects.get(name="Inference")
    ended(full.team, full.holder, *[900] * 10, type=service, category="Deploy")
    found = start_estimate(full.mine)
    assert found
    assert found.code == "thin_history"
    ended(full.team, full.holder, *[900] * 10, type=WorkloadType.objects.get(name="MPIJob"))
    again = start_estimate(full.mine)
    assert again
    assert again.median
    assert again.basis.text({}) == ("10 ended runs of all types of category Train in all projects (1 running workload)")


def test_runs_that_still_go_on_count_as_longer_than_they_are(full: Full) -> None:
    ended(full.team, full.holder, *[900] * 10)
    since = timezone.now() - timedelta(days=5)
    going = {"phase": Phase.RUNNING, "completed_at": None, "started_at": since, "phase_at": since}
    ended(full.team, full.holder, *[0] * 40, **going)
    found = start_estimate(full.mine)
    assert found
    assert not found.is_known
    assert found.code == "beyond_horizon"


def test_evicted_runs_count_as_longer_than_they_were(full: Full) -> None:
    ended(full.team, full.holder, *[900] * 10)
    for number in range(40):
        PreemptionRecord.objects.create(
            cluster=full.lab.cluster,
            victim=full.holder,
            pod_uid=f"evicted-{number}",
            at=timezone.now(),
            cause=PreemptionCause.PREEMPT,
            ran_seconds=5000,
        )
    found = start_estimate(full.mine)
    assert found
    assert found.code == "beyond_horizon"


@pytest.mark.parametrize(
    ("chance", "lasts"),
    [(0.99, 6), (0.86, 6), (0.85, 7), (0.8, 10), (0.7, 13), (0.6, 22), (0.45, 23), (0.447, None), (0.0, None)],
)
def test_lengths_are_those_of_kaplan_and_meier(chance: float, lasts: int | None) -> None:
    """The trial of Freireich et al. (1963), as in textbooks: of 21, 44.8 % last longer than 23 weeks."""
    ended, unended = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    assert RunLengths(ended, unended).drawn(0, chance) == lasts


def test_a_run_lasts_longer_than_it_has() -> None:
    lengths = RunLengths([60, 120, 180, 240])
    assert [lengths.drawn(0, chance) for chance in (0.99, 0.74, 0.49, 0.24, 0.0)] == [60, 120, 180, 240, 240]
    assert [lengths.drawn(120, chance) for chance in (0.99, 0.51, 0.49, 0.0)] == [180, 180, 240, 240]
    assert lengths.drawn(240, 0.5) is None


def test_sums_of_evicted_runs_and_old_runs_say_nothing(full: Full) -> None:
    ended(full.team, full.holder, *[900] * 10, phase=Phase.STOPPED, completed_at=None, preempted_count=1)
    ended(full.team, full.holder, *[900] * 10, phase_at=timezone.now() - timedelta(days=91))
    found = start_estimate(full.mine)
    assert found
    assert found.code == "thin_history"
    ended(full.team, full.holder, *[900] * 10, phase=Phase.DELETING, completed_at=None, running_seconds=900)
    again = start_estimate(full.mine)
    assert again
    assert again.is_known


def test_what_would_take_longer_than_a_week_is_not_estimated(full: Full) -> None:
    ended(full.team, full.holder, *[9 * 86_400] * 10)
    found = start_estimate(full.mine)
    assert found
    assert found.code == "beyond_horizon"
    assert "within 7 days in only 0 of 20 runs" in found.why


def test_the_same_cluster_gives_the_same_estimate(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(full.team, full.holder, *range(500, 5000, 100))
    now = timezone.now()
    monkeypatch.setattr(module.timezone, "now", lambda: now)
    first, second = start_estimate(full.mine), start_estimate(full.mine)
    assert first
    assert second
    assert (first.median, first.p90) == (second.median, second.p90)
    assert first.median
    assert first.p90
    assert first.median < first.p90


def test_several_workloads_are_estimated_by_one_course(full: Full) -> None:
    ended(full.team, full.holder, *[600] * 10)
    full.lab.submit(full.team, "next", gpus=8)
    full.lab.settle(2)
    rows = [fresh(full.mine), fresh(Workload.objects.get(name="next"))]
    found = start_estimates(rows)
    mine, following = (found[each].median for each in rows)
    assert mine
    assert following
    assert timedelta(seconds=590) < following - mine < timedelta(seconds=700)


def test_out_of_time_is_no_estimate(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.forecast.selectors.time_budget.SECONDS", 0.0)
    found = start_estimate(full.mine)
    assert found
    assert (found.code, found.is_known) == ("out_of_time", False)


def test_an_old_observation_is_no_estimate(full: Full) -> None:
    cluster = full.mine.project.cluster
    cluster.observed_at = datetime(2026, 1, 1, tzinfo=UTC)
    found = start_estimate(full.mine)
    assert found
    assert found.code == "stale"
    cluster.observed_at = timezone.now()
    cluster.flavour = "slurm"
    other = start_estimate(full.mine)
    assert other
    assert other.code == "no_model"


def test_what_does_not_wait_for_the_scheduler_has_none(full: Full) -> None:
    assert start_estimate(full.holder) is None
    full.mine.phase_reason = "HeldBack"
    held = start_estimate(full.mine)
    assert held
    assert held.code == "held"
