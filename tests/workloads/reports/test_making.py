"""Workers make reports: killed in between, run twice, out of luck, or never told; one file comes of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from clusters.watch.models import Sample
from portal.kit.security.actors import Actor
from tenants.access.models import Membership
from tenants.organisation.models import Project
from tests.factories.workloads import ReportFactory
from workloads.reports import services as reports_services
from workloads.reports.models import Report
from workloads.reports.tasks import make_report, make_reports

READS = "clusters_sample"


class Killed(BaseException):
    """What ends a process: nothing of ours catches it."""


@pytest.fixture
def requested(llm_team: Project, as_bob: Actor) -> Report:
    """A report that bob has just asked for."""
    now = timezone.now()
    return reports_services.create_report(
        name="use", start=now - timedelta(hours=1), end=now, actor=as_bob, group_by="Project"
    )


@contextmanager
def at_statement(table: str, act: Callable[[], None], *, writing: bool = False) -> Iterator[None]:
    """Something happens just before the database is asked for, or told, something of a table."""

    def wrapped(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if table in sql and sql.startswith("UPDATE") == writing and "SAVEPOINT" not in sql:
            act()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapped):
        yield


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def later(report: Report, **since: int) -> None:
    """Time passes for this report."""
    due = Report.objects.values_list("due_at", flat=True).get(pk=report.pk)
    Report.objects.filter(pk=report.pk).update(due_at=due - timedelta(**since))


def test_a_lost_message_delays_it_by_one_sweep(requested: Report) -> None:
    assert (requested.status, reports_services.sweep()) == ("Pending", 1)
    requested.refresh_from_db()
    assert (requested.status, requested.due_at, requested.attempts) == ("Ready", None, 1)
    assert requested.content.startswith("cluster,department,project,nodePool,start,end,coveredHours")
    assert requested.covered == {"project": [str(Project.objects.get().pk)]}


def test_the_message_alone_is_enough_and_again_is_as_good_as_once(requested: Report) -> None:
    make_report(str(requested.pk))
    requested.refresh_from_db()
    first = (requested.content, requested.status_at)
    make_report(str(requested.pk))
    assert (reports_services.make(requested.pk), reports_services.sweep()) == (False, 0)
    requested.refresh_from_db()
    assert (requested.content, requested.status_at) == first


def test_the_beat_makes_and_forgets(requested: Report) -> None:
    old = ReportFactory(status="Ready", due_at=None, status_at=timezone.now() - timedelta(days=31))
    make_reports()
    assert not Report.objects.filter(pk=old.pk).exists()
    requested.refresh_from_db()
    assert requested.status == "Ready"


def test_a_worker_that_is_killed_leaves_it_to_the_next_one(requested: Report) -> None:
    with pytest.raises(Killed), at_statement(READS, raising(Killed())):
        reports_services.make(requested.pk)
    requested.refresh_from_db()
    assert (requested.status, requested.content) == ("Processing", "")
    assert reports_services.sweep() == 0
    later(requested, minutes=4)
    assert reports_services.sweep() == 1
    requested.refresh_from_db()
    assert (requested.status, requested.attempts) == ("Ready", 2)


def test_killed_at_the_last_moment_it_is_recreated(requested: Report) -> None:
    reached = []

    def end_of_it() -> None:
        reached.append(1)
        if len(reached) == 2:  # the first write is the claim
            raise Killed

    with pytest.raises(Killed), at_statement("workloads_report", end_of_it, writing=True):
        reports_services.make(requested.pk)
    later(requested, minutes=4)
    assert reports_services.make(requested.pk)
    requested.refresh_from_db()
    assert requested.status == "Ready"


def test_what_ends_every_worker_is_given_up(requested: Report) -> None:
    for _try in range(reports_services.TRIES):
        with pytest.raises(Killed), at_statement(READS, raising(Killed())):
            reports_services.make(requested.pk)
        later(requested, minutes=4)
    assert reports_services.sweep() == 1
    requested.refresh_from_db()
    assert (requested.status, requested.due_at) == ("Failed", None)
    assert requested.message.startswith("Failed after several attempts")


def test_a_passing_fault_is_tried_again_and_a_lasting_one_ends_without_its_insides(requested: Report) -> None:
    with at_statement(READS, raising(RuntimeError("secret of the inside"))):
        assert reports_services.make(requested.pk)
        requested.refresh_from_db()
        assert (requested.status, requested.attempts) == ("Pending", 1)
        for _try in range(reports_services.TRIES - 1):
            later(requested, minutes=4)
            reports_services.sweep()
    requested.refresh_from_db()
    assert requested.status == "Failed"
    assert "secret" not in requested.message


def test_whoever_comes_second_leaves_the_first_file_alone(requested: Report) -> None:
    def meanwhile() -> None:
        Report.objects.filter(pk=requested.pk, status="Processing").update(
            status="Ready", content="the first", due_at=None
        )

    with at_statement(READS, meanwhile):
        reports_services.make(requested.pk)
    requested.refresh_from_db()
    assert (requested.status, requested.content) == ("Ready", "the first")


def test_deleted_while_it_is_made_it_stays_deleted(requested: Report, as_bob: Actor) -> None:
    done = []

    def meanwhile() -> None:
        if not done:
            done.append(reports_services.delete_report(key=requested.pk, actor=as_bob))

    with at_statement(READS, meanwhile):
        reports_services.make(requested.pk)
    assert not Report.objects.exists()


def test_rights_are_read_when_it_is_made(requested: Report) -> None:
    Membership.objects.all().delete()
    reports_services.sweep()
    requested.refresh_from_db()
    assert (requested.status, requested.content) == ("Failed", "")
    assert "no longer visible to you" in requested.message


@pytest.mark.parametrize(
    ("status", "days", "left"),
    [
        pytest.param("Ready", 29, 1, id="a recent one stays"),
        pytest.param("Ready", 31, 0, id="an old one goes"),
        pytest.param("Failed", 31, 0, id="an old failure goes"),
        pytest.param("Pending", 31, 1, id="what is to be made stays"),
    ],
)
def test_a_file_is_kept_for_thirty_days(db: None, status: str, days: int, left: int) -> None:
    ReportFactory(status=status, status_at=timezone.now() - timedelta(days=days))
    reports_services.forget_old()
    assert Report.objects.count() == left


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        pytest.param(4, "Coverage: 25.0 % of the period.", id="a quarter"),
        pytest.param(40_000, "Coverage below 0.1 % of the period.", id="hardly any"),
    ],
)
def test_a_ready_one_says_how_much_of_the_time_was_measured(
    requested: Report, llm_team: Project, minutes: int, said: str
) -> None:
    reports_services.sweep()
    requested.refresh_from_db()
    assert requested.message.startswith("No data for this period")
    since = {"due_at": requested.created_at, "status": "Pending", "start": requested.end - timedelta(minutes=minutes)}
    Report.objects.filter(pk=requested.pk).update(**since)
    at = requested.end.replace(second=0, microsecond=0) - timedelta(minutes=2)
    Sample.objects.create(cluster=llm_team.cluster, kind="project", owner=str(llm_team.pk), at=at, figures={})
    reports_services.sweep()
    requested.refresh_from_db()
    assert requested.message == said
