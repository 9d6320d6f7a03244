"""Time limits of departments and projects in the console, with a reason for every change and their history."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin

from portal.core.actors import Actor
from tenants.admin.base import FROM_CONSOLE, Outcome, ServiceAdmin, ServiceForm, admin_actor, reason_field
from tenants.models import TimeLimit
from tenants.permissions import Standing, Verb
from tenants.services.time_limits import lift_time_limit, set_time_limit


class TimeLimitForm(ServiceForm):
    """How long a run may last, and why."""

    reason = reason_field(required=True)
    field_at = {
        "/category": "category",
        "/minutes": "minutes",
        "/noticeMinutes": "notice_minutes",
        "/reason": "reason",
    }

    class Meta:
        model = TimeLimit
        fields = ["department", "project", "category", "minutes", "notice_minutes"]


@admin.register(TimeLimit)
class TimeLimitAdmin(ServiceAdmin, SimpleHistoryAdmin):
    """Time limits."""

    verb = Verb.MANAGE_PROJECT_QUOTA
    form = TimeLimitForm
    fixed_fields = ("department", "project", "category")
    list_display = ["whose", "category", "minutes", "notice_minutes"]
    list_select_related = ["department", "project"]
    list_filter = ["category"]
    search_fields = ["project__name", "department__name"]

    def reached(self, held: Standing) -> Q:
        return Q(project__in=held.projects(self.verb)) | Q(
            department__in=held.departments(Verb.MANAGE_DEPARTMENT_QUOTA)
        )

    @admin.display(description=_("department or project"))
    def whose(self, obj: TimeLimit) -> str:
        """Its owner."""
        return obj.whose

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> Outcome:
        """Set it."""
        row, data = form.instance, form.cleaned_data
        limit = set_time_limit(
            owner=row.owner,
            category=row.category,
            minutes=data["minutes"],
            notice_minutes=data["notice_minutes"],
            actor=admin_actor(request),
            reason=data["reason"],
        )
        return Outcome(limit)

    def remove(self, actor: Actor, obj: TimeLimit) -> None:
        lift_time_limit(limit=obj, actor=actor, reason=FROM_CONSOLE)
