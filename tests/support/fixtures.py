"""Fixtures over real parts: PostgreSQL, Redis, Chromium, and the rules every test database follows."""

from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from pytest_django.plugin import blocking_manager_key

from portal.audit import triggers
from tests.support import database, postgres, real, redis

MIGRATED_ROWS = pytest.StashKey[str]()
_numbers = count(1)


def commits(item: pytest.Item) -> bool:
    """True for tests that really commit, and so empty their database afterwards."""
    marker = item.get_closest_marker("django_db")
    return marker is not None and bool(marker.kwargs.get("transaction"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that commit leave an empty database behind, without the rows that a flush would make anew."""
    for item in items:
        if commits(item):
            item.add_marker(pytest.mark.django_db(transaction=True, serialized_rollback=True), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Put the migrated rows, such as the dictionary, back for whoever comes next, in whatever order the tests run."""
    rows = item.config.stash.get(MIGRATED_ROWS, "")
    if commits(item):  # a browser test has a connection of its own, which Django gave no copy of them
        connection._test_serialized_contents = rows  # type: ignore[attr-defined]
    yield
    if commits(item) and nextitem is not None:
        with item.config.stash[blocking_manager_key].unblock():
            connection.creation.deserialize_db_from_string(rows)


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> None:
    """Tests that commit empty their database afterwards; the append-only triggers would refuse that."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        triggers.remove(cursor, connection.vendor)
        request.config.stash[MIGRATED_ROWS] = connection.creation.serialize_db_to_string()


@pytest.fixture(scope="session")
def postgres_server(django_db_blocker: Any) -> Iterator[Path]:
    """Folder of a PostgreSQL whose database `template` is migrated."""
    with postgres.server() as folder:
        _create(folder, "template", "template1")
        with django_db_blocker.unblock(), database.default_database(postgres.url(folder, "template")):
            database.migrate()
        yield folder


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


@pytest.fixture(autouse=True)
def _postgres_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("postgres"):
        request.getfixturevalue("postgres_db")


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
