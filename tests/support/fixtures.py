"""Fixtures over real parts: PostgreSQL, Redis, Chromium, and the rules every test database follows."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from itertools import count
from pathlib import Path
from shutil import copy
from threading import Condition
from typing import Any

import psycopg
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.test import TransactionTestCase
from pytest_django.live_server_helper import LiveServer

from portal.audit import chain
from tests.support import database, postgres, real, redis
from workloads.forecast.selectors import time_budget

_numbers = count(1)
QUIET_WITHIN = 30.0  # seconds


@contextmanager
def shared(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A path that all workers of a run share. The first one makes it, while the others wait."""
    ours = factory.getbasetemp()
    path = (ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours) / name
    with path.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield path


class InFlight:
    """Requests that a live server is answering. A browser that goes away does not end them."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = Condition()

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`WSGIHandler.__call__`, counted from its beginning to its end."""

        def counting(handler: WSGIHandler, *args: Any) -> Any:
            self._add(1)
            try:
                return call(handler, *args)
            finally:
                self._add(-1)

        return counting

    def _add(self, number: int) -> None:
        with self._changed:
            self._count += number
            self._changed.notify_all()

    def wait_for_none(self) -> None:
        """Raises `AssertionError` when one takes longer than any should."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._count, QUIET_WITHIN), f"{self._count} requests do not end"


class Migrated:
    """The test database as its migrations left it: a copy beside it, put back whole after tests that commit.

    To empty every table and fill it with the migrated rows again takes a second; this takes milliseconds.
    """

    def __init__(self) -> None:
        self._copy = sqlite3.connect(":memory:", check_same_thread=False)
        connection.ensure_connection()
        connection.connection.backup(self._copy)

    def restore(self) -> None:
        """Everybody sees it at once. What is open in the connection is given up."""
        connection.close_if_unusable_or_obsolete()
        connection.ensure_connection()
        connection.connection.rollback()
        self._copy.backup(connection.connection)


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """The database in memory: one worker of a run migrates its own, and the others load what that one saved.

    Tests that commit put it back afterwards; those on PostgreSQL, or with a live server, have one of their own.
    """
    with django_db_blocker.unblock():
        with shared(tmp_path_factory, "migrated.sqlite3") as file:
            if file.exists():
                database.load(file)
            else:
                request.getfixturevalue("django_db_setup")  # the fixture of pytest-django
                database.save(file)
        with connection.cursor() as cursor:
            chain.remove_triggers(cursor, connection.vendor)
        migrated = Migrated()
    in_flight = InFlight()

    def restore(_case: TransactionTestCase) -> None:
        in_flight.wait_for_none()
        if connection.vendor == "sqlite":
            migrated.restore()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WSGIHandler, "__call__", in_flight.counted(WSGIHandler.__call__))
        patch.setattr(TransactionTestCase, "_fixture_teardown", restore)
        yield


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Path]:
    """Folder of a PostgreSQL whose database `template` is migrated: once per run, the other workers load a dump."""
    with postgres.server() as folder:
        _create(folder, "template", "template1")
        with shared(tmp_path_factory, "migrated.sql") as dump:
            if dump.exists():
                postgres.load(folder, "template", dump)
            else:
                with django_db_blocker.unblock(), database.default_database(postgres.url(folder, "template")):
                    database.migrate()
                postgres.dump(folder, "template", dump)
        yield folder


@pytest.fixture(scope="session")
def postgres_dump(postgres_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database for servers of a test's own: to load it costs a tenth of the migrations."""
    with shared(tmp_path_factory, "migrated.sql") as dump:
        return dump


@pytest.fixture
def postgres_url(postgres_server: Path) -> Iterator[str]:
    """URL of a migrated PostgreSQL database that only this test uses."""
    name = f"test_{next(_numbers)}"
    _create(postgres_server, name, "template")
    yield postgres.url(postgres_server, name)
    with _admin(postgres_server) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def postgres_db(postgres_url: str, django_db_blocker: Any) -> Iterator[str]:
    """Everything in this process, in every thread, uses PostgreSQL during the test. For tests marked `postgres`."""
    with django_db_blocker.unblock(), database.default_database(postgres_url):
        yield postgres_url


@pytest.fixture(scope="session")
def live_server(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """A server in this process. Each of its threads has a connection of its own to the database of the test.

    The threads would share the one of a database in memory, and end each other's savepoints.
    """
    unused = tmp_path_factory.mktemp("database") / "unused.sqlite3"
    with django_db_blocker.unblock(), database.default_database(f"sqlite:///{unused}"):
        server = LiveServer("127.0.0.1")
    yield server
    server.stop()


@pytest.fixture
def file_db(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Everything in this process, in every thread, uses a migrated file of SQLite during the test."""
    file = tmp_path_factory.mktemp("database") / "test.sqlite3"
    with shared(tmp_path_factory, "migrated.sqlite3") as migrated:
        copy(migrated, file)
    with django_db_blocker.unblock(), database.default_database(f"sqlite:///{file}"):
        yield


@pytest.fixture(autouse=True)
def _own_database(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("postgres"):
        request.getfixturevalue("postgres_db")
    elif "live_server" in request.fixturenames:
        request.getfixturevalue("file_db")


@pytest.fixture(scope="session", autouse=True)
def _patient_model() -> Iterator[None]:
    """What the model answers does not depend on the machine's speed. Time budgets have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_budget, "SECONDS", 60.0)
        yield


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """URL of a real Redis of this session."""
    with redis.server() as url:
        yield url


@pytest.fixture
def redis_url(socket_enabled: None, redis_server: str) -> str:
    """URL of a real Redis."""
    return redis_server


@pytest.fixture
def chromium(socket_enabled: None) -> str:
    """Path of a Chromium to drive."""
    return real.needed("chromium", "usr/bin/chromium-browser", "usr/bin/google-chrome")


def _admin(folder: Path) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(folder), user="rung", dbname="postgres", autocommit=True)


def _create(folder: Path, name: str, template: str) -> None:
    with _admin(folder) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
