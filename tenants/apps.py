"""App configuration of the tenants' side."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Registers departments, projects and quotas, and their desired-state source."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
