"""The line of what a project held, and the page that shows it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.watch.models import Sample
from clusters.watch.selectors import ALL, SeriesPoint, TimeWindow
from tenants.access.models import User
from tenants.organisation.models import Project
from tenants.usage.selectors import HEIGHT, PART_TITLES, SPANS, WIDTH, draw

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = TimeWindow(NOON, NOON + 10 * HOUR, 10)


def point(hours: float, held: float, deserved: float = 4000) -> SeriesPoint:
    return SeriesPoint(NOON + hours * HOUR, {"gpu_held": held, "gpu_deserved": deserved})


def test_the_highest_of_both_lines_touches_the_upper_edge() -> None:
    trend = draw([point(0, 1000), point(1, 8000)], WINDOW)
    first, second = trend.marks
    assert (first.x, first.held_y, first.reference_y) == (0, HEIGHT * 7 / 8, HEIGHT / 2)
    assert (second.x, second.held_y, trend.top) == (WIDTH / 10, 0, 8000)
    assert trend.held_lines == [f"0.0,{HEIGHT * 7 / 8:.1f} {WIDTH / 10:.1f},0.0"]


def test_where_nothing_was_measured_the_line_is_broken() -> None:
    trend = draw([point(0, 1000), point(1, 1000), point(5, 1000)], WINDOW)
    assert [len(run) for run in trend.runs] == [2, 1]


def test_mean_and_most_are_of_what_was_held() -> None:
    trend = draw([point(0, 1000), point(1, 2000), point(2, 6000)], WINDOW)
    assert (trend.mean, trend.most) == (3000, 6000)


@pytest.mark.parametrize("points", [[], [point(1, 0, 0)]], ids=["nothing measured", "nothing held or deserved"])
def test_nothing_is_a_flat_line(points: list[SeriesPoint]) -> None:
    trend = draw(points, WINDOW)
    assert (trend.top, trend.mean, trend.most) == (0, 0, 0)
    assert all(mark.held_y == HEIGHT for mark in trend.marks)


def test_the_page_shows_the_line_and_the_same_numbers_as_a_table(
    client_of: Callable[[User], Client], bob: User, llm_team: Project
) -> None:
    figures = {ALL: {"gpu_held": 2500, "gpu_deserved": 4000}}
    at = timezone.now() - HOUR
    Sample.objects.create(cluster=llm_team.cluster, kind="project", owner=str(llm_team.pk), at=at, figures=figures)
    page = client_of(bob).get(f"/projects/{llm_team.name}/?span=7d").content.decode()
    assert "2.5 GPUs allocated on average, highest 3-hour average 2.5 GPUs; dashed: deserved quota." in page
    assert '<polyline class="held"' in page
    assert "<td>2.5 GPUs</td>" in page
    assert 'href="?span=24h#use"' in page


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        pytest.param(46, "Measured in 2 of 48 half-hour parts.", id="sampled for an hour"),
        pytest.param(2, "", id="nearly complete"),
    ],
)
def test_the_page_says_in_how_many_parts_of_the_span_there_is_a_sample(
    client_of: Callable[[User], Client], bob: User, llm_team: Project, missing: int, sentence: str
) -> None:
    owner, figures = str(llm_team.pk), {ALL: {"gpu_held": 2500, "gpu_deserved": 4000}}
    moments = [timezone.now() - HOUR * (part + 0.5) / 2 for part in range(48 - missing)]
    Sample.objects.bulk_create(
        Sample(cluster=llm_team.cluster, kind="project", owner=owner, at=at, figures=figures) for at in moments
    )
    page = client_of(bob).get(f"/projects/{llm_team.name}/").content.decode()
    assert sentence in page
    assert ("Measured in" in page) == bool(sentence)


def test_a_part_is_called_by_its_length() -> None:
    lengths = {span: back / parts for span, (back, parts) in SPANS.items()}
    assert lengths == {"24h": HOUR / 2, "7d": 3 * HOUR}
    assert {span: str(title) for span, title in PART_TITLES.items()} == {"24h": "half-hour", "7d": "3-hour"}


def test_a_project_that_was_not_measured_says_so(
    client_of: Callable[[User], Client], bob: User, llm_team: Project
) -> None:
    page = client_of(bob).get(f"/projects/{llm_team.name}/?span=nonsense").content.decode()
    assert "No data for this period" in page


def test_the_page_of_a_cluster_shows_gpus_in_use_beside_those_of_its_nodes(
    client_of: Callable[[User], Client], bob: User, cluster: Cluster
) -> None:
    figures = {ALL: {"gpu_held": 2500, "gpu_deserved": 4000, "gpu_total": 8000}}
    at = timezone.now() - HOUR
    Sample.objects.create(cluster=cluster, kind="cluster", owner=str(cluster.pk), at=at, figures=figures)
    page = client_of(bob).get(f"/clusters/{cluster.name}/?tab=activity").content.decode()
    assert "2.5 GPUs allocated on average, highest half-hour average 2.5 GPUs; dashed: GPUs of the nodes." in page
    assert "<td>8 GPUs</td>" in page
    assert 'href="?tab=activity&amp;span=7d#use"' in page
