"""A worker that is busy is not a silent one; one that is frozen or gets no messages is."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from uuid import uuid4

import psycopg
import pytest
from celery.signals import task_postrun, task_prerun
from django.db import OperationalError

from portal.kit.messaging import heartbeats
from portal.kit.messaging.heartbeats import ConsumerHeartbeat
from portal.kit.messaging.tasks import canary
from portal.kit.models import Heartbeat
from tests.support.processes import environment, eventually, manage, running

WORKER = ("celery", "-A", "tests.support.sleeper", "worker", "--concurrency", "1", "--without-gossip")
SLEEP = (
    "from celery import current_app; current_app.send_task('tests.sleep', args=[{}], queue='sync', routing_key='sync')"
)
PATIENCE = 100.0  # processes start slowly on a busy machine
HOUR = 3600.0


def proved(queue: str) -> bool:
    return Heartbeat.objects.filter(name=heartbeats.worker_of(queue)).exists()


class Worker:
    """A process that runs tasks. It proves ten times a second, until it is closed."""

    def __init__(self) -> None:
        self.beat = heartbeats.beat
        self.consumption = ConsumerHeartbeat(every=0.1, beat=self._in_turn)
        self.running: list[tuple[str, str]] = []
        self._turn = Lock()
        self._open = True

    def begin(self, queue: str, seconds: float = HOUR) -> None:
        self.running.append((str(uuid4()), queue))
        self.consumption.begin(*self.running[-1], seconds)

    def end(self) -> None:
        """Its last task is over."""
        self.consumption.end(*self.running.pop())

    def close(self) -> None:
        """Its thread no longer asks the database."""
        with self._turn:
            self._open = False
        while self.running:
            self.end()

    def _in_turn(self, name: str) -> None:
        with self._turn:
            if self._open:
                self.beat(name)


@pytest.fixture
def worker(postgres_db: str) -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def test_a_task_that_begins_proves_its_queue(worker: Worker) -> None:
    worker.begin("sync")
    eventually(lambda: proved("sync"))
    assert not proved("workloads")


def test_a_task_that_ends_proves_its_queue(worker: Worker) -> None:
    worker.begin("sync", seconds=0)
    eventually(lambda: proved("sync"))
    Heartbeat.objects.all().delete()
    time.sleep(0.2)
    worker.end()
    eventually(lambda: proved("sync"))


def test_a_task_that_runs_goes_on_proving_its_queue(worker: Worker) -> None:
    worker.begin("sync")
    for _ in range(3):
        eventually(lambda: proved("sync"))
        Heartbeat.objects.all().delete()


def test_a_task_past_its_time_limit_proves_nothing(worker: Worker) -> None:
    worker.begin("sync", seconds=0.3)
    time.sleep(0.6)
    Heartbeat.objects.all().delete()
    time.sleep(0.6)
    assert not proved("sync")


def test_an_idle_process_proves_nothing(worker: Worker) -> None:
    worker.begin("sync")
    worker.end()
    time.sleep(0.6)
    Heartbeat.objects.all().delete()
    time.sleep(0.6)
    assert not proved("sync")


def test_proofs_are_few_however_many_tasks_there_are(worker: Worker) -> None:
    sent: list[str] = []
    worker.beat, worker.consumption.every = sent.append, HOUR
    for _ in range(200):
        worker.begin("sync")
        worker.end()
        time.sleep(0.002)
    assert sent == ["worker:sync"]


def test_a_database_that_is_away_ends_no_worker(worker: Worker) -> None:
    def refuse(_name: str) -> None:
        refused.append(True)
        raise OperationalError

    refused: list[bool] = []
    worker.beat = refuse
    worker.begin("sync")
    eventually(lambda: len(refused) > 1)
    worker.beat = heartbeats.beat
    eventually(lambda: proved("sync"))


@pytest.mark.parametrize(("queue", "expected"), [("notify", ["worker:notify"]), ("of another program", []), (None, [])])
def test_only_tasks_of_known_queues_prove_anything(
    queue: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(heartbeats, "_consumption", ConsumerHeartbeat(beat=sent.append))
    canary.push_request(delivery_info={"routing_key": queue}, timelimit=(None, None))
    try:
        for moment in (task_prerun, task_postrun):
            moment.send(sender=canary, task_id=str(uuid4()), task=canary)
    finally:
        canary.pop_request()
    time.sleep(0.3)
    assert sent == expected


@pytest.mark.timeout(240)
def test_a_worker_with_one_long_task_is_consuming_until_it_is_frozen(
    postgres_url: str, redis_url: str, tmp_path: Path
) -> None:
    env = environment(tmp_path, DATABASE_URL=postgres_url, RUNG_BROKER_URL=redis_url)
    folder, name = postgres_url.partition("host=")[2], postgres_url.partition("@/")[2].partition("?")[0]
    log = tmp_path / "worker.log"
    with (
        psycopg.connect(host=folder, user="rung", dbname=name, autocommit=True) as connection,
        running(env, *WORKER, log=log) as worker,
    ):
        fresh = "SELECT 1 FROM core_heartbeat WHERE name = 'worker:sync' AND at > now() - interval '1 second'"

        def beats() -> bool:
            return bool(connection.execute(fresh).fetchall())

        manage(env, "shell", "-v", "0", "-c", SLEEP.format(60))
        for _ in range(3):  # no canary comes through meanwhile: this worker has one process, which sleeps
            eventually(beats, seconds=PATIENCE, log=log)
            eventually(lambda: not beats(), seconds=5)
        os.killpg(worker.pid, signal.SIGSTOP)
        try:
            time.sleep(2 * heartbeats.EVERY_SECONDS)
            assert not beats()
        finally:
            os.killpg(worker.pid, signal.SIGCONT)
            os.killpg(worker.pid, signal.SIGKILL)
