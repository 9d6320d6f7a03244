"""Point the default connection, in every thread, at another database for a while; save and load SQLite in memory."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection, connections

from portal.settings import env


@contextmanager
def default_database(url: str) -> Iterator[None]:
    """The default connection goes to `url`; what other threads opened meanwhile is theirs to close."""
    before = connections.settings["default"]
    usual = connections["default"]
    connections.settings["default"] = _complete(env.db_url_config(url), before)
    del connections["default"]
    ContentType.objects.clear_cache()
    try:
        yield
    finally:
        connections["default"].close()
        connections.settings["default"] = before
        connections["default"] = usual
        ContentType.objects.clear_cache()


def migrate() -> None:
    """Bring the default database up to date."""
    call_command("migrate", verbosity=0, interactive=False)


def save(file: Path) -> None:
    """Copy the default database, which is SQLite's, into a file."""
    with closing(sqlite3.connect(file)) as copy:
        connection.connection.backup(copy)


def load(file: Path) -> None:
    """Make the default database the one of Django's tests, in memory, with what `save` copied."""
    connection.close()
    connection.settings_dict["NAME"] = connection.creation._get_test_db_name()
    connection.ensure_connection()
    with closing(sqlite3.connect(file)) as copy:
        copy.backup(connection.connection)


def _complete(given: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    options = given.pop("OPTIONS", {})
    if host := options.pop("host", None):
        given["HOST"] = host
    if given["ENGINE"] == usual["ENGINE"]:
        options = {**usual["OPTIONS"], **options}
    return {**usual, **given, "OPTIONS": options}
