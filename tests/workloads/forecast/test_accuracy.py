"""A forecast that was shown and followed by a submission is compared with what then happened."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster, Node
from portal.kit.security.actors import SYSTEM, Actor
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.factories.cast import acting
from tests.factories.clusters import NodeFactory, NodePoolFactory
from tests.factories.tenants import GPU, MembershipFactory, ProjectQuotaFactory, UserFactory
from tests.factories.workloads import ObservedPodFactory, pytorch_job, spec_of
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.forecast.models import ForecastCount, ForecastResult, StoredForecast
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.services.scoring import FOLLOWED, HORIZON, MISSING_DATA, RETENTION, score
from workloads.forecast.services.storage import scenario_of, stored_forecast
from workloads.intake import WorkloadSpec
from workloads.lifecycle.services.actions import stop
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload
from workloads.submission.services import submit

pytestmark = pytest.mark.django_db
LATER = HORIZON + timedelta(minutes=1)


class Asker:
    """Somebody of a project who asks first and then submits, on one node of 8 GPUs."""

    def __init__(self, lab: Lab, project: Project, actor: Actor = SYSTEM) -> None:
        self.lab, self.actor = lab, actor
        self.project = Project.objects.select_related("cluster", "department").get(pk=project.pk)

    def spec(self, name: str, *, gpus: int = 4, priority: str = "medium", **requested: Any) -> WorkloadSpec:
        manifest = pytorch_job(name, gpus=gpus, workers=requested.pop("workers", 0))
        manifest["metadata"]["annotations"] = {"rung.dev/run-seconds": "86400"}
        return spec_of(
            manifest,
            namespace=self.project.namespace,
            priority=priority,
            preemptibility=requested.pop("preemptibility", "preemptible"),
            **requested,
        )

    def ask(self, name: str, **requested: Any) -> Forecast:
        project = Project.objects.select_related("cluster", "department").get(pk=self.project.pk)
        return stored_forecast(spec=self.spec(name, **requested), project=project, actor=self.actor)

    def submit(self, name: str, **requested: Any) -> Workload:
        return submit(spec=self.spec(name, **requested), project=self.project, actor=self.actor)


@pytest.fixture(params=["kai", "kube", "kueue", "volcano"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(request.param)


@pytest.fixture
def kai() -> Lab:
    return Lab("kai")


@pytest.fixture
def team(kai: Lab) -> Asker:
    """A project that may use the whole node."""
    return asker(kai)


def asker(lab: Lab, name: str = "llm-team", *, deserved: int = 8) -> Asker:
    found = Asker(lab, lab.project(name, deserved=deserved))
    lab.settle(1)
    return found


def judged(lab: Lab, workload: Workload, *, after: timedelta = LATER) -> StoredForecast:
    """What is said of its forecast once the horizon has passed and the cluster was observed again."""
    score(workload.created_at + timedelta(seconds=10))
    now = workload.created_at + after
    Cluster.objects.filter(pk=lab.cluster.pk).update(observed_at=now)
    score(now)
    return StoredForecast.objects.get(workload=workload)


def found(row: StoredForecast) -> tuple[str, str]:
    return row.result, row.why


HELD = (ForecastResult.HELD, "")


def test_what_was_to_start_and_starts_has_held(lab: Lab) -> None:
    team = asker(lab)
    said = team.ask("train")
    workload = team.submit("train")
    lab.settle(3)
    row = judged(lab, workload)
    assert fresh(workload).phase == Phase.RUNNING
    assert (said.verdict, row.verdict, row.starts, row.flavour) == (
        Verdict.STARTS,
        Verdict.STARTS,
        True,
        lab.cluster.flavour,
    )
    assert found(row) == HELD
    assert row.started_at is not None
    assert row.data_at is not None


def test_what_was_to_wait_and_waits_has_held(lab: Lab) -> None:
    team = asker(lab)
    team.submit("first", gpus=8)
    lab.settle(3)
    said = team.ask("second", gpus=8)
    workload = team.submit("second", gpus=8)
    lab.settle(3)
    row = judged(lab, workload)
    assert said.verdict is Verdict.WAITS
    assert (found(row), row.started_at) == (HELD, None)


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_victims_that_were_named_and_go_have_held(flavour: str) -> None:
    lab = Lab(flavour)
    team = asker(lab)
    low = team.submit("low", gpus=8, priority="low")
    lab.settle(5, seconds=3)
    said = team.ask("high", gpus=8, priority="high")
    workload = team.submit("high", gpus=8, priority="high")
    lab.settle(6, seconds=8)
    row = judged(lab, workload, after=timedelta(minutes=10))
    assert said.verdict is Verdict.EVICTS
    assert PreemptionRecord.objects.filter(victim=low, preemptor=workload).exists()
    assert (found(row), row.victims, row.evicted) == (HELD, [str(low.pk)], [str(low.pk)])


def test_another_submission_in_between_overtakes_it(team: Asker) -> None:
    said = team.ask("mine", gpus=8)
    bob = UserFactory()
    MembershipFactory(user=bob, project=team.project)
    other = Asker(team.lab, team.project, acting(bob)).submit("other", gpus=6)
    team.lab.settle(3)
    workload = team.submit("mine", gpus=8)
    team.lab.settle(3)
    row = judged(team.lab, workload)
    assert said.verdict is Verdict.STARTS
    assert (found(row), row.overtaken_by) == ((ForecastResult.OVERTAKEN, "submission"), other)
    assert row.input is None


@pytest.mark.parametrize("gpus", [2, 6])
def test_of_workloads_that_were_previewed_alone_and_submitted_in_turn_only_the_first_is_judged(
    team: Asker, gpus: int
) -> None:
    assert team.ask("first", gpus=gpus).verdict is Verdict.STARTS
    assert team.ask("second", gpus=5).verdict is Verdict.STARTS
    first, second = team.submit("first", gpus=gpus), team.submit("second", gpus=5)
    team.lab.settle(3)
    assert found(judged(team.lab, first)) == HELD
    assert found(judged(team.lab, second)) == (ForecastResult.NOT_JUDGED, "own_submissions")


def test_a_submission_after_the_decision_overtakes_nothing(team: Asker) -> None:
    unexplained(team)
    team.submit("later", gpus=1)
    later = Workload.objects.get(name="later")
    later.timeline.update(at=timezone.now() + timedelta(seconds=60))
    assert found(judged(team.lab, Workload.objects.get(name="mine"))) == (ForecastResult.UNEXPLAINED, "")


def test_what_starts_although_it_was_to_wait_names_the_stop_and_no_later_submission(team: Asker) -> None:
    first = team.submit("first", gpus=8, preemptibility="non-preemptible")
    team.lab.settle(3)
    said = team.ask("second", gpus=8)
    workload = team.submit("second", gpus=8)
    team.submit("third", gpus=1, priority="low")
    stop(workload=fresh(first), actor=SYSTEM)
    team.lab.settle(6, seconds=8)
    row = judged(team.lab, workload)
    assert (said.verdict, fresh(workload).phase) == (Verdict.WAITS, Phase.RUNNING)
    assert (found(row), row.overtaken_by) == ((ForecastResult.OVERTAKEN, "stop"), first)


def test_a_submission_while_its_victims_stop_overtakes_nothing(team: Asker) -> None:
    team.submit("low", gpus=8, priority="low")
    team.lab.settle(5, seconds=3)
    team.ask("high", gpus=8, priority="high")
    workload = team.submit("high", gpus=8, priority="high")
    team.lab.settle(6, seconds=8)
    StoredForecast.objects.update(victims=[])  # as if it had named none
    team.submit("later", gpus=1)
    evicted = PreemptionRecord.objects.get(preemptor=workload)
    Workload.objects.get(name="later").timeline.update(at=evicted.at + timedelta(seconds=1))
    row = judged(team.lab, workload, after=timedelta(minutes=10))
    assert row.started_at is not None
    assert row.started_at > evicted.at + timedelta(seconds=1)
    assert found(row) == (ForecastResult.UNEXPLAINED, "")


def test_a_change_of_quotas_in_between_overtakes_it(team: Asker) -> None:
    team.ask("mine", gpus=8)
    workload = sent(team.submit("mine", gpus=8))
    ProjectQuota.objects.update(gpu_deserved=4 * GPU)
    Cluster.objects.update(generation=99)
    assert found(judged(team.lab, workload)) == (ForecastResult.OVERTAKEN, "quotas")


def test_a_change_of_nodes_in_between_overtakes_it(team: Asker) -> None:
    said = team.ask("mine", gpus=8)
    workload = team.submit("mine", gpus=8)
    Node.objects.update(unschedulable=True)
    assert said.verdict is Verdict.STARTS
    assert found(judged(team.lab, sent(workload))) == (ForecastResult.OVERTAKEN, "nodes")


@pytest.mark.parametrize(("flavour", "what"), [("kai", "nodes"), ("kube", "nodes"), ("kai", "quotas")])
def test_a_change_in_another_pool_explains_nothing(flavour: str, what: str) -> None:
    team = asker(Lab(flavour))
    other = NodePoolFactory(cluster=team.lab.cluster, name="other")
    ProjectQuotaFactory(project=team.project, node_pool=other, gpu_deserved=8 * GPU)
    labels = {other.label_key: other.label_value}
    NodeFactory(cluster=team.lab.cluster, pool=other, name="elsewhere", labels=labels)
    unexplained(team)
    if what == "nodes":
        Node.objects.filter(name="elsewhere").update(unschedulable=True)
    else:
        ProjectQuota.objects.filter(node_pool=other).update(gpu_deserved=4 * GPU)
        Cluster.objects.update(generation=99)
    assert found(judged(team.lab, Workload.objects.get(name="mine"))) == (ForecastResult.UNEXPLAINED, "")


def test_a_pod_that_rung_did_not_make_overtakes_it(team: Asker) -> None:
    unexplained(team)
    ObservedPodFactory(cluster=team.lab.cluster, owner_id="", created_at=timezone.now(), name="foreign")
    assert found(judged(team.lab, Workload.objects.get(name="mine"))) == (ForecastResult.OVERTAKEN, "foreign_pod")


def sent(workload: Workload) -> Workload:
    """As if the cluster had it; its pods stay out of sight."""
    Workload.objects.filter(pk=workload.pk).update(applied_generation=1, phase=Phase.PENDING)
    return fresh(workload)


def unexplained(team: Asker) -> Workload:
    """Nothing has changed, and it waits where it was to start."""
    said = team.ask("mine", gpus=8)
    assert said.verdict is Verdict.STARTS
    return sent(team.submit("mine", gpus=8))


def test_what_nothing_explains_keeps_the_question_and_what_was_seen(team: Asker) -> None:
    row = judged(team.lab, unexplained(team))
    assert found(row) == (ForecastResult.UNEXPLAINED, "")
    scenario = scenario_of(row)
    assert scenario is not None
    assert (scenario.kind, scenario.victims) == ("pending", frozenset())
    assert scenario.outcome().kind == "placed"
    assert not scenario.agrees()


def test_what_said_a_doubt_is_counted_under_it(team: Asker) -> None:
    Cluster.objects.update(observed_at=timezone.now() - timedelta(minutes=6))
    said = team.ask("mine", gpus=8)
    workload = sent(team.submit("mine", gpus=8))
    Cluster.objects.update(observed_at=timezone.now())
    assert DoubtCode.STALE_SNAPSHOT in {each.code for each in said.doubts}
    assert found(judged(team.lab, workload)) == (ForecastResult.DOUBTED, "stale_snapshot")


def stopped(team: Asker, workload: Workload) -> None:
    stop(workload=fresh(workload), actor=SYSTEM)


def unobserved(team: Asker, workload: Workload) -> None:
    Cluster.objects.update(observed_at=timezone.now() - timedelta(hours=1))
    score(workload.created_at + timedelta(seconds=20))


def switched(team: Asker, workload: Workload) -> None:
    Cluster.objects.update(flavour="kube")


def unsent(team: Asker, workload: Workload) -> None:
    Workload.objects.update(applied_generation=0, phase_reason="")


@pytest.mark.parametrize(
    ("happens", "why"),
    [(stopped, "stopped"), (unobserved, "not_observed"), (switched, "scheduler_changed"), (unsent, "not_sent")],
)
def test_what_cannot_be_judged_says_why(team: Asker, happens: Callable[[Asker, Workload], None], why: str) -> None:
    workload = unexplained(team)
    score(workload.created_at)
    happens(team, workload)
    assert found(judged(team.lab, workload)) == (ForecastResult.NOT_JUDGED, why)


def test_a_cluster_that_is_not_observed_again_is_waited_for(team: Asker) -> None:
    workload = unexplained(team)
    score(workload.created_at + HORIZON + timedelta(seconds=1))
    assert StoredForecast.objects.get().result == ""
    score(workload.created_at + HORIZON + MISSING_DATA + timedelta(seconds=1))
    assert found(StoredForecast.objects.get()) == (ForecastResult.NOT_JUDGED, "not_observed")


def test_only_the_same_subject_with_the_same_request_follows_a_forecast(kai: Lab) -> None:
    project = kai.project("llm-team")
    user = UserFactory(username="alice")
    MembershipFactory(user=user, project=project)
    alice, other = Asker(kai, project, acting(user)), Asker(kai, project)
    kai.settle(1)
    alice.ask("mine", gpus=2)
    others = [other.submit("of-another", gpus=2), alice.submit("larger", gpus=3)]
    same = alice.submit("mine", gpus=2)
    score()
    assert StoredForecast.objects.get().workload == same
    assert not any(hasattr(fresh(each), "forecast") for each in others)


def test_the_last_forecast_before_the_submission_counts_whatever_name_it_had(team: Asker) -> None:
    team.ask("draft", gpus=2)
    team.ask("draft-2", gpus=2)
    workload = team.submit("final", gpus=2)
    score()
    first, second = StoredForecast.objects.order_by("at")
    assert (first.workload, second.workload) == (None, workload)


def test_what_nothing_follows_and_what_is_old_is_dropped(team: Asker) -> None:
    team.ask("never-submitted")
    score(timezone.now() + FOLLOWED + timedelta(seconds=1))
    assert not StoredForecast.objects.exists()
    row = judged(team.lab, unexplained(team))
    score(row.at + RETENTION + timedelta(seconds=1))
    assert not StoredForecast.objects.exists()
    assert ForecastCount.objects.get().count == 1


def test_each_is_counted_once_in_its_week(team: Asker) -> None:
    row = judged(team.lab, unexplained(team))
    score(row.at + timedelta(hours=1))
    count = ForecastCount.objects.get()
    assert (count.cluster, count.flavour, count.result, count.count) == (team.lab.cluster, "kai", "unexplained", 1)
    assert count.week.weekday() == 0
    assert 0 <= (datetime.date(row.at) - count.week).days < 7
