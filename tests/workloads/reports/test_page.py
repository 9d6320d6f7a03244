"""Usage reports in the browser: asked for by days, watched, downloaded, thrown away."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import ReportFactory
from workloads.reports import services as reports_services
from workloads.reports.models import Report

Clients = Callable[[User], Client]
PATH = "/reports/"


@pytest.fixture
def person(client_of: Clients, bob: User, llm_team: Project, vision_team: Project) -> Client:
    """bob, a member of llm-team."""
    return client_of(bob)


def days(first: int, last: int, **more: str) -> dict[str, str]:
    """So many days ago."""
    today = timezone.now().astimezone(UTC).date()
    period = {"start": str(today - timedelta(days=first)), "end": str(today - timedelta(days=last))}
    return {"name": "use", "group_by": "Project", "filter_by": "", **period, **more}


def words(client: Client, path: str = PATH, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_somebody_without_a_report_reads_what_one_is(person: Client) -> None:
    page = words(person)
    assert "No reports yet." in page
    assert 'hx-trigger="every' not in page
    assert ">project llm-team</option>" in page
    assert "vision-team" not in page


def test_it_is_asked_for_watched_downloaded_and_deleted(person: Client) -> None:
    answer = person.post(PATH, days(7, 1, filter_by="project llm-team"))
    assert (answer.status_code, answer["Location"]) == (302, PATH)
    row = Report.objects.get()
    assert row.end - row.start == timedelta(days=7)
    assert (row.start.hour, row.start.minute) == (0, 0)
    page = words(person)
    assert "grouped by project, of llm-team" in page
    assert "every 2s" in page
    assert "Download" not in page
    reports_services.sweep()
    part = words(person, **{"HX-Request": "true", "HX-Target": "reports"})
    assert "<html" not in part
    assert "every 2s" not in part
    file = person.get(f"{PATH}{row.pk}/file/")
    assert file["Content-Disposition"] == 'attachment; filename="use.csv"'
    assert file.content.decode().splitlines()[1].startswith("lab,research,llm-team,")
    assert person.post(f"{PATH}{row.pk}/delete/")["Location"] == PATH
    assert not Report.objects.exists()


def test_the_day_that_is_not_over_is_told_as_far_as_it_has_come(person: Client) -> None:
    before = timezone.now()
    person.post(PATH, days(0, 0))
    assert before <= Report.objects.get().end <= timezone.now()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param({"name": ""}, "This field is required.", id="no name"),
        pytest.param({"start": "soon"}, "Enter a valid date.", id="no day"),
        pytest.param({"end": "9999-12-31"}, "less than or equal to 2999-12-31", id="the end of days"),
        pytest.param({"start": "2998-12-31", "end": "2998-12-31"}, "must start in the past", id="a day to come"),
        pytest.param({"start": "2020-01-01"}, "The period must be at most 400 days.", id="years"),
        pytest.param({"filter_by": "project vision-team"}, "Select a valid choice.", id="somebody else's project"),
        pytest.param({"group_by": "Department"}, "Not found, or not visible to you", id="no department to see"),
    ],
)
def test_a_refusal_is_shown_at_its_field(person: Client, more: dict[str, str], says: str) -> None:
    answer = person.post(PATH, days(7, 1) | more)
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert 'class="invalid-feedback d-block"' in answer.content.decode()
    assert not Report.objects.exists()


def test_with_as_many_as_one_may_have_the_form_says_so(person: Client, bob: User) -> None:
    ReportFactory.create_batch(reports_services.MOST, subject_id=str(bob.pk))
    answer = person.post(PATH, days(7, 1))
    assert answer.status_code == 422
    assert "Delete one first" in answer.content.decode()


def test_a_list_goes_on(person: Client, bob: User) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(21):
        ReportFactory(
            subject_id=str(bob.pk), name=f"no. {number}.", created_at=start + timedelta(days=number), status="Ready"
        )
    page = words(person)
    assert "no. 20." in page
    assert "no. 0." not in page
    after = page.partition("?after=")[2].partition('"')[0]
    assert "no. 0." in words(person, f"{PATH}?after={after}")


def test_a_failure_tells_why(person: Client, bob: User) -> None:
    ReportFactory(subject_id=str(bob.pk), status="Failed", message="Because of <that>.")
    assert "Because of &lt;that&gt;." in words(person)


def test_somebody_elses_is_absent(person: Client, client_of: Clients, charlie: User) -> None:
    person.post(PATH, days(7, 1))
    reports_services.sweep()
    row = Report.objects.get()
    other = client_of(charlie)
    assert row.name not in words(other).partition('id="reports"')[2].partition("</div>")[0]
    assert other.get(f"{PATH}{row.pk}/file/").status_code == 404
    assert other.post(f"{PATH}{row.pk}/delete/").status_code == 404
    assert Client().get(PATH).status_code == 302
