"""A waiting workload's page, REST: its place, who holds the GPUs, the start estimate, and how that came out."""

from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota
from tests.factories.cast import acting
from tests.factories.tenants import GPU
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory, pytorch_job, spec_of
from tests.support.rest_clients import Robot
from tests.workloads.sandbox_lab import Lab, fresh
from workloads.dictionary.models import Priority
from workloads.forecast.models import ForecastCount, StoredStartEstimate
from workloads.forecast.rules.estimates import EstimateBasis, RunClass, StartEstimate
from workloads.forecast.selectors.accuracy import start_calibration
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import holders, pool_rank, queue_position, queue_rank, why_waiting
from workloads.forecast.services.start_estimates import score_starts, shown_estimate
from workloads.lifecycle.services import actions
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timeline
from workloads.state.models import EventType, Phase, Workload
from workloads.state.services import note

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture
def waiting(llm_team: Project) -> Workload:
    return WorkloadFactory(project=llm_team, name="mine", phase=Phase.PENDING, pool_name="h100")


def holding(project: Project, name: str, gpus: int) -> Workload:
    return WorkloadFactory(
        project=project,
        name=name,
        phase=Phase.RUNNING,
        pool_name="h100",
        allocated_gpu_milli=gpus * 1000,
        started_at=timezone.now() - timedelta(hours=2),
    )


def test_holders_of_other_projects_are_one_sum_without_names(
    waiting: Workload, llm_team: Project, vision_team: Project, alice: User, admin: User
) -> None:
    own, large = holding(llm_team, "own", 1), holding(llm_team, "large", 4)
    holding(vision_team, "secret-one", 3)
    secret = holding(vision_team, "secret-two", 5)
    found = [(each.label, each.gpu_milli, each.workload) for each in holders(waiting, acting(alice))]
    assert found == [("large", 4000, large), ("own", 1000, own), ("another project", 8000, None)]
    seen = [each.workload for each in holders(waiting, acting(admin))]
    assert seen[:3] == [large, own, secret], "its own project first"


def test_pods_that_rung_did_not_create_hold_gpus_too(waiting: Workload, admin: User) -> None:
    cluster = waiting.project.cluster
    ObservedPodFactory(cluster=cluster, pool_name="h100", node_name="n", owner_id="", gpu_milli=2000, phase="Running")
    assert [(each.label, each.gpu_milli) for each in holders(waiting, acting(admin))] == [
        ("pods that Rung did not create", 2000)
    ]


def test_a_common_order_of_all_projects_is_kube_schedulers_alone(
    waiting: Workload, llm_team: Project, vision_team: Project
) -> None:
    strong = Priority.objects.get(name="high")
    WorkloadFactory(project=vision_team, name="first", phase=Phase.PENDING, pool_name="h100", priority=strong)
    WorkloadFactory(project=llm_team, name="second", phase=Phase.PENDING, pool_name="h100", priority=strong)
    place = queue_rank(waiting)
    assert place
    assert (place.number, place.among) == (2, 2)
    assert pool_rank(waiting) is None
    waiting.project.cluster.flavour = "kube"
    everywhere = pool_rank(waiting)
    assert everywhere
    assert (everywhere.number, everywhere.among) == (3, 3)


@pytest.mark.parametrize("flavour", ["kai", "kube", "kube-gangs", "volcano"])
def test_what_was_submitted_in_the_same_second_starts_in_the_order_of_its_places(flavour: str) -> None:
    """A cluster counts ages in seconds; of the same age names decide there, not the order of submission."""
    lab = Lab(flavour)
    team = lab.project("team", deserved=8)
    holder = lab.submit(team, "holder", gpus=8)
    lab.settle()
    made = [lab.submit(team, name, gpus=8) for name in ("b-second", "c-third", "a-first")]
    lab.settle()
    places = {fresh(each).name: queue_position(fresh(each)) for each in made}
    assert places == {"a-first": 1, "b-second": 2, "c-third": 3}
    actions.delete(workload=fresh(holder), actor=SYSTEM)
    lab.settle(4, seconds=40)
    phases = {fresh(each).name: fresh(each).phase for each in made}
    assert phases == {"a-first": Phase.RUNNING, "b-second": Phase.PENDING, "c-third": Phase.PENDING}


NOW = timezone.now()


