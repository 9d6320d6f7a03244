"""`rung wait`: told by streams of whatever quality, for exactly as long as one wants to wait."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from django.utils import timezone

from rung_cli.http import transport
from rung_cli.watch import ChangeFeed
from tenants.access.models import Role
from tests.cli.conftest import Rung, account_of
from tests.cli.fake_portal import Answer, Portal, portal_that
from tests.factories.workloads import WorkloadFactory
from tests.support.asgi import served
from tests.support.processes import eventually
from tests.support.repository import ROOT
from workloads.state.models import Phase, Workload

ID = "00000000-0000-4000-8000-000000000001"
EVENT_STREAM = {"Content-Type": "text/event-stream"}
FOR_EVER = 60.0


def standing(phase: str, message: str = "") -> Answer:
    """What a look is answered."""
    return Answer(body={"id": ID, "name": "train", "projectName": "llm-team", "phase": phase, "phaseMessage": message})


def event(name: str, key: str = "", **data: Any) -> bytes:
    return f"id: {key}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def phase(name: str, key: str = "1", message: str = "") -> bytes:
    return event("phase", key, phase=name, phaseReason="", phaseMessage=message)


def moved(name: str, key: str) -> bytes:
    return event("timeline", key, type="phase", phase=name, reason="", message="")


def stream(*parts: bytes | float) -> Answer:
    return Answer(headers=EVENT_STREAM, parts=(b"retry: 3000\n\n", *parts))


REFUSED = {
    "an older portal": Answer(404, {"code": 404, "message": "no such page"}),
    "a page of a proxy": Answer(200, b"<html>"),
    "busy": Answer(429, {"code": 429, "message": "too many"}, {"Retry-After": "60"}),
    "never a byte": Answer(after=FOR_EVER),
    "a head and never a byte": Answer(headers=EVENT_STREAM, parts=(FOR_EVER,)),
    "cut before the first byte": Answer(headers=EVENT_STREAM, parts=(b"",)),
    "nonsense": Answer(headers=EVENT_STREAM, parts=(b"event: phase\ndata: {\n\n",)),
}


@pytest.fixture(autouse=True)
def _as_a_pipeline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_CLIENT_ID", "pipeline")
    monkeypatch.setenv("RUNG_CLIENT_SECRET", "s3cret-canary")


def waiting(rung: Rung, portal: Portal, *args: str) -> Any:
    return rung("--url", portal.url, "wait", ID, *args)


def test_every_change_is_told_by_the_stream_and_nothing_is_asked_meanwhile(rung: Rung) -> None:
    life = stream(
        phase("Pending", "7", "No GPU is free."), 3.0, moved("Running", "8"), phase("Completed", "9"), FOR_EVER
    )
    with portal_that(standing("Pending"), streams=[life]) as portal:
        ended = waiting(rung, portal, "--timeout", "20")
        looks = portal.asked_for(ID)
    assert ended.code == 0, ended.err
    assert ended.err.splitlines() == [
        "llm-team/train: Waiting",
        "llm-team/train: Waiting (No GPU is free.)",
        "llm-team/train: Running",
        "llm-team/train: Completed",
    ]
    assert len(looks) <= 2


def test_a_phase_that_was_over_before_the_next_look_has_come_all_the_same(rung: Rung) -> None:
    life = stream(moved("Running", "2"), moved("Pending", "3"), phase("Pending", "3"), FOR_EVER)
    with portal_that(standing("Pending"), streams=[life]) as portal:
        assert waiting(rung, portal, "--for", "phase=Running", "--timeout", "20").code == 0


def test_a_stream_that_is_cut_goes_on_where_it_was(rung: Rung) -> None:
    half = phase("Running", "5")[:-9]
    cut, rest = stream(phase("Pending", "4"), moved("Running", "5"), half), stream(phase("Completed", "6"), FOR_EVER)
    with portal_that(standing("Pending"), streams=[cut, rest]) as portal:
        ended = waiting(rung, portal, "--timeout", "20")
        keys = [each.headers.get("Last-Event-ID") for each in portal.asked_for("/stream")]
    assert (ended.code, keys) == (0, [None, "5"])


@pytest.mark.parametrize("how", list(REFUSED))
def test_where_no_stream_is_to_be_had_it_is_asked_again_and_again(rung: Rung, how: str) -> None:
    looks = [standing("Pending"), standing("Running"), standing("Completed")]
    with portal_that(*looks, streams=[REFUSED[how]]) as portal:
        ended = waiting(rung, portal, "--timeout", "20")
        streams = portal.asked_for("/stream")
    assert (ended.code, ended.err.count("\n")) == (0, 3), ended.err
    assert how == "nonsense" or len(streams) == 1


def test_a_stream_that_falls_silent_is_given_up_and_asked_instead(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENCE", 0.5)
    with portal_that(
        standing("Pending"), standing("Completed"), streams=[stream(phase("Pending"), FOR_EVER)]
    ) as portal:
        assert waiting(rung, portal, "--timeout", "20").code == 0


@pytest.mark.parametrize(("reason", "until"), [("deleted", "deleted"), ("ended", "deleted")])
def test_the_end_of_a_stream_is_the_end_of_what_can_be_told(rung: Rung, reason: str, until: str) -> None:
    life = stream(phase("Completed"), event("end", reason=reason))
    gone = Answer(404, {"code": 404, "message": "gone"})
    with portal_that(standing("Running"), gone, streams=[life]) as portal:
        ended = waiting(rung, portal, "--for", until, "--timeout", "20")
        streams = portal.asked_for("/stream")
    assert (ended.code, len(streams)) == (0, 1)
    assert "llm-team/train: Deleted" in ended.err


@pytest.mark.parametrize("how", ["stream", "silence", "no answer"])
def test_the_timeout_holds_whatever_the_portal_does(rung: Rung, how: str) -> None:
    streams = {"stream": stream(phase("Running"), *[0.3, b": beat\n\n"] * 99)}.get(how, Answer(after=FOR_EVER))
    later = Answer(after=FOR_EVER) if how == "no answer" else standing("Running")
    with portal_that(standing("Running"), later, streams=[streams]) as portal:
        began = time.monotonic()
        ended = waiting(rung, portal, "--timeout", "1.5")
        took = time.monotonic() - began
    assert ended.code == 5, ended.err
    assert 1.5 <= took < 4
    assert "Timeout after 1.5 s, not completed: llm-team/train." in ended.err


def test_a_portal_that_goes_away_is_unreachable(rung: Rung) -> None:
    broken = Answer(500, {"code": 500, "message": "broken"})
    with portal_that(standing("Running"), broken, streams=[REFUSED["an older portal"]]) as portal:
        assert waiting(rung, portal, "--timeout", "20", "--retries", "0").code == 4


def test_what_is_printed_in_the_end_is_all_of_it(rung: Rung) -> None:
    last = Answer(body={**standing("Completed").body, "completedAt": "2026-01-01T00:00:00Z"})
    with portal_that(standing("Running"), last, streams=[stream(phase("Completed"), FOR_EVER)]) as portal:
        (found,) = waiting(rung, portal, "--timeout", "20", "-o", "json").data
    assert found["completedAt"] == "2026-01-01T00:00:00Z"


WORKLOAD: Final = {
    "type": "Training",
    "createdAt": "2026-01-01T00:00:00Z",
    "priorityClassName": "low",
    "priority": 40,
    "preemptible": True,
    "workloadRequestedResources": {"gpu": {"request": 1}},
    "currentNodePools": [],
    "requestedNodePools": ["h100"],
    "submittedBy": "bob",
}


def page(phase: str) -> Answer:
    """A list of one workload."""
    row = {**WORKLOAD, **standing(phase).body}
    return Answer(body={"workloads": [row], "next": None})


class Watching:
    """`rung list --watch`, interrupted after so many looks; each wait is the real one."""

    def __init__(self, rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rung, self._monkeypatch, self._real = rung, monkeypatch, ChangeFeed.wait

    def __call__(self, portal: Portal, looks: int, *args: str) -> Any:
        left = [None] * (looks - 1)

        def wait(feed: ChangeFeed) -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            self._real(feed)

        self._monkeypatch.setattr(ChangeFeed, "wait", wait)
        return self._rung("--url", portal.url, "list", "--watch", *args)


@pytest.fixture
def watching(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> Watching:
    return Watching(rung, monkeypatch)


def phases(ended: Any) -> list[str]:
    """What a watched list printed."""
    return [name for line in ended.out.splitlines() for name in ("Waiting", "Running", "Completed") if name in line]


def test_a_watched_list_is_asked_again_when_the_change_feed_says_so(watching: Watching) -> None:
    feed = stream(event("ready", "5"), 1.5, event("change", "6", phase="Running"), FOR_EVER)
    with portal_that(page("Pending"), page("Pending"), page("Running"), streams=[feed]) as portal:
        began = time.monotonic()
        ended = watching(portal, 3, "-p", "llm-team", "--interval", "60")
        took = time.monotonic() - began
        (requested,) = portal.asked_for("/stream?filterBy=projectName%3D%3Dllm-team")
    assert (ended.code, phases(ended)) == (130, ["Waiting", "Running"])
    assert took < 30
    assert "Last-Event-ID" not in requested.headers


def test_a_change_feed_that_is_cut_goes_on_where_it_was(watching: Watching) -> None:
    cut, rest = stream(event("ready", "5"), event("change", "6")), stream(event("ready", "6"), FOR_EVER)
    with portal_that(page("Pending"), page("Running"), page("Completed"), streams=[cut, rest]) as portal:
        ended = watching(portal, 3, "-A", "--interval", "0.5")
        eventually(lambda: len(portal.asked_for("/stream")) > 1, seconds=20)
        keys = [each.headers.get("Last-Event-ID") for each in portal.asked_for("/stream")]
    assert (phases(ended), keys) == (["Waiting", "Running", "Completed"], [None, "6"])


@pytest.mark.parametrize("status", [404, 429, 501])
def test_a_watched_list_is_asked_again_and_again_where_there_is_no_change_feed(watching: Watching, status: int) -> None:
    refused = Answer(status, {"code": status, "message": "no"})
    with portal_that(page("Pending"), page("Running"), page("Completed"), streams=[refused]) as portal:
        ended = watching(portal, 3, "-A", "--interval", "0.5")
        streams = portal.asked_for("/stream")
    assert (phases(ended), len(streams)) == (["Waiting", "Running", "Completed"], 1)


INTERRUPTIBLE: Final = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('rung_cli', run_name='__main__')"
)
"""`rung`, also where the tests run in the background of a shell, which has its children ignore the signal."""


@pytest.mark.parametrize("streams", [stream(phase("Running"), FOR_EVER), REFUSED["never a byte"]])
def test_interrupted_is_130_at_once(streams: Answer) -> None:
    with portal_that(standing("Running"), streams=[streams]) as portal:
        requested = [sys.executable, "-c", INTERRUPTIBLE, "--url", portal.url, "wait", ID]
        with subprocess.Popen(
            requested, cwd=ROOT / "cli", stderr=subprocess.PIPE, env={**os.environ}, text=True
        ) as program:
            try:
                eventually(lambda: portal.asked_for("/stream"), seconds=30)
                time.sleep(0.3)
                program.send_signal(signal.SIGINT)
                _out, said = program.communicate(timeout=20)
            finally:
                program.kill()
    assert (program.returncode, said.splitlines()) == (130, ["llm-team/train: Running"])


@pytest.fixture
def asgi(postgres_db: str, socket_enabled: None, settings: Any) -> Iterator[str]:
    """The portal under its real server, on a real database."""
    settings.RUNG_STREAMS = {**settings.RUNG_STREAMS, "tick": 0.1, "beat": 0.5}
    with served() as address:
        yield address


def happens(workload: Workload, to: Phase) -> None:
    Workload.objects.filter(pk=workload.pk).update(phase=to, phase_at=timezone.now())
    workload.timeline.create(at=timezone.now(), type="phase", phase=to, actor="rung")


@pytest.mark.postgres
def test_a_real_portal_tells_of_as_many_as_it_keeps_open_and_is_asked_of_the_rest(
    asgi: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Workload = WorkloadFactory.create(name="first", phase=Phase.PENDING)
    every = [first, *WorkloadFactory.create_batch(8, project=first.project, phase=Phase.PENDING)]
    account = account_of("waiting", Role.MEMBER, project=first.project)
    monkeypatch.setenv("RUNG_CLIENT_ID", account.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", account.secret)
    requested = [sys.executable, "-m", "rung_cli", "--url", asgi, "--debug", "wait", *[str(each.pk) for each in every]]
    program = subprocess.Popen(requested, cwd=ROOT / "cli", stderr=subprocess.PIPE, env={**os.environ}, text=True)
    assert program.stderr is not None
    said, followed = "", "-> 200, to be followed"
    while said.count(followed) < 8:
        said += program.stderr.readline()
    for to in (Phase.RUNNING, Phase.COMPLETED):
        for each in every:
            happens(each, to)
    said += program.communicate(timeout=30)[1]
    assert (program.returncode, said.count(followed)) == (0, 8)
    assert said.count(": Completed\n") == 9
    assert said.count(": Running\n") >= 8
    assert said.count(f"GET /api/v1/workloads/{first.pk} ->") <= 2
