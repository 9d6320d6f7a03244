"""The proxy of the fault tests: true to the API server until a script says otherwise, then exactly as scripted."""

import json
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from tests.support.faultproxy import FaultProxy
from tests.support.faults import (
    BlackHole,
    Drip,
    Duplicated,
    Expired,
    Fault,
    HalfOpen,
    LostAnswer,
    Reset,
    Slow,
    Stale,
    Status,
    Truncated,
)
from tests.support.lab import LabCluster

NODES = "/api/v1/nodes?labelSelector=rung.dev/node-pool%3Dlab"
WATCH = "/api/v1/nodes?watch=1&timeoutSeconds=1"


@pytest.fixture
def proxy(lab_cluster: LabCluster) -> Iterator[FaultProxy]:
    with FaultProxy(lab_cluster, seed=1) as proxy:
        yield proxy


@pytest.fixture
def ask(proxy: FaultProxy, lab_cluster: LabCluster) -> Iterator[Callable[..., urllib3.BaseHTTPResponse]]:
    """A request as Rung's account, with some patience."""
    with urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=proxy.ca), retries=False) as pool:

        def send(path: str, method: str = "GET", **more: object) -> urllib3.BaseHTTPResponse:
            headers = {"Authorization": f"Bearer {lab_cluster.token}"}
            return pool.request(method, proxy.server + path, headers=headers, timeout=2, **more)

        yield send


def test_without_a_script_it_is_the_api_server(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse], lab_cluster: LabCluster
) -> None:
    assert len(ask(NODES).json()["items"]) == 4
    assert [json.loads(line)["type"] for line in ask(WATCH).data.splitlines()][:4] == ["ADDED"] * 4
    assert [(each.method, each.upstream, each.answered) for each in proxy.log] == [("GET", 200, 200)] * 2


def test_a_status_is_said_as_often_as_scripted(proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse]) -> None:
    proxy.breaks(Status(429, "TooManyRequests", {"Retry-After": "7"}), path="/nodes", every=2, times=1)
    answers = [ask(NODES) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 429, 200, 200]
    assert answers[1].headers["Retry-After"] == "7"
    assert [each.upstream for each in proxy.log] == [200, 0, 200, 200]


@pytest.mark.parametrize("fault", [BlackHole(), Reset(), LostAnswer(), Truncated(), Slow(3)])
def test_no_whole_answer_comes_in_time(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse], fault: Fault
) -> None:
    with proxy.broken(fault, path="/nodes"), pytest.raises(HTTPError):
        ask(NODES)
    assert ask(NODES).status == 200


def test_a_dripping_answer_takes_its_time_and_is_whole(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse]
) -> None:
    begun = time.monotonic()
    with proxy.broken(Drip(0.002), path="/version"):
        answer = ask("/version")
    assert answer.json()["major"] == "1"
    assert time.monotonic() - begun > 0.002 * len(answer.data)


def test_a_refused_or_deaf_server_can_be_healed(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse]
) -> None:
    for fail in (proxy.go_down, proxy.go_deaf):
        fail()
        with pytest.raises(HTTPError):
            ask(NODES)
        proxy.heal()
        assert ask(NODES).status == 200


def test_a_watch_is_repeated_cut_off_or_expired(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse]
) -> None:
    with proxy.broken(Duplicated(), watch=True):
        names = [json.loads(line)["object"]["metadata"]["name"] for line in ask(WATCH).data.splitlines()]
    assert names[::2] == names[1::2]
    with proxy.broken(Truncated(events=1), watch=True), pytest.raises(ProtocolError):
        ask(WATCH)
    with proxy.broken(Expired(events=2), watch=True):
        events = [json.loads(line) for line in ask(WATCH).data.splitlines()]
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "ERROR"]
    assert events[-1]["object"]["code"] == 410


def test_a_half_open_watch_neither_speaks_nor_ends(
    proxy: FaultProxy, ask: Callable[..., urllib3.BaseHTTPResponse]
) -> None:
    begun = time.monotonic()
    with proxy.broken(HalfOpen(events=1), watch=True), pytest.raises(HTTPError, match="timed out"):
        ask(WATCH)
    assert time.monotonic() - begun >= 1.9


def test_a_stale_list_hides_what_has_come_since(
    proxy: FaultProxy,
    ask: Callable[..., urllib3.BaseHTTPResponse],
    lab_cluster: LabCluster,
    unique: Callable[[str], str],
) -> None:
    space = unique("late")
    with proxy.broken(Stale(), path="/namespaces"):
        before = ask("/api/v1/namespaces").json()
        lab_cluster.admin.namespace(space)
        assert ask("/api/v1/namespaces").json() == before
    assert space in {each["metadata"]["name"] for each in ask("/api/v1/namespaces").json()["items"]}
