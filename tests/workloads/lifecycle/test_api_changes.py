"""`GET /api/v1/workloads/stream`: the change feed of all workloads that the caller may see."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.processes import eventually
from tests.support.rest_clients import Robot
from tests.workloads.lifecycle.test_api_stream import Reader, asgi, events_in
from workloads.state.models import EventType, Workload, WorkloadEvent
from workloads.state.services import note, place_events

__all__ = ["asgi"]
PATH = "v1/workloads/stream"
Change = tuple[str, str, dict[str, Any]]


def happens(workload: Workload, phase: str, message: str = "") -> None:
    workload.phase = phase
    note(workload=workload, at=timezone.now(), type_=EventType.PHASE, message=message)


def read(robot: Robot, after: str = "", wanted: str = "") -> list[Change]:
    """What there is after an id; the last event of such an answer, `end`, is left out."""
    headers = {"Last-Event-ID": after} if after else {}
    answer = robot.client.get(f"/api/{PATH}", {"filterBy": wanted}, headers=headers)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
    *found, last = events_in(answer.content.decode())
    assert last[1:] == ("end", {"reason": "again"})
    return found


def begun(robot: Robot) -> str:
    """The place of a reader who begins now."""
    ((place, name, data),) = read(robot)
    assert (name, data) == ("ready", {})
    return place


def changes(robot: Robot, after: str, wanted: str = "") -> list[Change]:
    (_place, name, _data), *found = read(robot, after, wanted)
    assert name == "ready"
    return found


@pytest.fixture
def workload(llm_team: Project) -> Workload:
    found: Workload = WorkloadFactory.create(project=llm_team, name="train", phase="Pending")
    return found


def test_a_reader_who_begins_is_told_what_happens_from_now_on(robot: Robot, workload: Workload) -> None:
    happens(workload, "Pending")
    place = begun(robot)
    happens(workload, "Running", "It runs now.")
    ((key, name, change),) = changes(robot, place)
    assert (name, change["id"], change["phase"], change["message"]) == ("change", key, "Running", "It runs now.")
    assert (change["workloadId"], change["workloadName"]) == (str(workload.pk), "train")
    assert (change["projectId"], change["projectName"]) == (str(workload.project_id), "llm-team")
    assert changes(robot, key) == []


def test_it_goes_on_after_the_last_id_over_all_workloads_in_order(robot: Robot, workload: Workload) -> None:
    other = WorkloadFactory.create(project=workload.project, name="other", phase="Pending")
    place = begun(robot)
    for row, phase in ((workload, "Running"), (other, "Running"), (workload, "Completed")):
        happens(row, phase)
    first, *rest = changes(robot, place)
    assert [change["workloadName"] for _key, _name, change in (first, *rest)] == ["train", "other", "train"]
    assert changes(robot, first[0]) == rest


def test_t53_a_member_is_told_of_their_projects_only(robot: Robot, member: Robot, vision_team: Project) -> None:
    place = begun(member)
    happens(WorkloadFactory.create(project=vision_team, name="theirs"), "Running")
    assert changes(member, place) == []
    assert [change["workloadName"] for _key, _name, change in changes(robot, place)] == ["theirs"]
    assert Client().get(f"/api/{PATH}").status_code == 401


def test_what_a_reader_may_see_is_decided_when_it_is_sent(member: Robot, workload: Workload) -> None:
    place = begun(member)
    happens(workload, "Running")
    member.account.memberships.all().delete()
    assert changes(member, place) == []


def test_messages_name_no_project_that_the_reader_may_not_see(member: Robot, workload: Workload) -> None:
    hidden = ProjectFactory.create(cluster=workload.project.cluster, namespace="runai-secret")
    place = begun(member)
    happens(workload, "Pending", f"Preempted by {hidden.namespace}/job-0")
    ((_key, _name, change),) = changes(member, place)
    assert change["message"] == "Preempted by another project"


@pytest.mark.parametrize("case", ["too old", "never given"])
def test_a_reader_who_cannot_go_on_is_told_to_list_again(robot: Robot, workload: Workload, case: str) -> None:
    place = begun(robot)
    happens(workload, "Running")
    place_events()
    if case == "too old":
        WorkloadEvent.objects.update(at=timezone.now() - timedelta(days=8))
    else:
        place = "9" * 18
    ((here, name, data),) = read(robot, place)
    assert (name, data) == ("reset", {"reason": "expired"})
    happens(workload, "Completed")
    assert [change["phase"] for _key, _name, change in changes(robot, here)] == ["Completed"]


def test_many_changes_come_in_several_answers(robot: Robot, workload: Workload) -> None:
    place = begun(robot)
    for _ in range(230):
        happens(workload, "Running")
    found = changes(robot, place)
    found += changes(robot, found[-1][0])
    assert len({key for key, _name, _change in found}) == 230


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("projectName==llm-team", ["train", "train"]),
        ("projectName==vision-team,phase==Running", ["theirs"]),
        ("type!=phase", []),
        ("workloadName=@the", ["theirs"]),
        ("phase==Failed", ["train"]),
    ],
)
def test_a_filter_leaves_out_what_does_not_match_and_resumes_at_the_same_places(
    robot: Robot, workload: Workload, vision_team: Project, wanted: str, names: list[str]
) -> None:
    place = begun(robot)
    happens(workload, "Running")
    happens(WorkloadFactory.create(project=vision_team, name="theirs"), "Running")
    happens(workload, "Failed")
    found = changes(robot, place, wanted)
    assert [change["workloadName"] for _key, _name, change in found] == names
    everything = changes(robot, place)
    assert [each for each in everything if each in found] == found
    for key, _name, _change in found:
        assert changes(robot, key, wanted) == [each for each in found if int(each[0]) > int(key)]


def test_a_filter_never_shows_more_than_the_reader_may_see(member: Robot, vision_team: Project) -> None:
    place = begun(member)
    theirs = WorkloadFactory.create(project=vision_team, name="theirs")
    happens(theirs, "Running")
    assert changes(member, place, f"workloadId=={theirs.pk}") == []
    answer = member.client.get(f"/api/{PATH}", {"filterBy": "projectName==vision-team"})
    assert (answer.status_code, answer.json()["details"]) == (400, "unknown_name")


@pytest.mark.parametrize("wanted", ["phase==Bogus", "type==Phase", "message==x", "projectName==nowhere", "phase"])
def test_what_is_no_filter_is_400_before_anything_is_streamed(robot: Robot, wanted: str) -> None:
    answer = robot.client.get(f"/api/{PATH}", {"filterBy": wanted})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/filterBy")


@pytest.mark.parametrize("said", ["-1", "x", "1" * 30, "१"])
def test_what_is_no_id_is_400(robot: Robot, said: str) -> None:
    answer = robot.client.get(f"/api/{PATH}", headers={"Last-Event-ID": said})
    assert (answer.status_code, answer.json()["details"]) == (400, "bad_event_id")


def test_what_happens_elsewhere_costs_a_reader_few_queries(
    member: Robot, workload: Workload, django_assert_max_num_queries: Any
) -> None:
    place = begun(member)
    for _ in range(20):
        happens(workload, "Running", "a/b")
    place_events()
    with django_assert_max_num_queries(25):
        assert len(changes(member, place)) == 20


def aside(work: Callable[[], None]) -> Thread:
    """The work in a thread with a database connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = Thread(target=run)
    thread.start()
    return thread


