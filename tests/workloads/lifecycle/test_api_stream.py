"""`GET /api/v1/workloads/{id}/stream`: what happens to a workload, told while it happens."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from django.test import Client
from django.utils import timezone

from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.asgi import served
from tests.support.processes import eventually
from tests.support.rest_clients import Robot
from workloads.state.models import Phase, Workload

Event = tuple[str, str, dict[str, Any]]
"""Id, name and data."""


def events_in(text: str) -> list[Event]:
    """The events of a body; comments and `retry` are none."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append((lines.get("id", ""), lines["event"], json.loads(lines["data"])))
    return found


def path_of(workload: Workload) -> str:
    return f"v1/workloads/{workload.pk}/stream"


def happens(workload: Workload, phase: Phase, message: str = "") -> str:
    """A move with its timeline entry; answers the entry's key."""
    Workload.objects.filter(pk=workload.pk).update(phase=phase, phase_message=message, phase_at=timezone.now())
    entry = workload.timeline.create(at=timezone.now(), type="phase", phase=phase, message=message, actor="rung")
    return str(entry.pk)


@pytest.fixture
def workload(llm_team: Project) -> Workload:
    found: Workload = WorkloadFactory.create(project=llm_team, name="train")
    happens(found, Phase.PENDING)
    return found


def test_it_begins_with_where_the_workload_stands(robot: Robot, workload: Workload) -> None:
    answer = robot.get(path_of(workload))
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
    (_key, name, phase), (_none, last, reason) = events_in(answer.content.decode())
    assert (name, phase["phase"], last, reason) == ("phase", "Pending", "end", {"reason": "again"})


def test_a_reader_who_comes_back_is_told_what_it_missed_and_nothing_twice(robot: Robot, workload: Workload) -> None:
    key, *_rest = events_in(robot.get(path_of(workload)).content.decode())[0]
    later = happens(workload, Phase.RUNNING, "line\nbreaks \x1b[31m stay inside")
    again = robot.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": key})
    entry, phase, _end = events_in(again.content.decode())
    assert (entry[0], entry[1], entry[2]["phase"], phase[2]["phase"]) == (later, "timeline", "Running", "Running")
    assert "\x1b" not in entry[2]["message"]
    once_more = robot.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": later})
    assert [name for _key, name, _data in events_in(once_more.content.decode())] == ["phase", "end"]


@pytest.mark.parametrize(("change", "reason"), [("phase", "ended"), ("deleted_at", "deleted")])
def test_what_is_over_ends_at_once(robot: Robot, workload: Workload, change: str, reason: str) -> None:
    now = {"phase": Phase.COMPLETED, "deleted_at": timezone.now()}[change]
    Workload.objects.filter(pk=workload.pk).update(**{change: now})
    assert events_in(robot.get(path_of(workload)).content.decode())[-1] == ("", "end", {"reason": reason})


