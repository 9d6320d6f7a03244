"""T47, T58: a log from a hostile API server: bounded in bytes, lines and time; many at once; nothing is kept."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from clusters.backends.kubernetes import gateway as kubernetes
from clusters.backends.kubernetes.gateway import LOG_BYTES
from clusters.backends.kubernetes.transport import TransportLimits
from clusters.ports.gateway import ClusterError, ClusterUnreachable, ObjectRef
from clusters.ports.objects import POD
from clusters.watch.rules import LONGEST_LINE, LogText, tail
from portal.kit.messaging.concurrency import LogReaderSlots
from tests.clusters.backends.real_gateways import gateway_of
from tests.clusters.backends.slow_server import END, HEAD, chunk, saying

pytestmark = pytest.mark.enable_socket
POD_REF = ObjectRef(POD, "train", "runai-a")
SHORT = TransportLimits(connect=1, read=5, total=30, body=100_000, line=5_000)
ESC = b"\x1b"


def read(folder: Path, pieces: Sequence[bytes], *, pause: float = 0.0, close: bool = True) -> LogText:
    """The log as a page shows it."""
    with (
        saying(folder, [HEAD, *pieces], pause=pause, close=close) as connection,
        closing(gateway_of(connection, limits=SHORT)) as gateway,
    ):
        return tail(gateway.logs(POD_REF, tail=200), most_lines=200)


def test_a_sequence_cut_between_two_pieces_acts_no_more_than_a_whole_one(tmp_path: Path) -> None:
    pieces = [b"safe " + ESC, b"]8;;https://evil.example\x07here", ESC + b"]8;;\x07\nred" + ESC + b"[3", b"1m alert\n"]
    assert read(tmp_path, [*map(chunk, pieces), END]).lines == ("safe here", "red alert")


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    (line,) = read(tmp_path, [*[chunk(b"x" * 65_536)] * 16, END]).lines
    assert line == "x" * LONGEST_LINE + " … (truncated)"


def test_more_lines_than_were_asked_for_are_not_taken(tmp_path: Path) -> None:
    found = read(tmp_path, [chunk(b"a\n" * 30_000), END])
    assert len(found.lines) == 200


def test_a_huge_body_is_left_after_the_cap(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=f"longer than {2 * LOG_BYTES}"):
        read(tmp_path, [chunk(b"y\n" * 65_536)] * 40)


@pytest.mark.parametrize("close", [True, False], ids=["dripping", "silent"])
def test_a_slow_log_holds_its_reader_for_seconds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, close: bool
) -> None:
    monkeypatch.setattr(kubernetes, "LOG_SECONDS", 0.6)
    started = time.monotonic()
    with pytest.raises(ClusterUnreachable, match="Timeout: no response"):
        read(tmp_path, [chunk(b"z\n")] * (100 if close else 1), pause=0.05, close=close)
    assert time.monotonic() - started < 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted where the system lists them")
def test_many_broken_readers_leave_no_connection_and_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "LOG_SECONDS", 0.3)
    with saying(tmp_path, [HEAD, *[chunk(b"a\n")] * 40], pause=0.05, close=False) as connection:
        gateway = gateway_of(connection, limits=SHORT)

        def once(_number: int) -> type[ClusterError] | None:
            try:
                gateway.logs(POD_REF, tail=5)
            except ClusterError as error:
                return type(error)
            return None

        once(0)
        with ThreadPoolExecutor(8) as pool:
            ended = list(pool.map(once, range(16)))
        assert None not in ended
        gateway.close()
        sockets = [each for each in Path("/proc/self/fd").iterdir() if _is_to(each, connection.server)]
    assert sockets == []
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def _is_to(file: Path, server: str) -> bool:
    """An open connection of this process to that server."""
    try:
        inode = str(file.readlink()).removeprefix("socket:[").removesuffix("]")
    except OSError:
        return False
    port = f":{int(server.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[9] == inode and line.split()[2].endswith(port) for line in lines)


def test_of_one_cluster_few_logs_are_read_at_a_time_and_others_keep_their_turns() -> None:
    turns = LogReaderSlots(most=4, of_one=2)
    with turns.turn("slow") as first, turns.turn("slow") as second, turns.turn("slow") as third:
        assert (first, second, third) == (True, True, False)
        with turns.turn("good") as other:
            assert other
            with turns.turn("third") as last, turns.turn("fourth") as beyond:
                assert (last, beyond) == (True, False)
    with pytest.raises(RuntimeError), turns.turn("slow"):
        raise RuntimeError("a reader that goes away in the middle")
    with turns.turn("slow") as one, turns.turn("slow") as two:
        assert one
        assert two