@pytest.fixture(autouse=True)
def present(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a test is not that of the import, which a long run leaves far behind."""
    monkeypatch.setattr("tests.workloads.forecast.test_waiting_card.NOW", timezone.now())


def estimate(workload: Workload, *, median: float = 10, p90: float = 30) -> StartEstimate:
    """Minutes from now."""
    basis = EstimateBasis({RunClass(workload.project_id, "Training"): (34, 1)})
    moments = (NOW + timedelta(minutes=each) for each in (median, p90))
    return StartEstimate(NOW, NOW - timedelta(seconds=5), *moments, basis=basis)


@pytest.fixture
def estimated(waiting: Workload, monkeypatch: pytest.MonkeyPatch) -> StartEstimate:
    found = estimate(waiting)
    monkeypatch.setattr("workloads.forecast.services.start_estimates.estimated_start", lambda _workload: found)
    return found


def test_the_page_loads_the_estimate_after_itself(client_of: Clients, alice: User, waiting: Workload) -> None:
    text = client_of(alice).get(f"/workloads/{waiting.pk}/").content.decode()
    assert f'hx-get="/workloads/{waiting.pk}/waiting/"' in text
    card = client_of(alice).get(f"/workloads/{waiting.pk}/waiting/").content.decode()
    assert "No estimate:" in card


@pytest.mark.usefixtures("estimated")
def test_the_card_names_median_p90_basis_place_and_holders(
    client_of: Clients, alice: User, charlie: User, waiting: Workload, llm_team: Project
) -> None:
    holding(llm_team, "large", 4)
    text = " ".join(client_of(alice).get(f"/workloads/{waiting.pk}/waiting/").content.decode().split())
    assert "Starts within 10 min in half of the model runs, within 30 min in 9 of 10." in text
    assert "Based on: 34 ended runs of Training in llm-team (1 running workload)." in text
    assert "Position 1 of 1 in the queue of llm-team in h100" in text
    assert ">large</a>" in text
    assert client_of(charlie).get(f"/workloads/{waiting.pk}/waiting/").status_code == 404


@pytest.mark.parametrize("minutes", [-1, 0, 0.5])
def test_no_start_is_estimated_within_less_than_a_minute(
    client_of: Clients, alice: User, waiting: Workload, monkeypatch: pytest.MonkeyPatch, minutes: float
) -> None:
    found = estimate(waiting, median=minutes, p90=minutes)
    monkeypatch.setattr("workloads.forecast.services.start_estimates.estimated_start", lambda _workload: found)
    text = " ".join(client_of(alice).get(f"/workloads/{waiting.pk}/waiting/").content.decode().split())
    assert "Starts within 1 min in half of the model runs, within 1 min in 9 of 10." in text


def test_a_running_workload_has_an_empty_card(client_of: Clients, alice: User, llm_team: Project) -> None:
    running = holding(llm_team, "large", 4)
    assert "Start estimate" not in client_of(alice).get(f"/workloads/{running.pk}/waiting/").content.decode()
    assert "/waiting/" not in client_of(alice).get(f"/workloads/{running.pk}/").content.decode()


@pytest.mark.usefixtures("estimated")
def test_rest_answers_the_same(robot: Robot, waiting: Workload, llm_team: Project) -> None:
    holding(llm_team, "large", 4)
    found = robot.get(f"v1/workloads/{waiting.pk}/waiting").json()
    assert found["projectQueue"] == {"position": 1, "length": 1}
    assert (found["poolQueue"], found["nodePool"]) == (None, "h100")
    (holder,) = found["holders"]
    assert (holder["name"], holder["gpus"], holder["projectName"]) == ("large", 4.0, "llm-team")
    said = found["startEstimate"]
    assert said["median"]
    assert said["p90"]
    assert said["snapshotAgeSeconds"] == 5.0
    assert "34 ended runs" in said["basis"]


def test_rest_says_why_there_is_no_estimate(robot: Robot, waiting: Workload, llm_team: Project) -> None:
    Cluster.objects.update(observed_at=None)
    said = robot.get(f"v1/workloads/{waiting.pk}/waiting").json()["startEstimate"]
    assert (said["median"], said["p90"], said["code"]) == (None, None, "stale")
    running = holding(llm_team, "large", 4)
    assert robot.get(f"v1/workloads/{running.pk}/waiting").json()["startEstimate"] is None


def starts(workload: Workload, at: datetime) -> None:
    Workload.objects.filter(pk=workload.pk).update(phase=Phase.RUNNING, started_at=at)
    workload.phase = Phase.RUNNING
    note(workload=workload, at=at, type_=EventType.PHASE)


@pytest.mark.parametrize(
    ("minutes", "result"), [(5, "by_median"), (20, "by_p90"), (31, "late")], ids=["before median", "in band", "late"]
)
@pytest.mark.usefixtures("estimated")
def test_a_shown_estimate_is_judged_by_the_real_start(waiting: Workload, minutes: int, result: str) -> None:
    shown_estimate(waiting)
    shown_estimate(waiting)
    assert score_starts(NOW + timedelta(minutes=2)) == 0
    starts(waiting, NOW + timedelta(minutes=minutes))
    assert score_starts(NOW + timedelta(minutes=minutes)) == 1
    assert score_starts(NOW + timedelta(minutes=minutes)) == 0
    assert StoredStartEstimate.objects.get().result == result
    assert ForecastCount.objects.get().question == "start"


@pytest.mark.usefixtures("estimated")
def test_what_still_waits_after_its_p90_is_late_where_the_cluster_was_observed(waiting: Workload) -> None:
    shown_estimate(waiting)
    later = NOW + timedelta(minutes=33)
    Cluster.objects.update(observed_at=later)
    assert score_starts(later) == 1
    assert StoredStartEstimate.objects.get().result == "late"
    StoredStartEstimate.objects.update(result="")
    assert score_starts(later + timedelta(hours=1)) == 1
    assert StoredStartEstimate.objects.get().result == "not_judged"


@pytest.mark.usefixtures("estimated")
def test_what_its_people_stopped_is_not_judged(waiting: Workload, alice: User) -> None:
    shown_estimate(waiting)
    actions.stop(workload=waiting, actor=acting(alice))
    assert score_starts(NOW + timedelta(minutes=40)) == 1
    assert StoredStartEstimate.objects.get().result == "not_judged"


@pytest.fixture
def calibrated(cluster: Cluster) -> Cluster:
    for result, count in {"by_median": 24, "by_p90": 20, "late": 6, "not_judged": 3}.items():
        ForecastCount.objects.create(
            cluster=cluster, question="start", flavour="kai", week=NOW.date(), result=result, count=count
        )
    return cluster


SENTENCE = "50 start estimates: 48.0 % started by the median (50 % expected), 88.0 % by the p90 (90 % expected)."


def test_calibration_is_the_share_of_starts_by_median_and_p90(
    calibrated: Cluster, client_of: Clients, admin: User, robot: Robot
) -> None:
    assert start_calibration(calibrated, weeks=12).sentence == SENTENCE
    assert SENTENCE in client_of(admin).get("/clusters/lab/?tab=forecasts").content.decode()
    found = robot.get(f"v1/clusters/{calibrated.pk}/forecast-accuracy").json()
    assert found["startEstimates"]["startedByP90Percent"] == 88.0
    assert found["weeks"] == [], "start estimates are counted apart from forecasts"
    out = StringIO()
    call_command("forecast_report", "--cluster", "lab", stdout=out)
    assert out.getvalue().startswith(SENTENCE)


def test_of_fewer_than_ten_judged_no_shares_are_given(
    calibrated: Cluster, client_of: Clients, admin: User, robot: Robot
) -> None:
    ForecastCount.objects.exclude(result="late").update(count=1)
    assert "8 start estimates: too few to judge (fewer than 10)." in (
        client_of(admin).get("/clusters/lab/?tab=forecasts").content.decode()
    )
    found = robot.get(f"v1/clusters/{calibrated.pk}/forecast-accuracy").json()["startEstimates"]
    assert (found["judged"], found["startedByMedianPercent"]) == (8, 12.5)
    assert found["sentence"] == "8 start estimates: too few to judge (fewer than 10)."


def test_metrics_count_start_estimates_by_result(calibrated: Cluster, client: Client, settings: Settings) -> None:
    settings.RUNG_METRICS_TOKEN = "only-for-this-test"
    said = client.get("/metrics", headers={"Authorization": "Bearer only-for-this-test"}).content.decode()
    assert 'rung_start_estimates_total{cluster="lab",scheduler="kai",result="by_p90"} 20' in said
    assert "rung_forecasts_total{" not in said


def behind_a_large_one() -> tuple[Lab, Workload]:
    """Another project uses all 8 GPUs, half of them this one's. Its small workload is behind one that needs all."""
    lab = Lab()
    DepartmentQuota.objects.update(gpu_deserved=8 * GPU)
    lender, owner = lab.project("llm-team", deserved=4), lab.project("speech", deserved=4)
    lab.submit(lender, "captioner", gpus=8, priority="low")
    lab.settle()
    lab.submit(owner, "asr-large", gpus=8, priority="low")
    lab.settle()
    small = lab.submit(owner, "small", gpus=2, priority="low")
    lab.settle()
    return lab, fresh(small)


def test_the_card_and_the_preview_name_who_is_ahead_in_the_queue_so_that_no_others_are_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, small = behind_a_large_one()
    owner = small.project
    headline = why_waiting(small)
    why = (
        "needs 2 GPUs in h100; 0 GPUs free, at most 0 on one node, and it is behind asr-large (8 GPUs) in its queue, "
        "which waits too. First in its queue, it would start after evictions."
    )
    assert headline
    assert headline.sentence.endswith(f": {why}")
    assert headline.numbers["behind"] == "asr-large (8 GPUs)"
    monkeypatch.setattr("workloads.forecast.selectors.preview.timezone.now", lambda: lab.now + timedelta(seconds=1))
    spec = spec_of(pytorch_job("another", gpus=2), namespace=owner.namespace, priority="low")
    assert "it is behind asr-large (8 GPUs) and 1 more in its queue, which wait too." in (
        forecast(spec=spec, project=owner, actor=SYSTEM).sentence
    )


def test_what_a_higher_priority_then_reclaims_is_no_story_in_which_priority_did_not_matter() -> None:
    lab, small = behind_a_large_one()
    actions.change_priority(workload=small, priority="medium-low", actor=SYSTEM)
    for _ in range(4):
        Workload.objects.filter(due_at__isnull=False).update(due_at=small.created_at)  # the old pod has gone
        lab.settle(12)
    (record,) = PreemptionRecord.objects.select_related("victim", "preemptor").filter(first=None)
    assert (fresh(small).phase, record.victim.name, record.cause) == (Phase.RUNNING, "captioner", "reclaim")
    assert "A reclaim does not need a higher priority; priority orders the workloads inside a queue." in (
        eviction_timeline([record], SYSTEM).sentence
    )
