"""The demo's broker in a folder: a consumer never sees half a message."""

import threading
from pathlib import Path

import pytest
from kombu import Connection
from kombu.exceptions import ChannelError

MESSAGES = 300


def connection(folder: Path) -> Connection:
    for name in ("messages", "control"):
        (folder / name).mkdir(exist_ok=True)
    messages, control = str(folder / "messages"), str(folder / "control")
    options = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": control}
    return Connection("filesystem://localhost", transport_options={**options, "store_processed": False})


def test_messages_written_while_they_are_read_arrive_whole(tmp_path: Path) -> None:
    body = {"padding": "x" * 20_000}

    def write() -> None:
        with connection(tmp_path) as link, link.SimpleQueue("sync") as queue:
            for _ in range(MESSAGES):
                queue.put(body)

    writer = threading.Thread(target=write)
    writer.start()
    with connection(tmp_path) as link, link.SimpleQueue("sync") as queue:
        for _ in range(MESSAGES):
            message = queue.get(timeout=20)
            assert message.payload == body
            message.ack()
    writer.join()
    assert list((tmp_path / "messages").iterdir()) == []


def test_a_folder_that_is_gone_is_an_error_of_the_broker(tmp_path: Path) -> None:
    with connection(tmp_path) as link:
        channel = link.channel()
        (tmp_path / "messages").rmdir()
        with pytest.raises(ChannelError):
            channel._put("sync", {})
