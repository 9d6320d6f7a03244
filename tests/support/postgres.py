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
    """A server that may be stopped and started again; its address stays the same: `folder` holds its socket."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder, self._owner = folder, _owner(folder)
        self._tools = _tools()
        self._options = f"{OPTIONS if durable else f'{OPTIONS} {FORGETFUL}'} -c unix_socket_directories={folder}"
        rules = ("-U", "rung", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        _run(self._owner, self._tools / "initdb", "-D", folder / "data", *rules)

    @property
    def pid(self) -> int:
        """The process that all others of it are children of."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Return once it takes connections."""
        self._control("-l", self.folder / "log", "-o", self._options, "start")

    def stop(self, mode: str = "fast") -> None:
        """`fast`: transactions are rolled back; `immediate`: as if it had crashed, except that it is waited for."""
        self._control("-m", mode, "stop")

    def is_running(self) -> bool:
        """Was it started and not stopped?"""
        return (self.folder / "data" / "postmaster.pid").exists()

    def _control(self, *command: Path | str) -> None:
        _run(self._owner, self._tools / "pg_ctl", "-D", self.folder / "data", "-w", *command)


@contextmanager
def running(*, durable: bool = False) -> Iterator[Server]:
    """A running server in a folder that goes with it.

    `durable`: every commit reaches the disk, as in production; tests do without.
    """
    _tools()
    folder = Path(tempfile.mkdtemp(prefix="rung-pg-"))
    try:
        server = Server(folder, durable=durable)
        server.start()
        try:
            yield server
        finally:
            if server.is_running():
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(*, durable: bool = False) -> Iterator[Path]:
    """A running server; yields the folder of its socket, where the user `rung` may do everything."""
    with running(durable=durable) as found:
        yield found.folder


def url(folder: Path, database: str) -> str:
    """The `DATABASE_URL` of one database."""
    return f"postgres://rung@/{database}?host={folder}"


def dump(folder: Path, database: str, file: Path) -> None:
    """Write a database to a file."""
    _client(folder, database, "pg_dump", "--file", str(file))


def load(folder: Path, database: str, file: Path) -> None:
    """Read what `dump` has written into an empty database."""
    _client(
        folder, database, "psql", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1", "--file", str(file)
    )


def _client(folder: Path, database: str, program: str, *options: str) -> None:
    where = ("--host", str(folder), "--username", "rung", "--dbname", database)
    subprocess.run([str(_tools() / program), *where, *options], check=True, stdout=subprocess.DEVNULL)


def _tools() -> Path:
    """The folder that has the server's programs and the client's, beside the one that PATH may name."""
    return Path(needed("postgres", "usr/lib/postgresql/*/bin/postgres", "opt/homebrew/bin/postgres")).resolve().parent


def _owner(folder: Path) -> str | None:
    """PostgreSQL refuses to run as root: then the system's `postgres` user runs it."""
    if os.geteuid() != 0:
        return None
    shutil.chown(folder, "postgres", "postgres")
    return "postgres"


def _run(owner: str | None, *command: Path | str) -> None:
    subprocess.run(
        [str(part) for part in command], check=True, cwd="/", user=owner, group=owner, stdout=subprocess.DEVNULL
    )