@pytest.mark.postgres
def test_an_entry_that_commits_late_comes_later_and_is_not_skipped(postgres_db: str) -> None:
    """Its key is lower than that of an entry that was sent before it committed."""
    slow, quick = WorkloadFactory.create_batch(2, phase="Pending")
    robot = Robot("follower", role=Role.PLATFORM_ADMIN)
    place, written, go_on = begun(robot), Event(), Event()

    def write_slowly() -> None:
        with transaction.atomic():
            happens(slow, "Running")
            written.set()
            assert go_on.wait(20)

    writer = aside(write_slowly)
    assert written.wait(20)
    happens(quick, "Running")
    ((sent, _name, change),) = changes(robot, place)
    assert change["workloadId"] == str(quick.pk)
    go_on.set()
    writer.join(20)
    ((late, _name, change),) = changes(robot, sent)
    assert change["workloadId"] == str(slow.pk)
    assert int(late) > int(sent)
    first, second = (each.timeline.get() for each in (slow, quick))
    assert first.pk < second.pk, "the keys alone would have lost it"


@pytest.mark.postgres
def test_positions_that_are_being_given_are_seen_in_order(postgres_db: str) -> None:
    """While one process gives positions, another gives none: no higher position becomes visible first."""
    first, early, late = WorkloadFactory.create_batch(3, phase="Pending")
    happens(first, "Running")
    place_events()
    happens(early, "Running")
    given, go_on = Event(), Event()

    def give_slowly() -> None:
        with transaction.atomic():
            place_events()
            given.set()
            assert go_on.wait(20)

    giver = aside(give_slowly)
    assert given.wait(20)
    happens(late, "Running")
    place_events()
    assert not WorkloadEvent.objects.filter(position__gt=1).exists()
    go_on.set()
    giver.join(20)
    place_events()
    assert list(WorkloadEvent.objects.order_by("position").values_list("workload", "position")) == [
        (first.pk, 1),
        (early.pk, 2),
        (late.pk, 3),
    ]


@pytest.mark.postgres
def test_a_follower_is_told_over_an_open_stream_until_their_token_goes(asgi: str) -> None:
    workload = WorkloadFactory.create(phase="Pending")
    robot = Robot("follower", role=Role.MEMBER, project=workload.project)
    reader = Reader(asgi, PATH, robot)
    eventually(lambda: [name for _key, name, _data in reader.events] == ["ready"])
    happens(workload, "Running")
    eventually(lambda: [name for _key, name, _data in reader.events] == ["ready", "change"])
    robot.account.delete()
    assert reader.end() == "access"
