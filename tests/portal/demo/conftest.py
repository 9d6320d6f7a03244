"""A running demo per file: the files are independent of each other and may run at the same time.

To load the example organisation takes ten seconds: it is done once per run, and each demo starts with a copy.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.portal.demo.installation import Demo
from tests.support.fixtures import shared

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
def prepared(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a demo that was prepared and never started, in the tables that tests use.

    Its time passes as fast as anywhere else, so that its organisation does not age until a demo starts with it.
    """
    with shared(tmp_path_factory, "prepared") as folder:
        if not folder.exists():
            demo = Demo(folder, speed=1)
            folder.mkdir(mode=0o700)
            with django_db_blocker.unblock(), closing(sqlite3.connect(folder / "rung.sqlite3")) as copy:
                connection.ensure_connection()
                connection.connection.backup(copy)
            demo.prepare()
        return folder


@pytest.fixture(scope="module")
def data(prepared: Path) -> Path | None:
    """The data folder that a demo starts with. None: the demo prepares its own."""
    return prepared


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, speed: int, data: Path | None) -> Iterator[Demo]:
    """A demo that is ready. Nothing of it is left afterwards."""
    demo = Demo(tmp_path_factory.mktemp("demo") / "data", speed=speed, data=data)
    try:
        demo.start()
        yield demo
    finally:
        demo.throw_away()
