"""App configuration of the audit trail."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers the audit trail."""

    name = "portal.audit"
    label = "audit"
    default_auto_field = "django.db.models.BigAutoField"
