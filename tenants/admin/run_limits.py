"""Time limits of departments and projects in the console, with a reason for every change and their history."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin

from portal.core.actors import Actor
from tenants.admin.base import FROM_CONSOLE, Outcome, ServiceAdmin, ServiceForm, admin_actor, reason_field
from tenants.models import RunLimit
from tenants.permissions import Standing, Verb
from tenants.services.run_limits import lift_run_limit, set_run_limit


class RunLimitForm(ServiceForm):
    """How long a run may last, and why."""

    reason = reason_field(required=True)
    field_at = {
        "/category": "category",
        "/minutes": "minutes",
        "/noticeMinutes": "notice_minutes",
        "/reason": "reason",
    }

    class Meta:
        model = RunLimit
        fields = ["department", "project", "category", "minutes", "notice_minutes"]


@admin.register(RunLimit)
class RunLimitAdmin(ServiceAdmin, SimpleHistoryAdmin):
    """Time limits."""

    verb = Verb.MANAGE_PROJECT_QUOTA
    form = RunLimitForm
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
    def whose(self, obj: RunLimit) -> str:
        """Its owner."""
        return f"{'project' if obj.project_id else 'department'} {obj.owner}"

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> Outcome:
        """Set it."""
        row, data = form.instance, form.cleaned_data
        limit = set_run_limit(
            owner=row.owner,
            category=row.category,
            minutes=data["minutes"],
            notice_minutes=data["notice_minutes"],
            actor=admin_actor(request),
            reason=data["reason"],
        )
        return Outcome(limit)

    def remove(self, actor: Actor, obj: RunLimit) -> None:
        lift_run_limit(limit=obj, actor=actor, reason=FROM_CONSOLE)
