"""What is measured every minute: once, at a constant price, and ever sparser the older it is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import Average, Sample
from clusters.watch.selectors import (
    ALL,
    CLUSTER,
    NODE_POOL,
    RESOLUTIONS,
    Metric,
    SampleOwner,
    TimeWindow,
    averages_of,
    series_of,
)
from clusters.watch.services.usage import (
    EVERY,
    FEWEST,
    SAMPLING,
    TIDYING,
    average,
    batch_of,
    sample_clusters,
    take_samples,
    thin,
    tidy_samples,
)
from clusters.watch.tasks import sample
from tenants.organisation.models import Project
from tenants.usage.selectors import DEPARTMENT, PROJECT
from tests.factories.tenants import DepartmentFactory, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.state.models import Phase
from workloads.state.rules import ENDED, LIVE

NOON = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Set the clock, and let the cluster have been looked at just then."""

    def set_to(moment: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: moment)
        Cluster.objects.update(observed_at=moment)

    return set_to


@pytest.fixture
def busy(llm_team: Project) -> Project:
    """Two GPUs held by a running workload; another one that has waited for two minutes."""
    running = WorkloadFactory.create(project=llm_team, phase=Phase.RUNNING)
    ObservedPodFactory.create(workload=running, gpu_milli=2000)
    WorkloadFactory.create(project=llm_team, phase=Phase.PENDING, phase_at=NOON - 2 * MINUTE, created_at=NOON)
    WorkloadFactory.create(project=llm_team, phase=Phase.COMPLETED)
    return llm_team


def figures(kind: str, owner: object, pool: str = ALL) -> dict[str, Any]:
    found: dict[str, Any] = Sample.objects.get(kind=kind, owner=str(owner)).figures[pool]
    return found


def test_cluster_pool_department_and_project_say_what_is_there(
    busy: Project, h100: NodePool, a100: NodePool, at: Callable[[datetime], None]
) -> None:
    at(NOON)
    take_samples()
    whole = figures(CLUSTER, busy.cluster_id)
    assert (whole[Metric.GPU_NODES], whole[Metric.GPU_TOTAL], whole[Metric.GPU_HELD]) == (3, 24_000, 2000)
    assert (whole[Metric.WORKLOADS], whole[Metric.WAITING], whole[Metric.GPU_DESERVED]) == (2, 1, 4000)
    assert whole[Metric.WAITED] == pytest.approx(120, abs=8)
    assert figures(NODE_POOL, h100.pk)[Metric.GPU_HELD] == 2000
    assert figures(NODE_POOL, a100.pk)[Metric.GPU_HELD] == 0
    assert figures(PROJECT, busy.pk, "h100")[Metric.GPU_HELD] == 2000
    assert figures(PROJECT, busy.pk)[Metric.WORKLOADS] == 2
    assert figures(DEPARTMENT, busy.department_id)[Metric.GPU_DESERVED] == 8000


def test_two_beats_measure_once_a_minute(busy: Project, at: Callable[[datetime], None]) -> None:
    at(NOON)
    sample()
    sample()
    at(NOON + timedelta(seconds=20))
    sample()
    first = Sample.objects.filter(kind=PROJECT, owner=str(busy.pk))
    assert [row.at for row in first] == [NOON.replace(second=0)]
    at(NOON + MINUTE)
    sample()
    assert first.all().count() == 2


@pytest.mark.django_db
def test_each_run_samples_the_next_clusters_until_all_have_one_of_the_minute(at: Callable[[datetime], None]) -> None:
    clusters = {str(ProjectFactory.create().cluster_id) for _ in range(FEWEST + 2)}
    at(NOON)
    take_samples()
    first = set(Sample.objects.filter(kind=CLUSTER).values_list("owner", flat=True))
    assert len(first) == FEWEST
    take_samples()
    assert set(Sample.objects.filter(kind=CLUSTER).values_list("owner", flat=True)) == clusters
    assert take_samples() == 0
    at(NOON + MINUTE)
    assert take_samples()


