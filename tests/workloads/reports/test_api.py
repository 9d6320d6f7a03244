"""Usage reports over REST: refusals, dry runs, retries, and the file."""

from typing import Any

import pytest

from clusters.watch.models import Sample
from tenants.organisation.models import Project
from tests.factories.workloads import ReportFactory
from tests.support.rest_clients import Robot
from workloads.reports import services as reports_services
from workloads.reports.models import Report

PATH = "v1/org-unit/reports"
GOOD: dict[str, Any] = {"name": "use", "start": "2026-01-01T00:00:00Z", "end": "2026-02-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"name": "x" * 101}, "/name", id="T51 a long name"),
        pytest.param({"name": "a\x00b"}, "/name", id="NUL"),
        pytest.param({"start": "yesterday"}, "/start", id="no time"),
        pytest.param({"end": None}, "/end", id="no end"),
        pytest.param({"groupBy": "Team"}, "/groupBy", id="another group"),
        pytest.param({"filterBy": ["projectName==a"] * 4}, "/filterBy", id="too many filters"),
        pytest.param({"filterBy": "projectName==a"}, "/filterBy", id="no list"),
        pytest.param({"filterBy": ["phase==Running"]}, "/filterBy/0", id="another field"),
        pytest.param({"format": "pdf"}, "/format", id="an unknown field"),
        pytest.param({"end": "2027-06-01T00:00:00Z"}, "/start", id="too long"),
    ],
)
def test_a_bad_field_is_named(robot: Robot, body: dict[str, Any], pointer: str) -> None:
    answer = robot.send("POST", PATH, GOOD | body)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert not Report.objects.exists()


def test_times_without_a_zone_are_utc_and_null_is_as_absent(robot: Robot) -> None:
    body = {**GOOD, "start": "2026-01-01T00:00:00.000001", "groupBy": None, "filterBy": None, "description": None}
    answer = robot.send("POST", PATH, body)
    assert answer.status_code == 202, answer.content
    assert answer.json()["start"] == "2026-01-01T00:00:00.000001Z"
    assert (answer.json()["groupBy"], answer.json()["filterBy"]) == (None, [])


def test_a_dry_run_keeps_nothing_and_a_retry_keeps_one(robot: Robot) -> None:
    assert robot.send("POST", f"{PATH}?dryRun=true", GOOD).status_code == 200
    assert not Report.objects.exists()
    first, again = (robot.send("POST", PATH, GOOD, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == again.json()
    assert Report.objects.count() == 1


def test_nothing_measured_yet_means_not_available(robot: Robot, llm_team: Project) -> None:
    assert robot.get(f"{PATH}/availability").json() == {"isAvailable": False}
    Sample.objects.create(cluster=llm_team.cluster, kind="cluster", owner="x", at="2026-01-01T00:00:00Z", figures={})
    assert robot.get(f"{PATH}/availability").json() == {"isAvailable": True}


def test_the_file_is_the_same_whenever_it_is_asked_for(robot: Robot) -> None:
    key = robot.send("POST", PATH, GOOD | {"name": 'use "of" all\u2026/..'}).json()["id"]
    assert robot.get(f"{PATH}/{key}/file").status_code == 409
    reports_services.sweep()
    first, again = (robot.get(f"{PATH}/{key}/file") for _ in range(2))
    assert first["Content-Type"] == "text/csv; charset=utf-8"
    assert first["Content-Disposition"] == 'attachment; filename="use-of-all.csv"'
    assert first.content == again.content
    assert first.content.count(b"\r\n") == 2


def test_a_failure_says_why_there_is_no_file(robot: Robot) -> None:
    row = ReportFactory(
        subject_kind="service-account", subject_id=str(robot.account.pk), status="Failed", message="Because of that."
    )
    assert robot.get(f"{PATH}/{row.pk}").json()["statusMessage"] == "Because of that."
    answer = robot.get(f"{PATH}/{row.pk}/file")
    assert (answer.status_code, answer.json()["details"]) == (409, "report_not_ready")
    assert "Because of that." in answer.json()["message"]


@pytest.mark.parametrize(
    "query", ["sortBy=size", "filterBy=size==1", "limit=0", "sortBy=name&sortOrder=up", "offset=-1"]
)
def test_t54_a_list_refuses_what_it_does_not_know(robot: Robot, query: str) -> None:
    assert robot.get(f"{PATH}?{query}").status_code == 400
