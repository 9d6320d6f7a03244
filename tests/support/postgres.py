"""A real PostgreSQL in a folder of its own, without a port: initdb once per session, a fresh database per test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.real import needed

OPTIONS = "-c listen_addresses= -c max_connections=150"
FORGETFUL = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off"


class Server:
    """A PostgreSQL that can be stopped and started again on the same data. It listens on a socket in its folder only.

    `durable`: every commit reaches the disk, as in production; tests do without.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._tools = Path(needed("postgres", "usr/lib/postgresql/*/bin/postgres", "opt/homebrew/bin/postgres")).parent
        self.folder = folder
        self._owner = _owner(folder)
        self._options = OPTIONS if durable else f"{OPTIONS} {FORGETFUL}"
        flags = ("-U", "rung", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        self._run("initdb", "-D", folder / "data", *flags)

    def start(self) -> None:
        """Start, and return once it takes connections."""
        options = f"{self._options} -c unix_socket_directories={self.folder}"
        self._control("-l", self.folder / "log", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """End every connection and stop: at once, as after a crash, or `fast`, in order."""
        self._control("-m", mode, "stop")

    def is_running(self) -> bool:
        """Was it started and not stopped?"""
        return (self.folder / "data" / "postmaster.pid").exists()

    def _control(self, *arguments: Path | str) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-w", *arguments)

    def _run(self, tool: str, *arguments: Path | str) -> None:
        command = [str(part) for part in (self._tools / tool, *arguments)]
        subprocess.run(command, check=True, cwd="/", user=self._owner, group=self._owner, stdout=subprocess.DEVNULL)


@contextmanager
def restartable(*, durable: bool = False) -> Iterator[Server]:
    """A running server that the test may stop and start."""
    folder = Path(tempfile.mkdtemp(prefix="rung-pg-"))
    one = Server(folder, durable=durable)
    one.start()
    try:
        yield one
    finally:
        if one.is_running():
            one.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(*, durable: bool = False) -> Iterator[Path]:
    """A running server; yields the folder of its socket, where the user `rung` may do everything."""
    with restartable(durable=durable) as one:
        yield one.folder


def url(folder: Path, database: str) -> str:
    """The `DATABASE_URL` of one database."""
    return f"postgres://rung@/{database}?host={folder}"


def _owner(folder: Path) -> str | None:
    """PostgreSQL refuses to run as root: then the system's `postgres` user runs it."""
    if os.geteuid() != 0:
        return None
    shutil.chown(folder, "postgres", "postgres")
    return "postgres"
