"""One demo in a folder of its own: start it, look at its processes and its database, end it."""

import base64
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from portal.demo.__main__ import stored_secret_key
from tests.support.processes import end, environment, eventually, manage
from tests.support.real import free_port
from tests.support.repository import ROOT

PASSWORD = "pass-phrase of this demo"
NAMES = ("web", "worker", "beat", "observer")
READY_SECONDS = 120.0
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Demo:
    """`python -m portal.demo` on a free port. SQLite and a broker of folders, as they are by default."""

    def __init__(self, folder: Path, *, speed: int, data: Path | None = None) -> None:
        self.folder, self.port = folder, free_port()
        if data:
            shutil.copytree(data, folder)
        self.origin = f"http://127.0.0.1:{self.port}"
        self.log = folder.with_suffix(".log")
        handles = {"RUNG_PORT": str(self.port), "RUNG_DEMO_PASSWORD": PASSWORD, "RUNG_DEMO_SPEED": str(speed)}
        self.env = environment(folder, **handles)
        for name in ("RUNG_SECRET_KEY", "DJANGO_SETTINGS_MODULE"):
            del self.env[name]
        self.process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """What a start does before its processes, and no more."""
        for name in ("secret-key", "credential-keys"):
            stored_secret_key(self.folder / name, base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
        self.env["RUNG_WAKEUPS"] = "off"
        self.manage("prepare_demo")

    def start(self) -> None:
        """Answers once the whole portal is ready."""
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "portal.demo"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log, process_group=0)
        eventually(self.is_ready, seconds=READY_SECONDS, log=self.log)

    def stop(self) -> int:
        """SIGTERM, as from Ctrl-C; answers the exit code."""
        assert self.process
        end(self.process, seconds=30)
        return self.process.returncode

    def throw_away(self) -> None:
        """End it and remove its data; what is left running is a failure."""
        left = self.stop(), self.processes()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert left == (0, {})

    def is_ready(self) -> bool:
        assert self.process
        assert self.process.poll() is None, self.log.read_text()
        with suppress(OSError), OPENER.open(f"{self.origin}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def pid_of(self, name: str) -> int:
        """The process that the supervisor started last under this name; 0 while there is none."""
        with suppress(FileNotFoundError):
            return int((self.folder / "pids" / f"{name}.pid").read_text() or 0)
        return 0

    def processes(self) -> dict[int, str]:
        """Every process of this demo, however it was started: they inherit the name of its data folder."""
        return dict(self._processes())

    def _processes(self) -> Iterator[tuple[int, str]]:
        mark = f"RUNG_DATA={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the database holds now."""
        file = f"file:{self.folder / 'rung.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(file, uri=True, timeout=20)) as connection:
            return connection.execute(query, values).fetchall()

    def manage(self, *arguments: str) -> str:
        """A management command on its data."""
        return manage({**self.env, "DJANGO_SETTINGS_MODULE": "portal.settings"}, *arguments)

    def said(self) -> str:
        """What it and its processes wrote, without colours."""
        files = [self.log, *sorted((self.folder / "logs").glob("*.log"))]
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(file.read_text(errors="replace") for file in files))
