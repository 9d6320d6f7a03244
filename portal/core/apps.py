"""App configuration of the shared kit."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Registers the kit, its system checks and the periods table."""

    name = "portal.core"
    label = "core"
    default_auto_field = "django.db.models.BigAutoField"
