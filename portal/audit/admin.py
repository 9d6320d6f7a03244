"""The audit trail in the admin console: to read, never to write."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from portal.audit.models import AuditRecord


@admin.register(AuditRecord)
class AuditRecordAdmin(admin.ModelAdmin):
    """Records, newest first. Superusers read all of them here; everybody else has the audit page."""

    list_display = ["at", "actor_name", "action", "entity_name", "result", "channel", "source_ip"]
    list_filter = ["result", "channel", "entity_type"]
    search_fields = ["=actor_name", "=entity_name", "=entity_id", "action"]
    show_full_result_count = False
    list_per_page = 50

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Records are never added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Records are never changed."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Records are never deleted."""
        return False
