"""Clients over REST: they submit with keys, change their minds, and try again until they have an answer."""

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tests.factories.workloads import job
from tests.portal.demo.web import Answer, Caller
from tests.support.processes import eventually
from tests.support.stack import Stack

PATIENCE = 120.0
IMAGE = "docker.io/library/python:3.14"
BATCH = 20
"""Deletes in one request: on a busy machine a hundred take longer than a caller waits for an answer."""
STATES = {"suspend": "stopped", "resume": "running", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class Sent:
    """One submission as its client remembers it."""

    key: str
    project_id: str
    manifest: dict[str, Any]
    workload_id: str


class Account(Caller):
    """The stack's service account."""

    def __init__(self, stack: Stack, made: dict[str, Any]) -> None:
        super().__init__(stack.origin)
        self.projects: list[str] = [each["id"] for each in made["projects"].values()]
        self.headers |= {"Authorization": f"Bearer {stack.token(made)}", "Content-Type": "application/json"}

    def submit(self, key: str, project_id: str, manifest: dict[str, Any]) -> Answer:
        """Raises OSError or HTTPException without a whole answer."""
        body = json.dumps({"metadata": {"projectId": project_id}, "manifest": manifest}).encode()
        return self.ask("POST", "/api/v2/workloads", body, **{"Idempotency-Key": key})

    def batch(self, action: str, ids: Sequence[str]) -> Answer:
        """Suspend, resume or delete."""
        return self.ask("POST", "/api/v1/workloads/batch", json.dumps({"action": action, "ids": list(ids)}).encode())


def small_job(name: str) -> dict[str, Any]:
    """A Job of one pod without a GPU that ends within a second when it is stopped."""
    manifest = job(name, gpus=0)
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = IMAGE
    pod["terminationGracePeriodSeconds"] = 1
    return manifest


@dataclass
class Client:
    """Submits until it is stopped; now and then it stops, resumes or deletes what it has sent.

    `wanted`: the last state of each workload that was requested and answered 2xx. `surprises`: answers that a
    client cannot understand: a refusal of a valid request, or no answer for as long as it tries.
    """

    name: str
    account: Account
    dice: random.Random
    pause: tuple[float, float] = (0.2, 0.9)
    intents: float = 0.25
    sent: list[Sent] = field(default_factory=list)
    wanted: dict[str, str] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)
    retries: int = 0

    def run(self, stop: threading.Event) -> None:
        """Until stopped; every request that was begun is carried on until it is answered."""
        number = 0
        while not stop.wait(self.dice.uniform(*self.pause)):
            self.submit(number)
            number += 1
            if self.sent and self.dice.random() < self.intents:
                self.change_mind(self.dice.choice(self.sent).workload_id)

    def submit(self, number: int) -> None:
        """The same with the same key until there is an answer."""
        key, project = f"{self.name}-{number}", self.dice.choice(self.account.projects)
        manifest = small_job(key)
        answer, _ = self._until_answered(key, lambda: self.account.submit(key, project, manifest))
        if answer is None or answer.status != 202:
            self.surprises.append(f"submit {key}: {answer.status if answer else 'no answer'} {answer and answer.text}")
            return
        workload_id = str(json.loads(answer.text)["metadata"]["id"])
        self.sent.append(Sent(key, project, manifest, workload_id))
        self.wanted[workload_id] = "running"

    def change_mind(self, workload_id: str) -> None:
        """An intent that its present state allows."""
        options = {"running": ["suspend", "suspend", "delete"], "stopped": ["resume", "resume", "delete"]}
        if not (actions := options.get(self.wanted[workload_id])):
            return
        action = self.dice.choice(actions)
        answer, tries = self._until_answered(action, lambda: self.account.batch(action, [workload_id]))
        failed = answer.json["failed"] if answer and answer.status == 200 else ["no answer"]
        if failed and tries == 1:  # one that was carried out before its answer got lost may be refused
            self.surprises.append(f"{action} {workload_id}: {failed} {answer and answer.status}")
        else:
            self.wanted[workload_id] = STATES[action]

    def _until_answered(self, what: str, ask: Any) -> tuple[Answer | None, int]:
        until, tries = time.monotonic() + PATIENCE, 0
        while time.monotonic() < until:
            tries += 1
            try:
                answer: Answer = ask()
            except (OSError, HTTPException):
                answer = Answer(0, what, "")
            if answer.status and answer.status < 500:
                return answer, tries
            self.retries += 1
            time.sleep(0.3)
        return None, tries


@contextmanager
def submitting(clients: Sequence[Client]) -> Iterator[None]:
    """They all work for as long as the block lasts, and until their last request is answered."""
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(stop,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE + 30)


def clear_away(stack: Stack, account: Account, prefix: str) -> None:
    """Delete every workload of a run, and wait until their objects are gone: the next one has the cluster to itself."""
    left = "SELECT id::text FROM workloads_workload WHERE deleted_at IS NULL AND name LIKE %s"
    due = "SELECT id FROM workloads_workload WHERE due_at IS NOT NULL FOR UPDATE SKIP LOCKED"
    ids = [row for (row,) in stack.rows(left, f"{prefix}%")]
    for start in range(0, len(ids), BATCH):
        answer = account.batch("delete", ids[start : start + BATCH])
        assert answer.status == 200, answer.text
    stack.rows(f"UPDATE workloads_workload SET due_at = now() WHERE id IN ({due})")
    eventually(lambda: not stack.rows(left, f"{prefix}%"), seconds=PATIENCE)
