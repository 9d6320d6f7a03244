"""Real workers and beats on both brokers: what is sent is consumed, and two beats are as good as one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.processes import environment, eventually, manage, running

WORKER = ("celery", "-A", "portal", "worker", "--concurrency", "2", "--without-gossip", "--without-mingle")
BEAT = ("celery", "-A", "portal", "beat", "--pidfile", "")
SEND = (
    "from celery import current_app; "
    "[current_app.send_task('core.canary', args=[q], queue=q) for q in ('sync', 'workloads', 'notify', 'maintenance')]"
)
PATIENCE = 100.0  # processes start slowly on a busy machine
CONSUMED = {"worker:sync", "worker:workloads", "worker:notify", "worker:maintenance"}


@contextmanager
def heartbeats_of(url: str) -> Iterator[psycopg.Cursor[tuple[str]]]:
    """A look into the database of the processes."""
    folder = url.partition("host=")[2]
    name = url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(host=folder, user="rung", dbname=name, autocommit=True) as connection:
        yield connection.cursor()


def names(cursor: psycopg.Cursor[tuple[str]]) -> set[str]:
    return {name for (name,) in cursor.execute("SELECT name FROM core_heartbeat").fetchall()}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("broker", ["filesystem", "redis"])
def test_a_worker_consumes_every_task_queue(
    broker: str, request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path
) -> None:
    broker_url = "filesystem://localhost" if broker == "filesystem" else request.getfixturevalue("redis_url")
    env = environment(tmp_path, DATABASE_URL=postgres_url, RUNG_BROKER_URL=broker_url)
    log = tmp_path / "worker.log"
    with running(env, *WORKER, log=log), heartbeats_of(postgres_url) as cursor:
        manage(env, "shell", "-v", "0", "-c", SEND)
        eventually(lambda: names(cursor) >= CONSUMED, seconds=PATIENCE, log=log)


@pytest.mark.timeout(240)
def test_two_beats_cause_each_period_once_and_nothing_needs_a_message(postgres_url: str, tmp_path: Path) -> None:
    env = environment(tmp_path, DATABASE_URL=postgres_url)
    log = tmp_path / "beats.log"
    jobs = "SELECT job, count(*), count(DISTINCT start) FROM core_period GROUP BY job"
    with ExitStack() as stack, heartbeats_of(postgres_url) as cursor:
        for command in (WORKER, BEAT, BEAT):
            stack.enter_context(running(env, *command, log=log))
        eventually(lambda: names(cursor) >= {"beat", *CONSUMED}, seconds=PATIENCE, log=log)
        eventually(lambda: len(cursor.execute(jobs).fetchall()) >= 3, seconds=PATIENCE, log=log)
        assert [job for job, runs, starts in cursor.execute(jobs).fetchall() if runs != starts] == []
