"""However an answer is framed, it is read whole, or it is an error; and what was kept open is used again or left."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clusters.backends.kubernetes.transport import TransportLimits
from clusters.ports.connection import Connection
from clusters.ports.gateway import ClusterRefused, ClusterUnreachable, ObjectRef
from clusters.ports.objects import PRIORITY_CLASS
from tests.clusters.backends.real_gateways import gateway_of
from tests.clusters.backends.slow_server import END, HEAD, chunk, saying
from tests.support.listeners import ApiServer, api_server

pytestmark = pytest.mark.enable_socket

LIMITS = TransportLimits(connect=2, read=2, total=4, body=100_000, line=5_000)
REF = ObjectRef(PRIORITY_CLASS, "low")
BODY = b'{"metadata":{"name":"low"}}'
PLAIN = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-LENGTH: %d\r\n" % len(BODY)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


def read(folder: Path, pieces: list[bytes], *, times: int = 1, close: bool = True, pause: float = 0.0) -> list[Any]:
    with (
        saying(folder, pieces, close=close, pause=pause) as connection,
        closing(gateway_of(connection, limits=LIMITS)) as gateway,
    ):
        found = [gateway.get(REF)]
        for _ in range(times - 1):
            time.sleep(0.1)  # for what comes behind the answer
            found.append(gateway.get(REF))
        return found


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([PLAIN + LENGTH + b"\r\n" + BODY], id="of a length"),
        pytest.param([PLAIN + LENGTH + LENGTH + b"\r\n" + BODY], id="of a length said twice"),
        pytest.param([PLAIN + LENGTH, b"\r\n" + BODY[:5], BODY[5:]], id="in parts"),
        pytest.param([PLAIN + b"\r\n", BODY], id="until the end"),
        pytest.param([b"HTTP/1.0 200\r\n\r\n" + BODY], id="of an old server"),
        pytest.param([HEAD + chunk(BODY[:7]) + chunk(BODY[7:]) + END], id="in pieces"),
        pytest.param([HEAD + b"1b;name=x\r\n" + BODY + b"\r\n0\r\nTrailer: x\r\n\r\n"], id="with a trailer"),
        pytest.param([HEAD[:20], HEAD[20:] + b"1", b"b\r", b"\n" + BODY + b"\r", b"\n0\r\n", b"\r\n"], id="cut anyhow"),
        pytest.param([PLAIN + b"Content-Length: -1\r\n\r\n" + BODY], id="a length below zero"),
    ],
)
def test_an_answer_is_read_whole(tmp_path: Path, pieces: list[bytes]) -> None:
    assert read(tmp_path, pieces, pause=0.02) == [{"metadata": {"name": "low"}}]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"SSH-2.0-x\r\n\r\n"], id="another protocol"),
        pytest.param([b"HTTP/2 200\r\n\r\n"], id="another version"),
        pytest.param([b"HTTP/1.1 20 OK\r\n\r\n"], id="no status"),
        pytest.param([PLAIN + b"nothing\r\n\r\n"], id="a header without a name"),
        pytest.param([PLAIN + LENGTH + b"Content-Length: 3\r\n\r\n" + BODY], id="two lengths"),
        pytest.param(
            [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN + LENGTH + b"\r\n" + BODY], id="early hints"
        ),
        pytest.param([PLAIN + b"Content-Length: 99999999\r\n\r\n"], id="a length beyond all bounds"),
        pytest.param([PLAIN + LENGTH + b"\r\n" + BODY[:9]], id="cut off"),
        pytest.param([PLAIN], id="cut off in the head"),
        pytest.param([PLAIN + b"x" * 80_000], id="an endless head"),
        pytest.param([PLAIN + b"\r\n" + b"x" * 150_000], id="more than fits, without a length"),
        pytest.param([PLAIN + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk(BODY) + END], id="packed"),
        pytest.param([HEAD + b"zz\r\n"], id="a piece of no length"),
        pytest.param([HEAD + b"3\r\nabcdef\r\n" + END], id="a piece longer than it says"),
        pytest.param([HEAD + chunk(b"x" * 60_000) * 2 + END], id="more than fits, in pieces"),
        pytest.param([HEAD + b"x" * 80_000], id="an endless length"),
        pytest.param([HEAD + chunk(BODY)], id="pieces without an end"),
    ],
)
def test_what_is_no_answer_is_an_unreachable_cluster(tmp_path: Path, pieces: list[bytes]) -> None:
    with pytest.raises(ClusterUnreachable):
        read(tmp_path, pieces)


@pytest.mark.parametrize(
    ("pieces", "close"),
    [
        pytest.param([PLAIN + LENGTH + b"\r\n" + BODY], True, id="closed behind its back"),
        pytest.param([PLAIN + LENGTH + b"Connection: close\r\n\r\n" + BODY], False, id="to be closed"),
        pytest.param([PLAIN + LENGTH + b"\r\n" + BODY, PLAIN], False, id="with something nobody asked for"),
    ],
)
def test_a_connection_that_cannot_be_used_again_is_left(tmp_path: Path, pieces: list[bytes], *, close: bool) -> None:
    assert len(read(tmp_path, pieces, times=3, close=close, pause=0.02)) == 3


def test_a_connection_is_kept_for_the_next_request(api: ApiServer) -> None:
    with closing(gateway_of(Connection(api.url, ca=api.authority.pem, token="canary"), limits=LIMITS)) as gateway:
        for _ in range(3):
            gateway.version()
        kept = list(gateway._transport._idle)
    assert (len(kept), len(api.requests)) == (1, 3)


def test_a_credential_is_no_way_to_say_more_than_itself(api: ApiServer) -> None:
    with pytest.raises(ClusterRefused, match="credential") as error:
        gateway_of(Connection(api.url, ca=api.authority.pem, token="canary\r\nX-Remote-User: admin"))
    assert "canary" not in str(error.value)
    assert api.requests == []
