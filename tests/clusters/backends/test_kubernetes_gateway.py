"""Whatever an API server answers, however slowly: an object, nothing, or an error of our own that says what to do."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.backends.kubernetes.transport import TransportLimits
from clusters.ports.connection import Connection
from clusters.ports.gateway import (
    AdmissionDenied,
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Invalid,
    NotAuthorized,
    NotServed,
    NotSynced,
    ObjectConflict,
    ObjectRef,
    QuotaExceeded,
    VersionConflict,
    VersionExpired,
)
from clusters.ports.objects import NAMESPACE, POD, PRIORITY_CLASS
from tests.clusters.backends.real_gateways import gateway_of
from tests.clusters.backends.slow_server import END, HEAD, chunk, saying
from tests.support.listeners import ApiServer, Request, api_server, listener
from tests.support.real import free_port

pytestmark = pytest.mark.enable_socket

SHORT = TransportLimits(connect=1, read=0.5, total=0.6, body=100_000, line=5_000)
REF = ObjectRef(PRIORITY_CLASS, "low")
BODY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 1}
LIVE = {**BODY, "metadata": {"name": "low", "uid": "u", "resourceVersion": "5"}}

VERBS: dict[str, Callable[[KubernetesGateway], Any]] = {
    "list": lambda gateway: gateway.list(PRIORITY_CLASS),
    "get": lambda gateway: gateway.get(REF),
    "create": lambda gateway: gateway.create(BODY),
    "update": lambda gateway: gateway.update(BODY, observed=LIVE),
    "delete": lambda gateway: gateway.delete(REF, uid="u"),
    "watch": lambda gateway: list(gateway.watch(PRIORITY_CLASS, since="5")),
    "logs": lambda gateway: gateway.logs(ObjectRef(POD, "a", "n")),
    "identity": lambda gateway: gateway.identity(),
    "serves": lambda gateway: gateway.serves(PRIORITY_CLASS),
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


@pytest.fixture
def gateway(api: ApiServer) -> Iterator[KubernetesGateway]:
    with closing(gateway_of(Connection(api.url, ca=api.authority.pem, token="canary"), limits=SHORT)) as made:
        yield made


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def error_of(verb: Callable[[KubernetesGateway], Any], gateway: KubernetesGateway) -> ClusterError | None:
    """The error of our own that a verb ends with; any other is raised."""
    try:
        verb(gateway)
    except ClusterError as error:
        return error
    return None


QUOTA = 'pods "a" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4, used: 6, limited: 8'
RIGHTS = 'pods is forbidden: User "system:serviceaccount:rung" cannot create resource "pods" in API group ""'
SECURITY = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
UNKNOWN_QUOTA = 'pods "a" is forbidden: status unknown for quota: rung-limit, resources: requests.nvidia.com/gpu'
STARTING = 'jobs.batch "a" is forbidden: not yet ready to handle request'
ENDING = {"causes": [{"reason": "NamespaceTerminating"}]}


@pytest.mark.parametrize(
    ("said", "error", "transient"),
    [
        pytest.param(status(400), Invalid, False, id="400"),
        pytest.param(status(401), NotAuthorized, False, id="401"),
        pytest.param(status(403, message=RIGHTS), NotAuthorized, False, id="403 for want of a right"),
        pytest.param(status(403, message=QUOTA), QuotaExceeded, False, id="403 for want of room"),
        pytest.param(status(403, message=SECURITY), AdmissionDenied, False, id="403 by a policy"),
        pytest.param(
            status(403, message=UNKNOWN_QUOTA), QuotaExceeded, False, id="403 of a quota that is not counted yet"
        ),
        pytest.param(status(403, message=STARTING), ClusterBusy, True, id="403 of a server that has just started"),
        pytest.param(status(403, **ENDING), NotSynced, True, id="403 in a namespace that ends"),
        pytest.param(status(404), NotServed, False, id="404 of a path"),
        pytest.param(status(404, name="n", kind="namespaces"), ClusterRefused, False, id="404 of a namespace"),
        pytest.param(status(409, "AlreadyExists"), ObjectConflict, False, id="409 of a name"),
        pytest.param(status(409, "Conflict"), VersionConflict, True, id="409 of a version"),
        pytest.param(status(410), VersionExpired, True, id="410"),
        pytest.param(status(413), ClusterRefused, False, id="413"),
        pytest.param(status(422, message="spec.x: Invalid value"), Invalid, False, id="422"),
        pytest.param(status(429, retryAfterSeconds=3), ClusterBusy, True, id="429"),
        pytest.param(status(500), ClusterBusy, True, id="500"),
        pytest.param(status(503), ClusterBusy, True, id="503"),
        pytest.param(status(504), ClusterBusy, True, id="504"),
    ],
)
def test_every_status_has_one_meaning(
    api: ApiServer, gateway: KubernetesGateway, said: dict[str, Any], error: type[ClusterError], transient: bool
) -> None:
    api.answers = lambda _request: (said["code"], said)
    with pytest.raises(error) as raised:
        gateway.create(BODY)
    assert type(raised.value) is error
    assert raised.value.transient is transient
    assert raised.value.retry_after == said["details"].get("retryAfterSeconds")
    if error is not NotServed:
        assert raised.value.message == said["message"]


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        pytest.param("spec.template.spec.containers[0].image", "/spec/template/spec/containers/0/image", id="a path"),
        pytest.param("metadata.labels[a/b~c]", "/metadata/labels/a~1b~0c", id="a key with signs of its own"),
        pytest.param("", "", id="none"),
        pytest.param(None, "", id="no text"),
    ],
)
def test_a_refused_field_is_a_json_pointer(
    api: ApiServer, gateway: KubernetesGateway, field: str | None, pointer: str
) -> None:
    api.answers = lambda _request: (422, status(422, causes=[{"reason": "FieldValueInvalid", "field": field}]))
    with pytest.raises(Invalid) as raised:
        gateway.create(BODY)
    assert raised.value.pointer == pointer


@pytest.mark.parametrize("code", [400, 422])
def test_what_a_proxy_says_blames_no_object(api: ApiServer, gateway: KubernetesGateway, code: int) -> None:
    api.answers = lambda _request: (code, b"<html>bad request</html>")
    with pytest.raises(ClusterRefused) as raised:
        gateway.create(BODY)
    assert type(raised.value) is ClusterRefused


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, b""), id="nothing"),
        pytest.param((200, b"<html>"), id="a page"),
        pytest.param((200, b'{"metadata": {"uid": "u"'), id="half an object"),
        pytest.param((200, []), id="a list"),
        pytest.param((200, {}), id="an empty object"),
        pytest.param((200, {"metadata": []}), id="metadata that is none"),
        pytest.param((200, {"metadata": {"labels": ["a"], "managedFields": 3}}), id="invalid labels"),
        pytest.param((200, {"metadata": {}, "items": "abc", "resources": 5, "status": 1}), id="members that are none"),
        pytest.param((200, {"metadata": {"continue": "again"}, "items": [1]}), id="a member that is none"),
        pytest.param((200, b'{"a":' * 5000 + b"1" + b"}" * 5000), id="deep"),
        pytest.param((200, b"x" * 200_000), id="long"),
        pytest.param((201, {"type": "ADDED", "object": 1}), id="an event for an object"),
        pytest.param((404, b"404 page not found"), id="404 in plain text"),
        pytest.param((409, {"kind": "Status", "details": [1], "message": {"a": 1}}), id="a status that is none"),
        pytest.param((418, b""), id="418"),
        pytest.param((599, b"\xff"), id="599"),
    ],
)
@pytest.mark.parametrize("verb", VERBS)
def test_no_error_of_another_library_escapes(
    api: ApiServer, gateway: KubernetesGateway, verb: str, answer: tuple[int, Any]
) -> None:
    api.answers = lambda _request: answer
    said = error_of(VERBS[verb], gateway)
    assert said is None or (said.message and "canary" not in repr(said))


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("verb", ["get", "create", "update", "delete", "list", "logs"])
def test_a_redirect_is_not_followed(api: ApiServer, gateway: KubernetesGateway, verb: str, code: int) -> None:
    with listener() as elsewhere:
        api.answers = lambda _request: (code, f"https://127.0.0.1:{elsewhere.port}/api".encode())
        with pytest.raises(ClusterRefused, match="redirect"):
            VERBS[verb](gateway)
        assert elsewhere.count == 0
    assert len(api.requests) == 1


def test_nothing_is_asked_twice_by_itself(api: ApiServer, gateway: KubernetesGateway) -> None:
    api.answers = lambda _request: (503, status(503))
    with pytest.raises(ClusterBusy):
        gateway.get(REF)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([bytes([each]) for each in HEAD], id="headers"),
        pytest.param([HEAD, *[chunk(b" ")] * 200], id="body"),
        pytest.param([HEAD, *[b"0"] * 200], id="the length of a piece"),
    ],
)
def test_a_server_that_drips_is_left_at_the_deadline(tmp_path: Path, pieces: list[bytes]) -> None:
    with (
        saying(tmp_path, pieces, pause=0.05) as connection,
        closing(gateway_of(connection, limits=SHORT)) as gateway,
    ):
        started = time.monotonic()
        with pytest.raises(ClusterUnreachable, match="Timeout: no response"):
            gateway.get(REF)
        assert 0.4 < time.monotonic() - started < 3


def event(type_: str, **metadata: str) -> bytes:
    return json.dumps({"type": type_, "object": {**LIVE, "metadata": metadata}}).encode() + b"\n"


def watched(folder: Path, pieces: list[bytes], *, close: bool = True, wait: float = 5, pause: float = 0.0) -> list[Any]:
    """What a watch tells, and the error it ends with."""
    seen: list[Any] = []
    with (
        saying(folder, pieces, close=close, pause=pause) as connection,
        closing(gateway_of(connection, limits=SHORT)) as gateway,
    ):
        try:
            for each in gateway.watch(PRIORITY_CLASS, since="5", wait=wait):
                seen.append(each.type)  # noqa: PERF401 - what came before the error counts
        except ClusterError as error:
            seen.append(type(error))
    return seen


ADDED, DELETED = event("ADDED", name="a", resourceVersion="6"), event("DELETED", name="a", resourceVersion="7")


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        pytest.param([chunk(ADDED + DELETED), END], ["ADDED", "DELETED"], id="two at once"),
        pytest.param([chunk(ADDED[:40]), chunk(ADDED[40:]), END], ["ADDED"], id="one in two pieces"),
        pytest.param([chunk(event("BOOKMARK", resourceVersion="9")), END], ["BOOKMARK"], id="a bookmark"),
        pytest.param([chunk(ADDED), chunk(DELETED[:40])], ["ADDED", ClusterUnreachable], id="cut in a line"),
        pytest.param([chunk(ADDED)], ["ADDED", ClusterUnreachable], id="cut between lines"),
        pytest.param([chunk(ADDED + DELETED[:40]), END], ["ADDED", ClusterUnreachable], id="ended in a line"),
        pytest.param([chunk(ADDED + b'{"type":"X"}\n'), END], ["ADDED", ClusterUnreachable], id="no event"),
        pytest.param([chunk(ADDED + b"x" * 6000)], ["ADDED", ClusterUnreachable], id="an endless line"),
    ],
)
def test_a_watch_tells_what_is_whole_before_it_says_what_broke(
    tmp_path: Path, pieces: list[bytes], seen: list[Any]
) -> None:
    assert watched(tmp_path, [HEAD, *pieces]) == seen


@pytest.mark.parametrize(("code", "error"), [(410, VersionExpired), (500, ClusterBusy), (403, NotAuthorized)])
def test_an_error_inside_a_watch_means_what_its_status_means(
    tmp_path: Path, code: int, error: type[ClusterError]
) -> None:
    said = json.dumps({"type": "ERROR", "object": status(code, message="Forbidden")}).encode() + b"\n"
    assert watched(tmp_path, [HEAD, chunk(ADDED + said), END]) == ["ADDED", error]


def test_an_expired_watch_may_say_so_at_once(api: ApiServer, gateway: KubernetesGateway) -> None:
    api.answers = lambda _request: (410, status(410, "Expired"))
    with pytest.raises(VersionExpired):
        list(gateway.watch(PRIORITY_CLASS, since="5", wait=5))


def test_a_quiet_watch_is_not_broken_by_what_an_answer_may_take(tmp_path: Path) -> None:
    assert watched(tmp_path, [HEAD, chunk(ADDED), END], pause=3 * SHORT.read) == ["ADDED"]


def test_a_watch_that_falls_silent_past_its_time_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusters.backends.kubernetes.gateway.SLACK", 0.2)
    started = time.monotonic()
    assert watched(tmp_path, [HEAD, chunk(ADDED)], close=False, wait=1) == ["ADDED", ClusterUnreachable]
    assert time.monotonic() - started < 4


def test_a_watch_that_does_not_wait_ends_when_nothing_comes(tmp_path: Path) -> None:
    assert watched(tmp_path, [HEAD, chunk(ADDED)], close=False, wait=0) == ["ADDED"]


def test_t47_a_list_that_goes_on_and_on_is_left(api: ApiServer) -> None:
    """Each page is small enough; together they would fill the memory."""
    page = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"metadata": {"name": "a" * 200}}]}
    api.answers = lambda _request: (200, page)
    connection = Connection(api.url, ca=api.authority.pem, token="canary")
    with (
        closing(gateway_of(connection, limits=replace(SHORT, list=5_000))) as gateway,
        pytest.raises(ClusterUnreachable, match="is too long"),
    ):
        gateway.list(NAMESPACE)
    assert 10 < len(api.requests) < 40


def test_a_list_is_read_page_by_page(api: ApiServer, gateway: KubernetesGateway) -> None:
    def pages(request: Request) -> tuple[int, Any]:
        last = "continue=" in request.path
        return 200, {
            "metadata": {"resourceVersion": "9", "continue": "" if last else "more"},
            "items": [{"metadata": {"name": "b" if last else "a"}}],
        }

    api.answers = pages
    found, version = gateway.list(NAMESPACE, managed_only=False, stale=True)
    assert ([(each["kind"], each["metadata"]["name"]) for each in found], version) == (
        [("Namespace", "a"), ("Namespace", "b")],
        "9",
    )
    assert "resourceVersion=0" in api.requests[0].path
    assert "resourceVersion" not in api.requests[1].path


@pytest.mark.parametrize("where", ["first", "last"])
def test_the_next_page_is_asked_for_early_and_an_object_that_looks_like_a_token_misleads_nobody(
    api: ApiServer, gateway: KubernetesGateway, where: str
) -> None:
    """API servers write no spaces; the metadata of a list come first, or last where the kind is a custom one."""

    def pages(request: Request) -> tuple[int, bytes]:
        token = next((each for each in ("two", "three", "lie") if f"continue={each}" in request.path), "one")
        more = {"one": "two", "two": "three", "three": "", "lie": "lie"}[token]
        metadata = {"resourceVersion": "9", "continue": more}
        lie = {"continue": "lie"} if token != "one" else {}
        items = [{"metadata": {"name": token, "annotations": lie}}]
        parts = {"metadata": metadata, "items": items} if where == "first" else {"items": items, "metadata": metadata}
        return 200, json.dumps(parts, separators=(",", ":")).encode()

    api.answers = pages
    found, _ = gateway.list(NAMESPACE)
    assert [each["metadata"]["name"] for each in found] == ["one", "two", "three"]


def test_an_expired_continuation_begins_again(api: ApiServer, gateway: KubernetesGateway) -> None:
    def pages(request: Request) -> tuple[int, Any]:
        if "continue=" in request.path:
            return 410, status(410, "Expired")
        more = "more" if len(api.requests) == 1 else ""
        return 200, {"metadata": {"resourceVersion": "9", "continue": more}, "items": [{"metadata": {"name": "a"}}]}

    api.answers = pages
    found, _ = gateway.list(NAMESPACE)
    assert [each["metadata"]["name"] for each in found] == ["a"]
    assert len(api.requests) == 3
    api.requests.clear()
    assert [(len(page.objects), page.first) for page in gateway.pages(NAMESPACE)] == [(1, True), (1, True)]


def test_what_a_cluster_serves_is_asked_once(api: ApiServer, gateway: KubernetesGateway) -> None:
    api.answers = lambda _request: (200, {"resources": [{"name": "priorityclasses"}]})
    assert [gateway.serves(PRIORITY_CLASS) for _ in range(3)] == [True] * 3
    assert len(api.requests) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
def test_a_name_is_no_way_out_of_its_path(api: ApiServer, gateway: KubernetesGateway, name: str) -> None:
    with pytest.raises(Invalid):
        gateway.get(ObjectRef(POD, name, "n"))
    with pytest.raises((Invalid, ClusterRefused)):
        gateway.get(ObjectRef(POD, "a", name))
    assert api.requests == []


def test_a_dead_cluster_is_told_at_once_after_a_few_tries() -> None:
    connection = Connection(f"https://127.0.0.1:{free_port()}", token="canary")
    with closing(gateway_of(connection, limits=SHORT)) as gateway:
        for _ in range(3):
            with pytest.raises(ClusterUnreachable, match="refused"):
                gateway.get(REF)
        with pytest.raises(ClusterUnreachable, match="Next attempt in") as error:
            gateway.get(REF)
        assert error.value.retry_after


def test_a_cluster_that_wants_rest_is_left_alone(api: ApiServer, gateway: KubernetesGateway) -> None:
    api.answers = lambda _request: (429, status(429, retryAfterSeconds=30))
    with pytest.raises(ClusterBusy):
        gateway.get(REF)
    with pytest.raises(ClusterBusy) as error:
        gateway.create(BODY)
    assert error.value.retry_after in {29, 30}
    assert len(api.requests) == 1
