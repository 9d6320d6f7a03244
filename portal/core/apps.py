"""App configuration of the shared kit."""

from django.apps import AppConfig
from django.core.checks import register

from portal.core import checks


class CoreConfig(AppConfig):
    """Registers the kit and its system checks."""

    name = "portal.core"
    label = "core"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Bad configuration is found at start."""
        for check in checks.ALL:
            register(check, "rung")
