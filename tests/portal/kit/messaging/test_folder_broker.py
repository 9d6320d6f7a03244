"""The demo's broker on folders: every message once and whole, whoever writes and reads at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection

from portal.kit.messaging.folder_broker import take, write_atomically


@pytest.fixture
def broker(tmp_path: Path) -> Connection:
    for folder in ("messages", "control"):
        (tmp_path / folder).mkdir()
    messages, control = str(tmp_path / "messages"), str(tmp_path / "control")
    options = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": control}
    return Connection("filesystem://localhost", transport_options=options)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A task queue of this test only: kombu remembers per process what was declared."""
    return str(request.node.name)


def test_messages_come_out_in_the_order_they_went_in(broker: Connection, name: str) -> None:
    with broker.SimpleQueue(name) as queue:
        for number in range(20):
            queue.put({"number": number})
        assert [queue.get(timeout=1).payload["number"] for _ in range(20)] == list(range(20))


def test_task_queues_do_not_mix(broker: Connection, name: str) -> None:
    with broker.SimpleQueue(f"{name}-1") as first, broker.SimpleQueue(f"{name}-2") as second:
        first.put("for the first")
        with pytest.raises(Empty):
            second.get(block=False)
        assert first.get(timeout=1).payload == "for the first"


def test_nothing_is_left_once_it_was_taken(broker: Connection, tmp_path: Path, name: str) -> None:
    with broker.SimpleQueue(name) as queue:
        queue.put("once")
        queue.get(timeout=1).ack()
    assert list((tmp_path / "messages").iterdir()) == []


def test_readers_and_writers_at_once_lose_double_and_halve_nothing(tmp_path: Path) -> None:
    text = "x" * 100_000

    def write(number: int) -> None:
        write_atomically(tmp_path / f"{number}.sync.msg", text)

    def read(_number: int) -> list[str]:
        return [found for file in tmp_path.glob("*.msg") if (found := take(file)) is not None]

    with ThreadPoolExecutor(8) as pool:
        written = [pool.submit(write, number) for number in range(200)]
        early = [found for part in pool.map(read, range(50)) for found in part]
        for future in written:
            future.result()
    assert [*early, *read(0)] == [text] * 200


def test_of_many_that_declare_themselves_at_once_all_are_known(broker: Connection) -> None:
    def declare(number: int) -> None:
        with broker.clone() as connection, connection.channel() as channel:
            channel._queue_bind("exchange", f"key-{number}", None, f"queue-{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(declare, range(40)))
    with broker.channel() as channel:
        assert {entry.queue for entry in channel.get_table("exchange")} == {f"queue-{number}" for number in range(40)}