@pytest.mark.parametrize("gone", [False, True])
def test_an_end_waits_until_everything_before_it_is_told(
    robot: Robot, workload: Workload, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    keys = [happens(workload, phase) for phase in (Phase.RUNNING, Phase.PENDING, Phase.RUNNING, Phase.COMPLETED)]
    Workload.objects.filter(pk=workload.pk).update(deleted_at=timezone.now() if gone else None)
    monkeypatch.setattr("workloads.state.selectors.workloads.MOST", 2)
    told: list[str] = ["0"]
    ends = []
    for _visit in range(3):
        answer = robot.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": told[-1]})
        *entries, last = events_in(answer.content.decode())
        told += [key for key, name, _data in entries if name == "timeline"]
        ends.append(last[2]["reason"])
    assert told[-4:] == keys
    assert ends == ["again", "again", "deleted" if gone else "ended"]


def test_names_of_other_projects_are_left_out(member: Robot, workload: Workload) -> None:
    ProjectFactory.create(department=workload.project.department, namespace="secret-place")
    workload.timeline.create(at=timezone.now(), type="preemption", message="evicted by secret-place/their-job")
    answer = member.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": "0"})
    assert "secret-place" not in answer.content.decode()
    assert "another project" in answer.content.decode()


def test_t53_a_foreign_workloads_stream_is_absent(workload: Workload, vision_team: Project) -> None:
    stranger = Robot("stranger", role=Role.MEMBER, project=vision_team)
    assert stranger.get(path_of(workload)).status_code == 404
    assert stranger.get("v1/workloads/11111111-1111-4111-8111-111111111111/stream").status_code == 404
    assert Client().get(f"/api/{path_of(workload)}").status_code == 401


@pytest.mark.parametrize("said", ["-1", "x", "1" * 30, "१", "1\x00"])
def test_what_is_no_id_of_an_event_is_400(robot: Robot, workload: Workload, said: str) -> None:
    answer = robot.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": said})
    assert (answer.status_code, answer.json()["details"]) == (400, "bad_event_id")


def test_an_id_that_is_not_there_yet_hides_nothing(robot: Robot, workload: Workload) -> None:
    answer = robot.client.get(f"/api/{path_of(workload)}", headers={"Last-Event-ID": "9" * 18})
    assert events_in(answer.content.decode())[0][0] == str(workload.timeline.latest("pk").pk)


class Reader:
    """Somebody who follows a stream over a socket, in a thread of the test."""

    def __init__(self, address: str, followed: Workload | str, robot: Robot) -> None:
        self.events: list[Event] = []
        self.beats = self.status = 0
        self.over, self._left = threading.Event(), threading.Event()
        address = f"{address}/api/{followed if isinstance(followed, str) else path_of(followed)}"
        self._thread = threading.Thread(target=self._follow, args=(address, robot), daemon=True)
        self._thread.start()

    def _follow(self, address: str, robot: Robot) -> None:
        headers = {"Authorization": str(robot.client.defaults["HTTP_AUTHORIZATION"])}
        with httpx2.stream("GET", address, headers=headers, timeout=20) as answer:
            self.status, text = answer.status_code, ""
            for part in answer.iter_text():
                self.beats += part.count(": beat")
                text += part
                *whole, text = text.split("\n\n")
                self.events += events_in("\n\n".join(whole))
                if self._left.is_set():
                    break
        self.over.set()

    def phases(self) -> list[str]:
        return [data["phase"] for _key, name, data in self.events if name == "phase"]

    def end(self) -> str:
        """How the stream ended."""
        assert self.over.wait(15)
        return str(self.events[-1][2]["reason"])

    def leave(self) -> None:
        """Hang up, at the next beat."""
        self._left.set()
        assert self.over.wait(15)


@pytest.fixture
def asgi(postgres_db: str, socket_enabled: None, settings: Any) -> Iterator[str]:
    """The portal under its real server, on a real database, with quick beats."""
    settings.RUNG_STREAMS = {**settings.RUNG_STREAMS, "tick": 0.1, "beat": 0.5}
    with served() as address:
        yield address


@pytest.fixture
def streamed(asgi: str) -> Workload:
    found: Workload = WorkloadFactory.create()
    happens(found, Phase.PENDING)
    return found


@pytest.mark.postgres
def test_a_pipeline_waits_until_the_workload_has_ended(asgi: str, streamed: Workload) -> None:
    reader = Reader(asgi, streamed, Robot("waiting", role=Role.MEMBER, project=streamed.project))
    eventually(lambda: reader.phases() == ["Pending"])
    key = happens(streamed, Phase.RUNNING)
    eventually(lambda: reader.phases() == ["Pending", "Running"])
    eventually(lambda: reader.beats >= 2)
    happens(streamed, Phase.COMPLETED)
    assert reader.end() == "ended"
    assert reader.phases() == ["Pending", "Running", "Completed"]
    assert key in [told for told, name, _data in reader.events if name == "timeline"]


@pytest.mark.postgres
def test_streams_hold_no_threads_and_a_subject_has_ten(asgi: str, streamed: Workload) -> None:
    robot = Robot("many", role=Role.MEMBER, project=streamed.project)
    readers = [Reader(asgi, streamed, robot) for _number in range(10)]
    eventually(lambda: all(reader.phases() for reader in readers))
    eventually(lambda: servers() <= 4)
    eleventh = Reader(asgi, streamed, robot)
    assert eleventh.over.wait(15)
    assert eleventh.status == 429
    other = Reader(asgi, streamed, Robot("other", role=Role.MEMBER, project=streamed.project))
    eventually(other.phases)
    readers.pop().leave()
    eventually(lambda: _tried(readers, Reader(asgi, streamed, robot)))
    for reader in [*readers, other]:
        reader.leave()


def _tried(readers: list[Reader], reader: Reader) -> bool:
    """Whether one more has got in."""
    eventually(lambda: reader.phases() or reader.over.is_set())
    if reader.phases():
        readers.append(reader)
    return bool(reader.phases())


def servers() -> int:
    """Threads that are neither the test's nor its readers'."""
    names = [thread.name for thread in threading.enumerate()]
    return len([name for name in names if name.startswith(("ThreadPoolExecutor", "eventstream"))])


@pytest.mark.postgres
@pytest.mark.parametrize("loss", ["rotated", "disabled", "right"])
def test_t62_a_stream_closes_once_the_token_or_the_right_is_gone(asgi: str, streamed: Workload, loss: str) -> None:
    robot = Robot("leaver", role=Role.MEMBER, project=streamed.project)
    reader = Reader(asgi, streamed, robot)
    eventually(reader.phases)
    if loss == "rotated":
        subjects.rotate_service_account(account=robot.account, actor=SYSTEM)
    elif loss == "disabled":
        subjects.enable_service_account(account=robot.account, enabled=False, actor=SYSTEM)
    else:
        robot.account.memberships.all().delete()
    assert reader.end() == "access"
