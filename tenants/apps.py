"""App configuration of the tenants' side."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Registers departments, projects and quotas, and their desired-state source."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell the cluster mechanism what the tenants' side wants; models exist only from here on."""
        from clusters import sources
        from tenants.sources import desired_state

        sources.register(desired_state)
