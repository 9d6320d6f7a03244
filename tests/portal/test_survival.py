"""F1-F3: web, worker and beat of a running demo are killed at any time; nothing accepted is lost or doubled."""

import json
import os
import random
import signal
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import environment, eventually, manage, running
from tests.support.real import free_port

SEED = int(os.environ.get("RUNG_TEST_SEED", "4711"))
KILLS = 20
VICTIMS = ("web", "worker", "beat")
PASSWORD = "survival-pass-phrase"

pytestmark = pytest.mark.timeout(900)


class Demo:
    """A running demo, spoken to over REST."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.address = folder, f"http://127.0.0.1:{port}"
        self.headers = {"Content-Type": "application/json"}

    def call(self, path: str, body: Any = None, **headers: str) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data, {**self.headers, **headers})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def ready(self) -> bool:
        with suppress(OSError):
            return bool(self.call("/readyz")["status"] == "ready")
        return False

    def sign_in(self) -> None:
        grant = {"grantType": "client_credentials", "clientId": "demo-automation", "clientSecret": PASSWORD}
        self.headers["Authorization"] = f"Bearer {self.call('/api/v1/token', grant)['accessToken']}"

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "rung.sqlite3", timeout=20)) as database:
            return database.execute(query, values).fetchall()

    def kill(self, name: str) -> bool:
        """kill -9; False if it is dead already and not yet back."""
        try:
            os.kill(int((self.folder / "pids" / f"{name}.pid").read_text()), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def submit(self, name: str, project: str) -> str:
        """Until it is accepted, as a careful client does: the same key again after every failure."""
        container = {"name": "main", "image": "docker.io/a/b:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
        body = {"metadata": {"projectId": project, "priority": "low"}, "manifest": job}
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(OSError):
                return str(self.call("/api/v2/workloads", body, **{"Idempotency-Key": name})["metadata"]["id"])
            time.sleep(0.3)
        raise AssertionError(f"{name} was never accepted")


@pytest.fixture
def demo(tmp_path: Path, socket_enabled: None) -> Iterator[Demo]:
    """A demo in a folder of its own, ready."""
    port = free_port()
    env = environment(tmp_path, RUNG_PORT=str(port), RUNG_DEMO_PASSWORD=PASSWORD, RUNG_DEMO_SPEED="60")
    log = tmp_path / "demo.log"
    with running(env, "portal.demo", log=log):
        demo = Demo(tmp_path, port)
        eventually(demo.ready, seconds=180, log=log)
        demo.sign_in()
        yield demo


def test_what_was_accepted_is_there_once_and_runs(demo: Demo, record_property: Any) -> None:
    record_property("seed", SEED)
    chance = random.Random(SEED)
    [(project,)] = demo.rows("SELECT id FROM tenants_project WHERE name = 'llm-team'")
    accepted = []
    for number in range(KILLS):
        eventually(lambda: demo.kill(chance.choice(VICTIMS)))
        time.sleep(chance.uniform(0, 1.5))
        accepted.append(demo.submit(f"survivor-{SEED}-{number}", str(project)))
    eventually(demo.ready, seconds=120, log=demo.folder / "demo.log")

    assert (demo.folder / "demo.log").read_text().count("ended with code -9") == KILLS
    mine = f"survivor-{SEED}-%"
    stored = demo.rows("SELECT id FROM workloads_workload WHERE name LIKE ?", mine)
    assert sorted(row[0] for row in stored) == sorted(identity.replace("-", "") for identity in accepted)
    eventually(lambda: objects(demo, mine) == {f"survivor-{SEED}-{number}": 1 for number in range(KILLS)}, seconds=90)
    env = environment(demo.folder)
    manage(env, "verify_audit")


def objects(demo: Demo, mine: str) -> dict[str, int]:
    """How many jobs the cluster holds, or held, for each of my workloads."""
    names = demo.rows("SELECT name FROM clusters_sandboxobject WHERE kind = 'Job.batch' AND name LIKE ?", mine)
    counts: dict[str, int] = {}
    for (name,) in names:
        counts[name.rpartition("-")[0]] = counts.get(name.rpartition("-")[0], 0) + 1
    return counts
