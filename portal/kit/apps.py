"""App configuration of the shared kit."""

from django.apps import AppConfig
from django.core.checks import register
from django.core.signals import got_request_exception
from django.db.models.signals import post_migrate

from portal.kit.security import checks


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

        for check in checks.ALL:
            register(check, "rung")
        post_migrate.connect(read_cache.install_triggers)
        post_migrate.connect(search_indexes.install)
        heartbeats.prove_consumption()
        got_request_exception.connect(error_responses.forget_user)
