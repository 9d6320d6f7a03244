"""Usage reports from the command line: asked for, waited for, written, deleted."""

from pathlib import Path
from typing import Any

import pytest

from clusters.watch.models import Sample
from tenants.organisation.models import Project
from tests.cli.conftest import Rung
from tests.cli.fake_portal import Answer, portal_that
from workloads.reports import services as reports_services
from workloads.reports.models import Report

JUNE = ("--from", "2026-06-01", "--to", "2026-06-30")
ROW = {
    "id": "00000000-0000-4000-8000-000000000001",
    "name": "june",
    "start": "2026-06-01T00:00:00Z",
    "end": "2026-07-01T00:00:00Z",
    "groupBy": "Project",
    "filterBy": [],
    "createdAt": "2026-07-01T00:00:00Z",
    "status": "Pending",
    "statusMessage": None,
}


def standing(status: str, message: str | None = None) -> Answer:
    return Answer(body={**ROW, "status": status, "statusMessage": message})


@pytest.fixture
def measured(llm_team: Project) -> Project:
    """Something has been measured."""
    Sample.objects.create(
        cluster=llm_team.cluster, kind="cluster", owner=str(llm_team.cluster_id), at="2026-06-01T00:00:00Z", figures={}
    )
    return llm_team


def test_a_report_is_asked_for_listed_written_and_deleted(signed_in: Rung, measured: Project, tmp_path: Path) -> None:
    requested = ("reports", "make", "june", *JUNE, "--by", "cluster", "--cluster", measured.cluster.name, "--no-wait")
    made = signed_in(*requested, "-o", "json")
    assert made.code == 0, made.err
    assert [made.data[0][name] for name in ("start", "end", "groupBy", "status")] == [
        "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z", "Cluster", "Pending",
    ]  # fmt: skip
    assert made.data[0]["filterBy"] == [f"clusterId=={measured.cluster_id}"]
    reports_services.sweep()
    header, row = signed_in("reports").out.splitlines()
    assert header.split()[:4] == ["NAME", "FROM", "TO", "FOR"]
    assert row.split()[:4] == ["june", "2026-06-01", "2026-06-30", "Cluster"]
    file = tmp_path / "june.csv"
    assert signed_in("reports", "get", "june", "--file", str(file)).code == 0
    text = file.read_bytes().decode()
    assert text.startswith("cluster,department,project")
    assert text.count("\r\n") == len(text.splitlines())
    shown = signed_in("reports", "get", made.data[0]["id"])
    assert shown.out.splitlines() == text.splitlines()
    assert shown.err == Report.objects.get().message + "\n"
    assert signed_in("reports", "get", "june", "-o", "json").data["status"] == "Ready"
    assert signed_in("reports", "delete", "june").code == 64
    assert signed_in("reports", "delete", "june", stdin="n\n", terminal=True).code == 1
    assert signed_in("reports", "delete", "june", "--yes").out == "Deleted june.\n"
    assert "No reports." in signed_in("reports").out
    assert signed_in("reports", "get", "june").code == 1


def test_of_several_of_one_name_the_newest_is_meant_and_said_to_be(signed_in: Rung, measured: Project) -> None:
    ids = [signed_in("reports", "make", "daily", "--no-wait", "-o", "json").data[0]["id"] for _ in range(2)]
    found = signed_in("reports", "get", "daily", "-o", "json")
    assert (found.data["id"], "2 reports are named daily" in found.err) == (ids[1], True)


def test_without_days_it_is_of_the_last_seven_of_them_as_far_as_today_has_come(
    signed_in: Rung, measured: Project
) -> None:
    (made,) = signed_in("reports", "make", "week", "-p", "llm-team", "--no-wait", "-o", "json").data
    row = Report.objects.get()
    assert row.start.time().isoformat() == "00:00:00"
    assert (row.end.date() - row.start.date()).days == 6
    assert made["filterBy"] == ["projectName==llm-team"]


@pytest.fixture
def asking(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RUNG_CLIENT_ID", "pipeline")
    monkeypatch.setenv("RUNG_CLIENT_SECRET", "s3cret-canary")
    return rung


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        (standing("Ready", "Coverage: 97 % of the period."), 0, "Coverage: 97 % of the period."),
        (standing("Failed", "Four attempts. "), 1, "june failed: Four attempts. "),
        (standing("Processing"), 5, "After 1.2 s june is still Processing"),
    ],
)
def test_it_is_waited_for_and_the_ending_says_what_became_of_it(
    asking: Rung, last: Answer, code: int, said: str
) -> None:
    with portal_that(standing("Pending"), standing("Processing"), last) as portal:
        ended = asking("--url", portal.url, "reports", "make", "june", *JUNE, "--timeout", "1.2")
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert ("Ready" in ended.out) == (code == 0)
    assert portal.requested[0].body["end"] == "2026-07-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "args", [("--from", "yesterday"), ("--from", "2026-06-02", "--to", "2026-06-01"), ("--by", "team")]
)
def test_days_that_are_none_are_refused_before_anything_is_asked(asking: Rung, args: tuple[str, ...]) -> None:
    with portal_that(standing("Ready")) as portal:
        ended = asking("--url", portal.url, "reports", "make", "june", *args)
    assert (ended.code, portal.requested) == (64, [])


def test_a_file_that_cannot_be_written_is_told(asking: Rung, tmp_path: Path) -> None:
    with portal_that(standing("Ready"), Answer(body=b"cluster\r\n")) as portal:
        ended = asking("--url", portal.url, "reports", "get", ROW["id"], "--file", str(tmp_path / "no" / "june.csv"))
    assert (ended.code, "Cannot write" in ended.err) == (64, True)
