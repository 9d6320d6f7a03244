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


@contextmanager
def server(*, durable: bool = False) -> Iterator[Path]:
    """A running server; yields the folder of its socket, where the user `rung` may do everything.

    `durable`: every commit reaches the disk, as in production; tests do without.
    """
    tools = Path(needed("postgres", "usr/lib/postgresql/*/bin/postgres", "opt/homebrew/bin/postgres")).parent
    folder = Path(tempfile.mkdtemp(prefix="rung-pg-"))
    owner = _owner(folder)
    data, log = folder / "data", folder / "log"
    _run(owner, tools / "initdb", "-D", data, "-U", "rung", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
    control = (tools / "pg_ctl", "-D", data, "-w")
    options = OPTIONS if durable else f"{OPTIONS} {FORGETFUL}"
    _run(owner, *control, "-l", log, "-o", f"{options} -c unix_socket_directories={folder}", "start")
    try:
        yield folder
    finally:
        _run(owner, *control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def url(folder: Path, database: str) -> str:
    """The `DATABASE_URL` of one database."""
    return f"postgres://rung@/{database}?host={folder}"


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
