"""One installation as separate processes, as compose runs them: PostgreSQL, Redis, web, workers, beats, observers.

Every process may be killed or frozen. A supervisor starts again what died, as a restart policy would, and remembers
each process that ended without having been killed. Everything listens on this machine and ends with the stack.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

import psycopg
from django.conf import settings

from tests.support import postgres, redis
from tests.support.processes import environment, eventually, manage
from tests.support.real import free_port
from tests.support.repository import ROOT

DATABASE = "stack"
RESTART_SECONDS = 1.0
GRACE_SECONDS = 10.0
READY_SECONDS = 120.0
PATIENCE_SECONDS = 8.0
PERIODIC = "periodic"
KEYS = "b25seS1mb3ItdGVzdHMtb25seS1mb3ItdGVzdHMtMDE="
FOUNDING = "import django; django.setup(); from tests.support import founding; founding.main()"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Part:
    """A process that is started again when it dies. `ended` holds what ended without having been killed."""

    name: str
    command: Sequence[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    killed: set[int] = field(default_factory=set)
    ended: list[tuple[int, int]] = field(default_factory=list)
    due_at: float = 0.0

    def supervise(self) -> None:
        """Notice a death, and start what is due. What a dead process leaves of its group goes first."""
        if self.process and self.process.poll() is not None and not self.due_at:
            if self.process.pid not in self.killed:
                self.ended.append((self.process.pid, self.process.returncode))
            self.due_at = time.monotonic() + RESTART_SECONDS
        if not self.process or (self.due_at and time.monotonic() >= self.due_at):
            self._clear()
            self.due_at = 0.0
            self._start()

    def pid(self) -> int:
        """The process that runs now; waits for one that is being started again."""
        eventually(lambda: self.process and self.process.poll() is None, seconds=30, log=self.log)
        assert self.process
        return self.process.pid

    def kill(self) -> None:
        """kill -9 of the process; its children learn of it by themselves."""
        pid = self.pid()
        self.killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    def kill_child(self, dice: random.Random) -> None:
        """kill -9 of one of its children, if there is any."""
        if children := children_of(self.pid()):
            with suppress(ProcessLookupError):
                os.kill(dice.choice(children), signal.SIGKILL)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP for the whole group, and SIGCONT."""
        group = self.pid()
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGSTOP)
            time.sleep(seconds)
            os.killpg(group, signal.SIGCONT)

    def ask_to_end(self) -> None:
        """SIGTERM."""
        if self.process and self.process.poll() is None:
            self.process.terminate()

    def end(self, until: float) -> None:
        """Wait a while, then SIGKILL for whatever is left."""
        if self.process:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.1, until - time.monotonic()))
            self._clear()
            self.process.wait()

    def _start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )

    def _clear(self) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Stack:
    """The processes, what they share, and the supervisor. Enter it, `found` an organisation, then use it."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        concurrency: int = 2,
        beats: int = 2,
        observers: int = 2,
        web: int = 1,
        migrated: Path | None = None,
    ) -> None:
        """`migrated`: a dump to load instead of migrating."""
        self.folder, self.port = folder, free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self._counts = {"worker": workers, "beat": beats, "observer": observers}
        self._concurrency, self._web_workers = concurrency, web
        self._migrated = migrated
        self.parts: dict[str, Part] = {}
        self._exits = ExitStack()
        self._ended = threading.Event()
        self.env: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self.postgres = exits.enter_context(postgres.running(durable=True))  # what was answered outlives a crash
            self.redis = exits.enter_context(redis.running())
            with psycopg.connect(host=str(self.postgres.folder), user="rung", dbname="postgres", autocommit=True) as it:
                it.execute(f'CREATE DATABASE "{DATABASE}"'.encode())
            self.env = self._environment()
            if self._migrated:
                postgres.load(self.postgres.folder, DATABASE, self._migrated)
            else:
                manage(self.env, "migrate", "--noinput", "--verbosity", "0")
            exits.callback(self._end)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exits.close()

    def found(self, **wishes: Any) -> dict[str, Any]:
        """Make the organisation: see `tests.support.founding`."""
        command = [sys.executable, "-c", FOUNDING]
        given = json.dumps(wishes)
        done = subprocess.run(command, cwd=ROOT, env=self.env, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def token(self, made: dict[str, Any]) -> str:
        """A bearer token of the account that `found` has made."""
        named = {"clientId": made["client_id"], "clientSecret": made["client_secret"]}
        body = json.dumps({"grantType": "client_credentials", **named}).encode()
        ask = urllib.request.Request(f"{self.origin}/api/v1/token", body, {"Content-Type": "application/json"})
        with DIRECT.open(ask, timeout=30) as answer:
            return str(json.loads(answer.read())["accessToken"])

    def start(self) -> None:
        """Start every process; return once the portal is ready."""
        for name, command in self._commands():
            env = {**self.env, "RUNG_DATABASE_POOL": "true"} if name == "web" else self.env
            self.parts[name] = Part(name, command, env, self.folder / f"{name}.log")
        supervisor = threading.Thread(target=self._supervise, daemon=True)
        supervisor.start()
        self._exits.callback(supervisor.join)
        self._exits.callback(self._ended.set)
        eventually(lambda: self.readiness()[0] == 200, seconds=READY_SECONDS, log=self.parts["web"].log)

    def readiness(self) -> tuple[int, dict[str, Any], float]:
        """Status, body and seconds of `/readyz`; 0 without an answer."""
        status, text, seconds = self._timed("/readyz")
        with suppress(ValueError):
            return status, json.loads(text), seconds
        return status, {}, seconds

    def metrics(self) -> tuple[int, float]:
        """Status and seconds of `/metrics`."""
        status, _, seconds = self._timed("/metrics")
        return status, seconds

    def _timed(self, path: str) -> tuple[int, bytes, float]:
        begun = time.monotonic()
        try:
            with DIRECT.open(f"{self.origin}{path}", timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read(), time.monotonic() - begun
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), time.monotonic() - begun
        except (OSError, HTTPException):
            return 0, b"", time.monotonic() - begun

    def parts_of(self, kind: str) -> list[Part]:
        """Every process of a kind: web, worker, periodic, beat or observer."""
        return [part for name, part in self.parts.items() if name.partition("-")[0] == kind]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database, or change it where a test must."""
        with self._connection() as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def ended_by_themselves(self) -> dict[str, list[tuple[int, int]]]:
        """Process ids and exit codes of what ended without having been killed."""
        return {name: part.ended for name, part in self.parts.items() if part.ended}

    def forget_ends(self) -> None:
        """Count from now on."""
        for part in self.parts.values():
            part.ended.clear()

    def freeze_database(self, seconds: float) -> None:
        """SIGSTOP for PostgreSQL and each of its connections, and SIGCONT."""
        with frozen([self.postgres.pid, *children_of(self.postgres.pid)]):
            time.sleep(seconds)

    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.postgres.folder), user="rung", dbname=DATABASE, autocommit=True)

    def _environment(self) -> dict[str, str]:
        return environment(
            self.folder / "data",
            DATABASE_URL=postgres.url(self.postgres.folder, DATABASE),
            RUNG_BROKER_URL=self.redis.url,
            RUNG_CREDENTIAL_KEYS=KEYS,
            RUNG_CLUSTER_ADDRESSES="127.0.0.0/8",
        )

    def _commands(self) -> Iterator[tuple[str, list[str]]]:
        celery = [sys.executable, "-m", "celery", "-A", "portal"]
        yield "web", [*self._uvicorn(), "--workers", str(self._web_workers)]
        queues = ",".join(name for name in settings.QUEUES if name != PERIODIC)
        for number in range(1, self._counts["worker"] + 1):
            size = ["-Q", queues, "--concurrency", str(self._concurrency)]
            yield f"worker-{number}", [*celery, "worker", *size, "-n", f"w{number}@%h", "--loglevel", "WARNING"]
        if PERIODIC in settings.QUEUES:
            size = ["-Q", PERIODIC, "--concurrency", "2"]
            yield PERIODIC, [*celery, "worker", *size, "-n", "p@%h", "--loglevel", "WARNING"]
        for number in range(1, self._counts["beat"] + 1):
            yield f"beat-{number}", [*celery, "beat", "--pidfile", "", "--loglevel", "WARNING"]
        for number in range(1, self._counts["observer"] + 1):
            yield f"observer-{number}", [sys.executable, "manage.py", "observer"]

    def _uvicorn(self) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        options = ["--no-proxy-headers", "--no-server-header", "--lifespan", "off", "--log-level", "warning"]
        return [sys.executable, "-m", "uvicorn", "portal.asgi:application", *where, *options]

    def _supervise(self) -> None:
        while not self._ended.wait(0.2):
            for part in self.parts.values():
                part.supervise()

    def _end(self) -> None:
        for part in self.parts.values():
            part.ask_to_end()
        until = time.monotonic() + GRACE_SECONDS
        for part in self.parts.values():
            part.end(until)


def children_of(pid: int) -> list[int]:
    """Processes whose parent it is."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """These processes stop for as long as the block lasts."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
