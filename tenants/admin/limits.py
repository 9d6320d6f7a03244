"""Limits of departments and projects in the console, with a reason for every change and their history."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin

from portal.core.actors import Actor
from tenants.admin.base import FROM_CONSOLE, Outcome, ServiceAdmin, ServiceForm, admin_actor, reason_field
from tenants.models import IdleLimit, Limit, TimeLimit
from tenants.permissions import Standing, Verb
from tenants.services.limits import lift_limit, set_limit


class LimitForm(ServiceForm):
    """After how long a run is stopped, and why."""

    reason = reason_field(required=True)
    field_at = {
        "/category": "category",
        "/minutes": "minutes",
        "/noticeMinutes": "notice_minutes",
        "/reason": "reason",
    }

    class Meta:
        fields = ["department", "project", "category", "minutes", "notice_minutes"]


@admin.register(TimeLimit, IdleLimit)
class LimitAdmin(ServiceAdmin, SimpleHistoryAdmin):
    """Time limits and idle limits."""

    verb = Verb.MANAGE_PROJECT_QUOTA
    form = LimitForm
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
    def whose(self, obj: Limit) -> str:
        """Its owner."""
        return obj.whose

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> Outcome:
        """Set it."""
        row, data = form.instance, form.cleaned_data
        limit = set_limit(
            type(row),
            owner=row.owner,
            category=row.category,
            minutes=data["minutes"],
            notice_minutes=data["notice_minutes"],
            actor=admin_actor(request),
            reason=data["reason"],
        )
        return Outcome(limit)

    def remove(self, actor: Actor, obj: Limit) -> None:
        lift_limit(limit=obj, actor=actor, reason=FROM_CONSOLE)
