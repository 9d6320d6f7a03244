"""App configuration of the shared kit."""

from django.apps import AppConfig
from django.core.checks import register
from django.db.models.signals import post_migrate

from portal.core import checks


class CoreConfig(AppConfig):
    """Registers the kit and its system checks."""

    name = "portal.core"
    label = "core"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bad configuration is found at start; migrations make triggers again; workers prove that they work."""
        from portal.core import consumption, mark_triggers

        for check in checks.ALL:
            register(check, "rung")
        post_migrate.connect(mark_triggers.install, dispatch_uid="core.marks")
        consumption.connect()