@pytest.mark.parametrize("watched", [1, 5, 49, 50, 51, 1000])
def test_a_minute_has_runs_enough_for_any_number_of_clusters(watched: int) -> None:
    assert batch_of(watched) * (EVERY // SAMPLING - 2) >= watched


def test_a_minute_that_is_written_already_stays_as_it_is(busy: Project) -> None:
    sample_clusters([busy.cluster_id], at=NOON)
    before = Sample.objects.count()
    sample_clusters([busy.cluster_id], at=NOON)
    assert Sample.objects.count() == before


def test_many_clusters_and_projects_cost_no_more_queries_than_one(busy: Project) -> None:
    with CaptureQueriesContext(connection) as few:
        sample_clusters([busy.cluster_id], at=NOON)
    for number in range(40):
        department = DepartmentFactory.create(cluster=busy.cluster)
        project = ProjectFactory.create(department=department)
        ProjectQuotaFactory.create(project=project, node_pool=busy.cluster.node_pools.all()[number % 2])
        WorkloadFactory.create(project=project, phase=Phase.PENDING)
    others = [ProjectQuotaFactory.create().project.cluster_id for _ in range(3)]
    with CaptureQueriesContext(connection) as many:
        rows = sample_clusters([busy.cluster_id, *others], at=NOON + MINUTE)
    assert rows > 80
    assert Sample.objects.filter(kind=CLUSTER, at=NOON + MINUTE).count() == 4
    assert len(many) == len(few) <= 20


def test_a_cluster_that_nobody_looks_at_is_not_measured(busy: Project, at: Callable[[datetime], None]) -> None:
    at(NOON)
    Cluster.objects.update(observed_at=NOON - 5 * MINUTE)
    assert take_samples() == 0


def test_the_first_of_a_period_is_kept_for_longer(busy: Project) -> None:
    for moment in (NOON, NOON + MINUTE, NOON + 10 * MINUTE, NOON + 70 * MINUTE, NOON + timedelta(days=1)):
        sample_clusters([busy.cluster_id], at=moment.replace(second=0))
    rows = Sample.objects.filter(kind=CLUSTER).order_by("at")
    assert [row.grain for row in rows] == [3, 0, 1, 2, 3]


def test_samples_become_sparser_and_end(busy: Project, at: Callable[[datetime], None]) -> None:
    for number, grain in enumerate(RESOLUTIONS):
        for age in (grain.retention - MINUTE, grain.retention + MINUTE):
            Sample.objects.create(
                cluster=busy.cluster, kind=f"k{number}", owner="1", at=NOON - age, grain=number, figures={}
            )
    at(NOON)
    assert thin([busy.cluster_id]) == len(RESOLUTIONS)
    assert {row.kind: row.at for row in Sample.objects.all()} == {
        f"k{number}": NOON - grain.retention + MINUTE for number, grain in enumerate(RESOLUTIONS)
    }


def test_averages_are_of_what_was_held(busy: Project, at: Callable[[datetime], None]) -> None:
    at(NOON)
    kept = {"cluster": busy.cluster, "kind": PROJECT, "owner": "7"}
    for hours, held in ((1, 1000), (2, 3000), (48, 8000), (20 * 24, 4000)):
        Sample.objects.create(
            **kept, at=NOON - timedelta(hours=hours), grain=2, figures={ALL: {Metric.GPU_HELD.value: held}}
        )
    average([busy.cluster_id])
    row = averages_of(PROJECT, [7])["7"]
    assert (row.day, row.week, row.month) == (2000, 4000, 4000)
    at(NOON + timedelta(days=60))
    average([busy.cluster_id])
    assert not Average.objects.exists()


def test_every_cluster_has_its_samples_averaged_once_in_ten_minutes(
    busy: Project, at: Callable[[datetime], None]
) -> None:
    clusters = {busy.cluster_id, *(ProjectFactory.create().cluster_id for _ in range(2))}
    sample_clusters(clusters, at=NOON.replace(second=0))
    moments: dict[datetime, set[Any]] = {}
    for number in range(TIDYING // SAMPLING):
        at(NOON + timedelta(seconds=number * SAMPLING))
        tidy_samples()
        moments[timezone.now()] = set(Average.objects.filter(at=timezone.now()).values_list("cluster", flat=True))
    assert sorted(each for found in moments.values() for each in found) == sorted(clusters)
    assert all(len(found) <= 1 for found in moments.values())


def test_a_series_has_means_of_its_parts_and_no_point_where_nothing_was_measured(busy: Project) -> None:
    kept = {"cluster": busy.cluster, "kind": PROJECT, "owner": "7"}
    for minutes, held in ((0, 1000), (1, 3000), (25, 5000)):
        named = {ALL: {"gpu_held": held}, "h100": {"gpu_held": held / 2}}
        Sample.objects.create(**kept, at=NOON + minutes * MINUTE, figures=named)
    window = TimeWindow(NOON, NOON + 30 * MINUTE, 3)
    (points,) = series_of([SampleOwner(PROJECT, "7")], window).values()
    assert [(point.at, point.figures["gpu_held"]) for point in points] == [
        (NOON + MINUTE, 2000),
        (NOON + 25 * MINUTE, 5000),
    ]
    (in_pool,) = series_of([SampleOwner(PROJECT, "7")], window, pool="h100").values()
    assert [point.figures["gpu_held"] for point in in_pool] == [1000, 2500]
    (elsewhere,) = series_of([SampleOwner(PROJECT, "7")], window, pool="a100").values()
    assert [point.figures["gpu_held"] for point in elsewhere] == [0, 0]


def test_every_phase_but_the_ended_ones_is_alive() -> None:
    assert set(Phase.values) == LIVE | ENDED
