"""T47, T48: a cluster's answers are a stranger's text, and it learns nothing but the credential that was entered."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.connection.services.connection_test import ConnectionReport, try_connection
from clusters.ports.connection import Connection
from tests.support.certificates import authority, signed
from tests.support.listeners import ApiServer, Request, Visits, api_server, listener, ordinary

pytestmark = pytest.mark.enable_socket
EVIL = "<img src=x onerror=alert(1)>\x1b]8;;https://evil.example\x07"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


def tried(api: ApiServer, **parts: Any) -> ConnectionReport:
    return try_connection(Connection(api.url, **{"ca": api.authority.pem, "token": "canary", **parts}), "kube")


def test_a_good_cluster_is_known_by_version_identity_and_rights(api: ApiServer) -> None:
    report = tried(api)
    assert report.works
    assert (report.version, report.username) == ("v1.36.3", "system:serviceaccount:rung-system:rung")
    assert report.excess == ()
    assert report.schedulers == ()


def test_missing_rights_are_named_with_their_verbs(api: ApiServer) -> None:
    def stingy(request: Request) -> tuple[int, Any]:
        requested = json.loads(request.body or b"{}").get("spec", {}).get("resourceAttributes", {})
        if requested.get("resource") == "resourcequotas" and requested["verb"] in {"create", "delete"}:
            return 201, {"status": {"allowed": False}}
        return ordinary(request)

    api.answers = stingy
    report = tried(api)
    assert [(each.access.full_name, each.missing) for each in report.lacking] == [
        ("resourcequotas", ("create", "delete"))
    ]
    assert not report.works
    assert report.gaps[0].resources == ("resourcequotas",)


def test_an_account_that_may_everything_is_told_so(api: ApiServer) -> None:
    def generous(request: Request) -> tuple[int, Any]:
        return (201, {"status": {"allowed": True}}) if "accessreviews" in request.path else ordinary(request)

    api.answers = generous
    assert len(tried(api).excess) == 4


def test_installed_schedulers_are_found_by_what_the_server_serves(api: ApiServer) -> None:
    def with_kai(request: Request) -> tuple[int, Any]:
        if request.path == "/apis/scheduling.run.ai/v2":
            return 200, {"kind": "APIResourceList", "resources": [{"name": "queues"}]}
        if request.path == "/apis/kueue.x-k8s.io/v1beta2":
            return 200, {"kind": "APIResourceList", "resources": [{"name": "clusterqueues"}]}
        return ordinary(request)

    api.answers = with_kai
    report = tried(api)
    assert [each.title for each in report.schedulers] == ["KAI Scheduler", "Kueue"]
    assert report.fitting == "kai"


def answering(path: str, body: Any) -> Any:
    def answers(request: Request) -> tuple[int, Any]:
        return (200, body) if path in request.path else ordinary(request)

    return answers


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/version", b"x" * (80 << 20), id="80 MB for a version"),
        pytest.param("/version", b"[" * 100_000, id="deep JSON"),
        pytest.param("/version", b"\xff\xfe not json", id="no JSON"),
        pytest.param("/version", [1, 2], id="a list"),
    ],
)
def test_t47_an_answer_that_cannot_be_read_is_a_bounded_error(api: ApiServer, path: str, body: Any) -> None:
    api.answers = answering(path, body)
    report = tried(api)
    assert report.code == "cluster_unreachable"
    assert 0 < len(report.error) <= 500


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/version", {"gitVersion": {"a": EVIL}}, id="an object for a version"),
        pytest.param("/version", {"gitVersion": EVIL * 100}, id="markup for a version"),
        pytest.param("selfsubjectreviews", {"status": {"userInfo": {"username": EVIL * 100}}}, id="markup for a name"),
        pytest.param("selfsubjectreviews", {"status": {"userInfo": [EVIL]}}, id="a list for a user"),
        pytest.param("kube-system", {"metadata": {"name": "kube-system", "uid": EVIL * 100}}, id="markup for a uid"),
        pytest.param("kube-system", {"metadata": {"name": "kube-system"}}, id="no uid"),
        pytest.param("accessreviews", {"status": {"allowed": "yes"}}, id="a word for a right"),
        pytest.param("accessreviews", {"status": [1]}, id="a list for a status"),
    ],
)
def test_t47_lies_are_cut_and_made_harmless(api: ApiServer, path: str, body: Any) -> None:
    api.answers = answering(path, body)
    report = tried(api)
    assert len(report.version) <= 40
    assert len(report.username) <= 253
    assert len(report.uid) <= 64
    assert "\x1b" not in f"{report.version}{report.username}{report.uid}{report.error}"
    if "accessreviews" in path:
        assert len(report.lacking) == len(report.permissions)


def test_t47_the_servers_own_words_are_cut(api: ApiServer) -> None:
    api.answers = lambda _request: (403, {"kind": "Status", "message": EVIL + "x" * 1_000_000})
    report = tried(api)
    assert len(report.error) <= 500
    assert "\x1b" not in report.error


def test_t47_a_server_that_drips_is_left(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.connection.services.connection_test.DEADLINE", 0.3)

    def slow(request: Request) -> tuple[int, Any]:
        if "accessreviews" in request.path:
            time.sleep(0.2)
        return ordinary(request)

    api.answers = slow
    started = time.monotonic()
    report = tried(api)
    assert time.monotonic() - started < 5
    assert any(each.unknown for each in report.lacking)


def test_t48_only_the_entered_credential_is_sent(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listener() as proxy:
        _ambient(tmp_path, monkeypatch, proxy)
        assert tried(api).works
    assert proxy.count == 0
    assert {request.headers.get("Authorization") for request in api.requests} == {"Bearer canary"}
    sent = "".join(f"{request.path}{request.headers}{request.body!r}" for request in api.requests)
    assert "ambient" not in sent
    assert not any("Cookie" in request.headers for request in api.requests)


def test_t48_a_certificate_sends_no_token_along(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = signed(api.authority, "rung")
    with listener() as proxy:
        _ambient(tmp_path, monkeypatch, proxy)
        assert tried(api, token="", certificate=pair.pem, key=pair.key).works
    assert all("Authorization" not in request.headers for request in api.requests)


def test_t48_a_server_that_cannot_prove_itself_gets_nothing(api: ApiServer) -> None:
    report = tried(api, ca=authority("another").pem)
    assert report.code == "cluster_unreachable"
    assert "certificate" in report.error
    assert api.requests == []


def test_t48_another_name_than_the_certificates_is_no_proof(api: ApiServer) -> None:
    assert "certificate" in tried(api, tls_server_name="elsewhere.example").error
    assert api.requests == []
    assert tried(api, tls_server_name="api.example.org").works


def test_t48_an_unproven_server_is_reached_only_where_it_was_entered_so(api: ApiServer) -> None:
    assert tried(api, ca="", insecure=True).works
    assert tried(api, ca="").code == "cluster_unreachable"


def _ambient(folder: Path, monkeypatch: pytest.MonkeyPatch, proxy: Visits) -> None:
    """What lies about on a worker: a mounted account, netrc, proxies, a kubeconfig, a client's own settings."""
    home = folder / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".netrc").write_text("machine 127.0.0.1 login ambient password ambient\n")
    (home / ".netrc").chmod(0o600)
    (home / ".kube" / "config").write_text(json.dumps({"users": [{"name": "u", "user": {"token": "ambient"}}]}))
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    settings = {
        "HOME": str(home),
        "NETRC": str(home / ".netrc"),
        "KUBECONFIG": str(home / ".kube" / "config"),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(proxy.port),
        **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"), f"http://127.0.0.1:{proxy.port}"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
