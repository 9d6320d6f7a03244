"""How requests are sent: patience with a busy portal, one key per write however often it is sent, stable endings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rung_cli.errors import Unreachable
from rung_cli.http.transport import ApiCall, RequestOptions, RestTransport
from tests.cli.conftest import Rung
from tests.cli.fake_portal import Answer, Portal, portal_that
from tests.support.repository import ROOT

BUSY = Answer(503, {"code": 503, "message": "The database is away.", "details": "unavailable"}, {"Retry-After": "0"})
WORKLOAD = {
    "id": "00000000-0000-4000-8000-000000000001",
    "name": "train",
    "projectName": "llm-team",
    "phase": "Running",
    "allocatedResources": {"gpu": 8.0},
}
FOUND = Answer(body={"workloads": [WORKLOAD], "next": None})
DONE = Answer(body={"id": "x", "succeeded": [WORKLOAD["id"]], "failed": []})


@pytest.fixture(autouse=True)
def _as_a_pipeline(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_CLIENT_ID", "pipeline")
    monkeypatch.setenv("RUNG_CLIENT_SECRET", "s3cret-canary")


def asking(rung: Rung, portal: Portal, *args: str, **more: Any) -> Any:
    return rung("--url", portal.url, *args, **more)


def test_a_write_is_sent_again_under_the_same_key_and_another_write_has_another(rung: Rung) -> None:
    with portal_that(FOUND, BUSY, BUSY, DONE, FOUND, DONE) as portal:
        assert asking(rung, portal, "suspend", "train").code == 0
        assert asking(rung, portal, "suspend", "train").code == 0
    keys = [each.headers["Idempotency-Key"] for each in portal.requested if each.method == "POST"]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


def test_each_document_has_its_own_key_and_a_key_of_ones_own_is_numbered(rung: Rung) -> None:
    project = Answer(body={"projects": [{"id": "1", "name": "llm-team", "clusterId": "c"}], "next": None})
    taken = Answer(202, {"metadata": {"name": "any", "projectName": "llm-team"}})
    with portal_that(project, taken) as portal:
        text = "kind: Job\n---\nkind: Job\n"
        requested = ("submit", "-p", "llm-team", "-f", "-", "--idempotency-key", "run-7")
        assert asking(rung, portal, *requested, stdin=text).code == 0
    sent = [(each.path, each.headers["Idempotency-Key"]) for each in portal.requested if each.method == "POST"]
    tried, submitted = "/api/v2/workloads?dryRun=true", "/api/v2/workloads"
    assert sent == [(tried, "run-7-0"), (tried, "run-7-1"), (submitted, "run-7-0"), (submitted, "run-7-1")]


def test_a_portal_that_stays_busy_is_unreachable_after_the_last_retry(rung: Rung) -> None:
    with portal_that(BUSY) as portal:
        ended = asking(rung, portal, "priorities", "--retries", "2")
    assert (ended.code, len(portal.requested)) == (4, 3)
    assert "The database is away. (503)" in ended.err


@pytest.mark.parametrize(("status", "times"), [(504, 1), (502, 1), (503, 3)])
def test_a_deletion_is_sent_again_only_where_it_was_surely_not_carried_out(status: int, times: int) -> None:
    with portal_that(Answer(status, None)) as portal:
        wire = RestTransport(portal.url, RequestOptions(retries=2, pause=lambda _: None))
        with pytest.raises(Unreachable):
            wire.send(ApiCall("DELETE", "v1/workload-priorities/x"))
        wire.close()
    assert len(portal.requested) == times


def test_nobody_there_is_unreachable(rung: Rung) -> None:
    with portal_that(DONE) as portal:
        pass
    ended = asking(rung, portal, "priorities", "--retries", "1")
    assert ended.code == 4
    assert f"{portal.url} cannot be reached" in ended.err


def test_a_token_that_died_is_renewed_once_and_then_one_is_signed_out(rung: Rung) -> None:
    gone = Answer(401, {"code": 401, "message": "Invalid or expired token."})
    with portal_that(gone, Answer(body={"priorities": []})) as portal:
        assert asking(rung, portal, "priorities").code == 0
        assert portal.tokens == 2
    with portal_that(gone) as portal:
        assert asking(rung, portal, "priorities").code == 3


def test_a_refusal_names_the_field_and_what_would_be_right(rung: Rung) -> None:
    problem = {"pointer": "/spec/priorityClass", "code": "x", "message": "'urgent' is not known.", "allowed": ["low"]}
    refused = Answer(400, {"code": 400, "message": "'urgent' is not known.", "details": "x", "errors": [problem]})
    project = Answer(body={"projects": [{"id": "1", "name": "llm-team", "clusterId": "c"}], "next": None})
    requested = ("submit", "train", "-p", "llm-team", "-i", "any/image:1", "--priority", "urgent")
    with portal_that(project, refused) as portal:
        ended = asking(rung, portal, *requested)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "rung: refused.\n  --priority: 'urgent' is not known.\n    Allowed: low\n"
    with portal_that(project, refused) as portal:
        ended = asking(rung, portal, *requested, "-o", "json")
    assert json.loads(ended.err)["errors"] == [problem]


def test_a_page_instead_of_an_answer_is_no_portal(rung: Rung) -> None:
    with portal_that(Answer(body=b"<html>"), Answer(404, None)) as portal:
        assert asking(rung, portal, "types").code == 4
        assert asking(rung, portal, "types").code == 1


def test_an_address_without_a_portal_is_named_instead_of_the_secret(signed_in: Rung, live_server: Any) -> None:
    ended = signed_in("--url", f"{live_server.url}/elsewhere", "list")
    assert ended.code == 4
    assert ended.err.startswith(f"rung: No portal at {live_server.url}/elsewhere: HTTP 404")
    assert "RUNG_CLIENT_ID" not in ended.err


def test_flags_become_the_body_that_the_portal_documents(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "its value")
    project = Answer(body={"projects": [{"id": "1", "name": "llm-team", "clusterId": "c"}], "next": None})
    made = Answer(202, {"name": "train", "projectId": "1", "spec": {"priorityClass": "high"}})
    with portal_that(project, made) as portal:
        ended = asking(
            rung, portal, "submit", "train", "-p", "llm-team", "--type", "distributed", "--workers", "3", "--framework",
            "PyTorch", "-i", "any/image:1", "-g", "2", "--cpu", "1.5", "--memory", "8G", "-e", "A=1=2",
            "-e", "FROM_HERE", "--node-pool", "h100", "--node-pool", "a100", "--priority", "high",
            "--", "python", "-k", "a b",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    assert portal.requested[-1].path == "/api/v1/workloads/distributed"
    assert portal.requested[-1].body == {
        "name": "train",
        "useGivenNameAsPrefix": False,
        "projectId": "1",
        "clusterId": "c",
        "spec": {
            "image": "any/image:1",
            "args": "python -k 'a b'",
            "priorityClass": "high",
            "nodePools": ["h100", "a100"],
            "compute": {"gpuDevicesRequest": 2, "cpuCoreRequest": 1.5, "cpuMemoryRequest": "8G"},
            "environmentVariables": [{"name": "A", "value": "1=2"}, {"name": "FROM_HERE", "value": "its value"}],
            "numWorkers": 3,
            "distributedFramework": "PyTorch",
        },
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list", "--limit", "0"), "--limit"),
        (("submit", "train"), "--image"),
        (("submit", "-i", "a"), "No name"),
        (("submit", "train", "-i", "a", "--port", "80"), "--type inference"),
        (("submit", "-f", "nowhere.yaml"), "nowhere.yaml"),
        (("submit", "-f", "-"), "No manifest"),
        (("submit", "-f", "-", "-i", "a"), "cannot be combined with a manifest"),
        (("wait", "x", "--for", "phase=Happy"), "--for must be"),
        (("describe", "../x"), "is not a workload"),
        (("list", "--filter", "a==1,b==2"), "comma"),
        (("nonsense",), "nonsense"),
    ],
)
def test_what_is_wrong_with_a_command_is_said_before_anything_is_asked(
    rung: Rung, args: tuple[str, ...], said: str
) -> None:
    with portal_that(DONE) as portal:
        ended = asking(rung, portal, *args)
    assert (ended.code, portal.requested) == (64, [])
    assert said in ended.err


ROW = {
    "name": "w", "projectName": "p", "type": "Job", "phase": "Running", "priorityClassName": "low", "priority": 40,
    "preemptible": True, "workloadRequestedResources": {"gpu": {"request": 1}}, "currentNodePools": [],
    "requestedNodePools": [], "submittedBy": "bob", "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip


def pages(*places: dict[str, Any]) -> list[Answer]:
    """500 workloads each, and 7 on the last one; a place is what a page says of the next one."""
    last = {"workloads": [ROW] * 7, "next": None, "nextAfter": None}
    return [*(Answer(body={"workloads": [ROW] * 500, **place}) for place in places), Answer(body=last)]


@pytest.mark.parametrize(
    ("places", "requested"),
    [
        pytest.param([{"next": 500}, {"next": 1000}], ["offset=500", "offset=1000"], id="by offset"),
        pytest.param(
            [{"next": 500, "nextAfter": "c-1"}, {"next": None, "nextAfter": "c-2"}],
            ["after=c-1", "after=c-2"],
            id="by cursor where there is one",
        ),
    ],
)
def test_a_long_list_is_read_page_after_page(rung: Rung, places: list[dict[str, Any]], requested: list[str]) -> None:
    with portal_that(*pages(*places)) as portal:
        assert len(asking(rung, portal, "list", "--all", "-o", "json").data) == 1007
    queries = [each.path.partition("?")[2].split("&") for each in portal.requested]
    assert [[part for part in query if part.startswith(("after", "offset"))] for query in queries] == [
        [],
        *([part] for part in requested),
    ]


def test_a_list_says_that_there_is_more(rung: Rung) -> None:
    with portal_that(*pages({"next": 500})) as portal:
        ended = asking(rung, portal, "list", "--limit", "3", "-o", "name")
    assert ended.out == "p/w\n" * 3
    assert "Showing 3 workloads" in ended.err


def test_nothing_is_wrong_when_the_reader_of_a_pipe_goes(home: Path) -> None:
    with portal_that(*pages()) as portal:
        requested = [sys.executable, "-m", "rung_cli", "--url", portal.url, "list", "--all"]
        program = subprocess.Popen(
            requested, cwd=ROOT / "cli", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}, text=True
        )
        assert program.stdout is not None
        program.stdout.close()
        _, said = program.communicate(timeout=60)
    assert (program.returncode, said) == (0, "")


def test_what_a_portal_says_never_acts_on_the_terminal(rung: Rung) -> None:
    evil = "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07\x1b[2J\u202e\ud800"
    entry = {"name": evil, "value": 1, "aggregatedPhase": "Ready", "description": evil}
    with portal_that(Answer(body={"priorities": [entry]})) as portal:
        shown = asking(rung, portal, "priorities").out
        as_json = asking(rung, portal, "priorities", "-o", "json")
        as_yaml = asking(rung, portal, "priorities", "-o", "yaml").out
    assert "click" in shown
    assert not {"\x1b", "\x07", "\u202e", "\ud800"} & set(shown + as_json.out + as_yaml)
    assert as_json.data[0]["name"] == evil
