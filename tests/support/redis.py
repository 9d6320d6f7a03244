"""A real redis-server on a free port of this machine, without persistence."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.support.real import free_port, needed


class Server:
    """A server on a port of its own that may be stopped and started again; what it held is gone then."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it answers."""
        keep_nothing = ("--save", "", "--appendonly", "no")
        command = [needed("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", *keep_nothing]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _wait_for(self.port)

    def stop(self) -> None:
        """Kill it: connections break."""
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def forget_everything(self) -> None:
        """FLUSHALL."""
        with redis.Redis(host="127.0.0.1", port=self.port) as client:
            client.flushall()


@contextmanager
def running() -> Iterator[Server]:
    """A running server."""
    server = Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def server() -> Iterator[str]:
    """A running server; yields its URL."""
    with running() as found:
        yield found.url


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
