"""A real redis-server on a free port of this machine, without persistence."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.support.real import free_port, needed


@contextmanager
def server() -> Iterator[str]:
    """A running server; yields its URL."""
    port = free_port()
    command = [needed("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int) -> None:
    with redis.Redis(host="127.0.0.1", port=port) as client:
        for _ in range(100):
            if _answers(client):
                return
            time.sleep(0.05)
    raise TimeoutError(f"redis-server on port {port} did not answer")


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
