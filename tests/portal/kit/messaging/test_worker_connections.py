"""A worker process keeps its connection to PostgreSQL from task to task, and opens another when that one broke."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from celery import current_app
from django.db import connection, connections

from portal import celery

TASK = SimpleNamespace(request=SimpleNamespace(is_eager=False))
EAGER = SimpleNamespace(request=SimpleNamespace(is_eager=True))


@pytest.fixture
def worker_process() -> Iterator[None]:
    """This process, as if it had just been forked."""
    before = dict(connections.settings["default"])
    celery.keep_connections()
    yield
    connection.close()
    connections.settings["default"].clear()
    connections.settings["default"].update(before)


def server_process() -> int:
    """Which process of PostgreSQL serves the connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def run_a_task() -> int:
    celery.close_obsolete_connections(TASK)
    found = server_process()
    celery.close_obsolete_connections(TASK)
    return found


@pytest.mark.postgres
@pytest.mark.usefixtures("worker_process")
def test_tasks_of_a_worker_process_share_a_connection() -> None:
    connection.close()
    assert run_a_task() == run_a_task()


@pytest.mark.postgres
@pytest.mark.usefixtures("worker_process")
def test_a_task_after_a_restart_of_the_database_opens_another() -> None:
    connection.close()
    first = run_a_task()
    other = connections.create_connection("default")
    with closing(other), other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first])
    assert run_a_task() != first


@pytest.mark.postgres
def test_elsewhere_every_task_opens_its_own() -> None:
    connection.close()
    run_a_task()
    assert connection.connection is None


@pytest.mark.postgres
def test_a_task_that_is_called_in_a_request_leaves_the_connection_open() -> None:
    first = server_process()
    celery.close_obsolete_connections(EAGER)
    assert server_process() == first


def test_celery_itself_closes_no_connection() -> None:
    assert current_app.conf.get("CELERY_DB_REUSE_MAX")
