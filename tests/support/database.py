"""Point the default connection, in every thread, at another database for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections

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


def _complete(given: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    options = given.pop("OPTIONS", {})
    if host := options.pop("host", None):
        given["HOST"] = host
    return {**usual, **given, "OPTIONS": options}
