"""How many forecasts held: on the cluster's page, over REST, as metrics and by `manage.py forecast_report`."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from scheduling.forecast.scenario import Scenario
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from tests.workloads.forecast.test_accuracy import Asker, asker, judged, unexplained
from tests.workloads.sandbox_lab import Lab
from workloads.forecast.models import ForecastCount, StoredForecast
from workloads.forecast.selectors.accuracy import in_words, missed_forecasts
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
MONDAY = date(2026, 11, 16)


def count(cluster: Cluster, result: str, number: int, why: str = "", *, week: date = MONDAY, flavour: str = "") -> None:
    ForecastCount.objects.create(
        cluster=cluster, flavour=flavour or cluster.flavour, week=week, result=result, why=why, count=number
    )


@pytest.fixture
def counted(cluster: Cluster) -> Cluster:
    """1,240 forecasts of two weeks and two schedulers, of which 16 did not hold, and two that were not judged."""
    count(cluster, "held", 1000)
    count(cluster, "held", 224, week=MONDAY - timedelta(weeks=1), flavour="volcano")
    count(cluster, "doubted", 9, "rivals_first")
    count(cluster, "overtaken", 4, "submission")
    count(cluster, "unexplained", 3)
    count(cluster, "not_judged", 2, "stopped")
    return cluster


SENTENCE = (
    "1,240 forecasts, 98.7 % held; 16 did not: 9 had the doubt “rivals first”, "
    "4 were overtaken by another submission, 3 unexplained. Not judged: 2 stopped or changed by users."
)


def missed(cluster: Cluster, workload: Workload, **about: Any) -> StoredForecast:
    values: dict[str, Any] = {
        "at": timezone.now(),
        "data_at": timezone.now() - timedelta(seconds=3),
        "flavour": cluster.flavour,
        "pool_name": "h100",
        "verdict": "starts",
        "starts": True,
        "result": "unexplained",
        **about,
    }
    return StoredForecast.objects.create(cluster=cluster, project=workload.project, workload=workload, **values)


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/clusters/lab/?tab=forecasts{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_the_page_says_it_in_one_sentence_and_by_week_and_scheduler(
    client_of: Clients, admin: User, counted: Cluster
) -> None:
    text = page(client_of(admin))
    assert SENTENCE in text
    assert "2026-11-16" in text
    assert "1000 (98.4 %)" in text
    assert "224 (100.0 %)" in text
    assert "Volcano" in text


def test_without_a_judged_forecast_the_page_says_so(client_of: Clients, admin: User, cluster: Cluster) -> None:
    assert "No forecast has been judged yet." in page(client_of(admin))


def test_only_admins_of_clusters_see_them(client_of: Clients, alice: User, counted: Cluster) -> None:
    text = page(client_of(alice))
    assert "1,240 forecasts" not in text
    assert ">Forecasts<" not in text


def test_those_that_did_not_hold_lead_to_their_workloads(
    client_of: Clients, admin: User, counted: Cluster, llm_team: Project
) -> None:
    mine, other = WorkloadFactory(project=llm_team, name="mine"), WorkloadFactory(project=llm_team, name="other")
    low, victim = WorkloadFactory(project=llm_team, name="low"), WorkloadFactory(project=llm_team, name="victim")
    missed(counted, mine, result="overtaken", why="submission", overtaken_by=other)
    row = missed(counted, low, verdict="evicts", victims=[str(victim.pk), "pod:1", "pod:2"], started_at=timezone.now())
    text = page(client_of(admin))
    assert f'href="/workloads/{mine.pk}/">mine</a>' in text
    assert f'Overtaken by another submission. <a href="/workloads/{other.pk}/">other</a>' in text
    assert "starts, evicts a pod that Rung did not create (× 2), victim" in text
    assert f"manage.py forecast_report --cluster lab --export {row.pk}" in text


def test_without_rows_the_page_says_whether_there_were_none_in_the_same_weeks_or_they_are_no_longer_stored(
    client_of: Clients, admin: User, counted: Cluster
) -> None:
    assert "They are no longer stored." in page(client_of(admin))
    ForecastCount.objects.exclude(result="held").delete()
    text = page(client_of(admin))
    assert "in the newest 12 weeks. Weeks begin" in text
    assert "None in the newest 12 weeks." in text


def test_many_come_page_by_page(client_of: Clients, admin: User, counted: Cluster, llm_team: Project) -> None:
    for number in range(30):
        at = timezone.now() - timedelta(minutes=number)
        missed(counted, WorkloadFactory(project=llm_team, name=f"work-{number}"), at=at)
    client = client_of(admin)
    first = client.get("/clusters/lab/?tab=forecasts")
    assert ">work-24<" in first.content.decode()
    assert ">work-25<" not in first.content.decode()
    assert ">work-25<" in page(client, f"&after={first.context['page'].next}")
    assert client.get("/clusters/lab/?tab=forecasts&after=forged").status_code == 400


def test_names_of_another_project_stay_general(
    counted: Cluster, llm_team: Project, vision_team: Project, alice: User, admin: User
) -> None:
    theirs = WorkloadFactory(project=vision_team, name="secret-one")
    secret, own = WorkloadFactory(project=vision_team, name="secret"), WorkloadFactory(project=llm_team, name="own")
    missed(counted, theirs, overtaken_by=secret, victims=[str(secret.pk), str(own.pk)], evicted=[str(secret.pk)])
    (row,) = in_words(list(missed_forecasts(counted)), acting(alice))
    assert (row.name, row.workload, row.overtaken_by) == ("another project's workload", None, None)
    assert row.forecast == "starts, evicts another project's workload, own"
    assert "secret" not in str([row.forecast, row.happened, row.reason])
    (all_of_it,) = in_words(list(missed_forecasts(counted)), acting(admin))
    assert all_of_it.forecast == "starts, evicts own, secret"


def test_rest_gives_weeks_and_a_page_of_those_that_did_not_hold(
    robot: Robot, counted: Cluster, llm_team: Project
) -> None:
    workload = WorkloadFactory(project=llm_team, name="mine")
    missed(counted, workload, verdict="waits", starts=False, started_at=timezone.now())
    found = robot.get(f"v1/clusters/{counted.pk}/forecast-accuracy?weeks=1").json()
    assert [week["week"] for week in found["weeks"]] == ["2026-11-16"]
    assert (found["weeks"][0]["judged"], found["weeks"][0]["heldPercent"], found["weeks"][0]["notJudged"]) == (
        1016,
        98.4,
        2,
    )
    assert {"result": "doubted", "reason": "rivals_first", "count": 9} in found["weeks"][0]["results"]
    (row,) = found["missed"]
    assert (row["workloadId"], row["forecast"], row["outcome"]) == (str(workload.pk), "waits", "started")
    assert (row["result"], row["explanation"], row["overtakenById"]) == ("unexplained", "Unexplained.", None)
    assert 2 < row["dataAgeSeconds"] < 4
    assert robot.get(f"v1/clusters/{counted.pk}/forecast-accuracy").json()["sentence"] == SENTENCE


@pytest.mark.parametrize("query", ["weeks=0", "weeks=53", "weeks=x", "limit=-1", "after=forged"])
def test_bad_questions_are_400(robot: Robot, counted: Cluster, query: str) -> None:
    assert robot.get(f"v1/clusters/{counted.pk}/forecast-accuracy?{query}").status_code == 400


def test_metrics_count_by_cluster_scheduler_and_result(client: Client, counted: Cluster, settings: Settings) -> None:
    settings.RUNG_METRICS_TOKEN = "only-for-this-test"
    said = client.get("/metrics", headers={"Authorization": "Bearer only-for-this-test"}).content.decode()
    assert f'rung_forecasts_total{{cluster="lab",scheduler="{counted.flavour}",result="held"}} 1000' in said
    assert 'rung_forecasts_total{cluster="lab",scheduler="volcano",result="held"} 224' in said
    assert f'rung_forecasts_total{{cluster="lab",scheduler="{counted.flavour}",result="doubted"}} 9' in said


def report(*arguments: str) -> str:
    out = StringIO()
    call_command("forecast_report", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_reports_with_a_link_to_each(counted: Cluster, llm_team: Project) -> None:
    workload = WorkloadFactory(project=llm_team, name="mine")
    missed(counted, workload)
    text = report("--cluster", "lab")
    assert text.startswith(SENTENCE)
    assert "Week of 2026-11-09, Volcano: 224 forecasts, 100 % held." in text
    assert "mine: Forecast: starts. Outcome: waited. Unexplained." in text
    assert f"/workloads/{workload.pk}/" in text


def test_the_command_says_that_there_is_nothing_yet(cluster: Cluster) -> None:
    assert report("--cluster", "lab") == "No forecast of lab has been judged yet.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cluster", "nowhere"), "no cluster named nowhere"),
        (("--cluster", "lab", "--weeks", "0"), "1 to 520"),
        (("--cluster", "lab", "--export", "99999"), "no forecast 99999"),
        (("--cluster", "lab", "--export", str(10**30)), "no forecast"),
    ],
)
def test_the_command_refuses_what_it_cannot_find(cluster: Cluster, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        report(*arguments)


@pytest.fixture
def team() -> Asker:
    return asker(Lab("kai", name="lab"), "top-secret-team")


def test_what_is_unexplained_is_exported_under_other_names_and_runs(team: Asker, tmp_path: Path) -> None:
    team.submit("running", gpus=2, priority="low")
    team.lab.settle(3)
    running = Workload.objects.get(name="running")
    said = team.ask("mine", gpus=8, priority="high")
    assert [each.workload for each in said.victims] == [running]
    Workload.objects.filter(pk=team.submit("mine", gpus=8, priority="high").pk).update(
        applied_generation=1, phase="Pending"
    )
    row = judged(team.lab, Workload.objects.get(name="mine"))
    assert row.result == "unexplained"
    file = tmp_path / "scenarios.jsonl"
    for _ in range(2):
        report("--cluster", "lab", "--export", str(row.pk), "--output", str(file))
    text, again = file.read_text().splitlines()
    assert text == again == report("--cluster", "lab", "--export", str(row.pk)).strip()
    assert not [word for word in ("secret", "node-0", "h100", str(running.pk)) if word in text]
    scenario = Scenario.from_json(json.loads(text))
    assert (scenario.kind, scenario.outcome().kind, scenario.agrees()) == ("pending", "preempts", False)
    named = report("--cluster", "lab", "--export", str(row.pk), "--names")
    assert "node-0" in named
    assert Scenario.from_json(json.loads(named)).outcome().kind == "preempts"


def test_only_the_unexplained_are_exported(team: Asker) -> None:
    row = judged(team.lab, unexplained(team))
    StoredForecast.objects.update(result="doubted")
    with pytest.raises(CommandError, match="is not unexplained"):
        report("--cluster", "lab", "--export", str(row.pk))
    StoredForecast.objects.update(result="unexplained", input=None)
    with pytest.raises(CommandError, match="was not stored"):
        report("--cluster", "lab", "--export", str(row.pk))
