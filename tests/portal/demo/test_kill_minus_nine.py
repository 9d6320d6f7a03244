"""kill -9 of web, worker, beat and observer while people submit: nothing is lost, nothing is done twice.

One demo takes all kills, since what one kill leaves behind is what the next one finds. RUNG_FAULT_SEED replays a run,
RUNG_FAULT_ROUNDS says how often each process is killed.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from clusters.ports.objects import OWNER
from tests.portal.demo.installation import NAMES, Demo
from tests.portal.demo.web import Robot, training
from tests.support.processes import eventually

SEED = int(os.environ.get("RUNG_FAULT_SEED", "") or random.SystemRandom().randrange(10**6))
ROUNDS = int(os.environ.get("RUNG_FAULT_ROUNDS", "") or 3)
CLIENTS = 3
PROJECTS = ("llm-team", "nlp-lab", "speech", "vision-team", "robotics")
ENDED = {"Completed", "Failed", "Stopped"}
PATIENCE = 90.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One submission as its client remembers it."""

    key: str
    project_id: str
    manifest: dict[str, Any]
    workload_id: str


@dataclass
class Client:
    """Submits again and again; after no answer, or a broken one, the same once more with the same key."""

    number: int
    robot: Robot
    projects: list[str]
    dice: random.Random
    stop: threading.Event
    sent: list[Sent] = field(default_factory=list)
    retries: int = 0
    surprises: list[str] = field(default_factory=list)

    def run(self) -> None:
        for number in range(10_000):
            if self.stop.wait(self.dice.uniform(0.05, 0.6)):
                return
            hours = self.dice.choice([0.1, 0.5, 2, 48])
            job = training(f"fault-{self.number}-{number}", gpus=self.dice.choice([0, 1, 2]), hours=hours)
            self.submit(f"key-{SEED}-{self.number}-{number}", self.dice.choice(self.projects), job)

    def submit(self, key: str, project_id: str, manifest: dict[str, Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(OSError):  # refused, reset, or cut in the middle of the answer
                answer = self.robot.submit(project_id, manifest, key=key)
                if answer.status == 202:
                    self.sent.append(Sent(key, project_id, manifest, answer.json["metadata"]["id"]))
                    return
                if answer.status < 500:
                    break
            self.retries += 1
            time.sleep(0.2)
        self.surprises.append(f"{key}: {answer.status} {answer.text}" if "answer" in locals() else key)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What the kills left: the demo, what its clients were promised, and how the schedule went."""

    demo: Demo
    clients: list[Client]
    killed: list[str]

    @property
    def sent(self) -> list[Sent]:
        return [each for client in self.clients for each in client.sent]


def schedule(dice: random.Random) -> list[tuple[str, float]]:
    """Whom to kill, and how many seconds after the kill before: everybody equally often, in any order."""
    names = list(NAMES) * ROUNDS
    dice.shuffle(names)
    return [(name, dice.uniform(0.1, 4.0)) for name in names]


def kill(demo: Demo, name: str) -> None:
    """kill -9 of what runs under this name, working or still starting, as soon as there is such a process."""

    def done() -> bool:
        pid = demo.pid_of(name)
        if pid not in demo.processes():
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    eventually(done, seconds=PATIENCE, log=demo.log)


def settle(demo: Demo, sent: list[Sent]) -> None:
    """Wait until every process has worked since the last kill, and every row was handed to the cluster."""
    last = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
    eventually(lambda: demo.rows("SELECT min(at) FROM core_heartbeat")[0][0] > last, seconds=PATIENCE, log=demo.log)
    eventually(demo.is_ready, seconds=PATIENCE, log=demo.log)
    waiting = "SELECT count(*) FROM workloads_workload WHERE applied_generation < generation"
    eventually(lambda: demo.rows(waiting) == [(0,)], seconds=PATIENCE, log=demo.log)
    unseen = """SELECT count(*) FROM workloads_workload w WHERE name LIKE 'fault-%' AND NOT EXISTS
                (SELECT 1 FROM clusters_observedpod p WHERE replace(p.owner_id, '-', '') = w.id)"""
    eventually(lambda: demo.rows(unseen) == [(0,)], seconds=PATIENCE, log=demo.log)
    assert sent


@pytest.fixture(autouse=True)
def _seed_is_told() -> None:
    sys.stdout.write(f"RUNG_FAULT_SEED={SEED}\n")


@pytest.fixture(scope="module")
def aftermath(demo: Demo) -> Aftermath:
    """The whole schedule, once."""
    dice, stop = random.Random(SEED), threading.Event()
    robot = Robot(demo.origin)
    ids = [robot.project_id(name) for name in PROJECTS]
    clients = [Client(number, robot, ids, random.Random(dice.random()), stop) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    killed = []
    try:
        for name, pause in schedule(dice):
            time.sleep(pause)
            kill(demo, name)
            killed.append(name)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    aftermath = Aftermath(demo, clients, killed)
    settle(demo, aftermath.sent)
    return aftermath


def objects_of_workloads(demo: Demo) -> Iterator[tuple[str, str, bool]]:
    """(workload id, kind, gone) of every managed object that the cluster holds or has held, without pods."""
    rows = demo.rows("SELECT kind, manifest, deleted FROM clusters_sandboxobject WHERE managed AND kind != 'Pod'")
    for kind, manifest, deleted in rows:
        labels = json.loads(manifest)["metadata"].get("labels", {})
        what, _, owner = labels.get(OWNER, "").partition(".")
        if what == "workload":
            yield owner, kind, bool(deleted)


def test_every_process_was_killed_and_the_portal_is_green_again(aftermath: Aftermath) -> None:
    assert Counter(aftermath.killed) == dict.fromkeys(NAMES, ROUNDS)
    assert len(aftermath.sent) >= len(aftermath.killed)
    eventually(aftermath.demo.is_ready, seconds=PATIENCE, log=aftermath.demo.log)


def test_no_submission_was_refused_or_left_unanswered(aftermath: Aftermath) -> None:
    assert [each for client in aftermath.clients for each in client.surprises] == []


def test_every_promise_is_one_row_and_no_row_was_unasked_for(aftermath: Aftermath) -> None:
    promised = [UUID(each.workload_id).hex for each in aftermath.sent]
    rows = aftermath.demo.rows("SELECT id FROM workloads_workload WHERE name LIKE 'fault-%'")
    assert len(set(promised)) == len(promised)
    assert {row for (row,) in rows} == set(promised)


def test_the_same_key_answers_with_the_same_workload(aftermath: Aftermath) -> None:
    robot = aftermath.clients[0].robot
    for each in aftermath.sent:
        again = robot.submit(each.project_id, each.manifest, key=each.key)
        assert (again.status, again.json["metadata"]["id"]) == (202, each.workload_id)


def test_every_workload_has_one_object_that_was_made_once(aftermath: Aftermath) -> None:
    made = Counter(owner for owner, _, _ in objects_of_workloads(aftermath.demo))
    live = Counter(owner for owner, _, gone in objects_of_workloads(aftermath.demo) if not gone)
    phases = dict(aftermath.demo.rows("SELECT id, phase FROM workloads_workload"))
    for each in aftermath.sent:
        assert made[each.workload_id] == 1, each
        assert live[each.workload_id] == 1 or phases[UUID(each.workload_id).hex] in ENDED, each


def test_no_object_is_without_its_row(aftermath: Aftermath) -> None:
    rows = {row for (row,) in aftermath.demo.rows("SELECT id FROM workloads_workload WHERE deleted_at IS NULL")}
    strays = [
        (owner, kind)
        for owner, kind, gone in objects_of_workloads(aftermath.demo)
        if not gone and UUID(owner).hex not in rows
    ]
    assert strays == []


def test_no_row_is_stuck(aftermath: Aftermath) -> None:
    """What has not ended is due, or the cluster has it and its pods are watched."""
    stuck = aftermath.demo.rows(
        """SELECT name, phase FROM workloads_workload w WHERE deleted_at IS NULL AND due_at IS NULL
           AND phase NOT IN ('Completed', 'Failed', 'Stopped') AND NOT (applied_generation = generation AND EXISTS
           (SELECT 1 FROM clusters_observedpod p WHERE replace(p.owner_id, '-', '') = w.id AND p.gone_at IS NULL))"""
    )
    assert stuck == []


def test_what_is_told_to_run_runs_in_the_cluster(aftermath: Aftermath) -> None:
    """Looked at again and again, since the cluster lives on: what differs now must not differ for long."""
    differs = """SELECT name FROM workloads_workload w WHERE phase = 'Running' AND NOT EXISTS
                 (SELECT 1 FROM clusters_sandboxobject o WHERE o.kind = 'Pod' AND NOT o.deleted
                  AND json_extract(o.manifest, '$.status.phase') = 'Running'
                  AND o.manifest LIKE '%workload.' || substr(w.id, 1, 8) || '-' || substr(w.id, 9, 4) || '-%')"""
    eventually(lambda: aftermath.demo.rows(differs) == [])


def test_every_submission_is_in_the_audit_trail_once_and_the_trail_verifies(aftermath: Aftermath) -> None:
    query = "SELECT entity_id FROM audit_auditrecord WHERE action = 'workload.submit' AND result = 'Succeeded'"
    recorded = Counter(UUID(entity).hex for (entity,) in aftermath.demo.rows(query) if entity)
    assert {each.key: recorded[UUID(each.workload_id).hex] for each in aftermath.sent} == dict.fromkeys(
        [each.key for each in aftermath.sent], 1
    )
    assert aftermath.demo.manage("verify_audit").startswith("{")


def test_no_killed_process_leaves_children_of_its_own_behind(aftermath: Aftermath) -> None:
    """The demo itself, web, worker, beat and observer."""
    demo = aftermath.demo
    eventually(lambda: len(demo.processes()) == 5)
