"""A running demo per file: the files are independent of each other and may run at the same time."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.portal.demo.installation import Demo

HERE = Path(__file__).parent
SECONDS = 480


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder asks over sockets, and the first of a file also waits for its demo."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.enable_socket)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="module")
def speed() -> int:
    """How many times faster the demo's cluster lives; files may say otherwise."""
    return 60


@pytest.fixture(scope="session")
def migrated(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the tables of the portal, as migrations leave it: a copy of the one that tests use."""
    file = tmp_path_factory.mktemp("migrated") / "rung.sqlite3"
    with django_db_blocker.unblock(), closing(sqlite3.connect(file)) as copy:
        connection.ensure_connection()
        connection.connection.backup(copy)
    return file


@pytest.fixture(scope="module")
def database(migrated: Path) -> Path | None:
    """The database that a demo starts with, which saves the time of all migrations. None: the demo migrates."""
    return migrated


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, speed: int, database: Path | None) -> Iterator[Demo]:
    """A demo that is ready. Nothing of it is left afterwards."""
    demo = Demo(tmp_path_factory.mktemp("demo") / "data", speed=speed, database=database)
    try:
        demo.start()
        yield demo
    finally:
        demo.throw_away()
