"""App configuration of the shared kit, with system checks of the configuration that run at start."""

import os
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Caution
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import got_request_exception
from django.db.models.signals import post_migrate

LOCAL_HOSTS = {"127.0.0.1", "localhost", "[::1]", "::1", "testserver"}


def secret_key_is_set(**_kwargs: Any) -> list[CheckMessage]:
    """Without a secret key sessions and audit digests could be forged."""
    try:
        present = bool(settings.SECRET_KEY)
    except ImproperlyConfigured:
        present = False
    if present:
        return []
    hint = "Set RUNG_SECRET_KEY to a long random text. `make demo` creates one in RUNG_DATA/secret-key."
    return [Error("RUNG_SECRET_KEY is empty.", hint=hint, id="core.E001")]


def data_folder_is_writable(**_kwargs: Any) -> list[CheckMessage]:
    """Database, broker and static files lie below it by default."""
    folder = Path(settings.DATA_DIR)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return []
    return [Error(f"The data folder {folder} is not writable.", hint="Set RUNG_DATA.", id="core.E002")]


def debug_stays_at_home(**_kwargs: Any) -> list[CheckMessage]:
    """Debug pages show settings and source."""
    foreign = sorted(set(settings.ALLOWED_HOSTS) - LOCAL_HOSTS)
    if not (settings.DEBUG and foreign):
        return []
    return [
        Error(f"RUNG_DEBUG is on while RUNG_HOSTS contains {', '.join(foreign)}.", hint="Turn it off.", id="core.E003")
    ]


def hosts_are_named(**_kwargs: Any) -> list[CheckMessage]:
    """A wildcard lets a client choose the host in links."""
    if "*" not in settings.ALLOWED_HOSTS:
        return []
    return [Caution("RUNG_HOSTS contains a wildcard.", hint="List the host names.", id="core.W004")]


ALL = (secret_key_is_set, data_folder_is_writable, debug_stays_at_home, hosts_are_named)


class CoreConfig(AppConfig):
    """Registers the kit and its system checks."""

    name = "portal.kit"
    label = "core"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bad configuration is found at start; migrations install triggers; workers prove that they work."""
        from portal.kit.api import error_responses
        from portal.kit.db import read_cache, search_indexes
        from portal.kit.messaging import heartbeats

        for check in ALL:
            register(check, "rung")
        post_migrate.connect(read_cache.install_triggers)
        post_migrate.connect(search_indexes.install)
        heartbeats.prove_consumption()
        got_request_exception.connect(error_responses.forget_user)
