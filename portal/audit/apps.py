"""App configuration of the audit trail."""

from importlib import import_module

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers the audit trail and its receivers of sign-in signals."""

    name = "portal.audit"
    label = "audit"
    default_auto_field = "django.db.models.BigAutoField"
    # Columns that lists are searched by; see `portal.kit.db.search_indexes`.
    searched = {"AuditRecord": ("actor_name", "action", "entity_name")}

    def ready(self) -> None:
        """Connect the receivers; they need the models, so not before now."""
        import_module("portal.audit.request_records")
