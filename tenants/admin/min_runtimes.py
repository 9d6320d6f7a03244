"""Min guaranteed runtimes of departments and projects in the console, with a reason for every change and history."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from simple_history.admin import SimpleHistoryAdmin

from portal.core.actors import Actor
from tenants.admin.base import FROM_CONSOLE, Outcome, ServiceAdmin, ServiceForm, admin_actor, reason_field
from tenants.models import MinRuntime
from tenants.permissions import Standing, Verb
from tenants.services.min_runtimes import lift_min_runtime, set_min_runtime


class MinRuntimeForm(ServiceForm):
    """How long runs are left alone, and why."""

    reason = reason_field(required=True)
    field_at = {"/minutes": "minutes", "/reason": "reason"}

    class Meta:
        model = MinRuntime
        fields = ["department", "project", "minutes"]


@admin.register(MinRuntime)
class MinRuntimeAdmin(ServiceAdmin, SimpleHistoryAdmin):
    """Min guaranteed runtimes."""

    verb = Verb.MANAGE_PROJECT_QUOTA
    form = MinRuntimeForm
    fixed_fields = ("department", "project")
    list_display = ["whose", "minutes"]
    list_select_related = ["department", "project"]
    search_fields = ["project__name", "department__name"]

    def reached(self, held: Standing) -> Q:
        return Q(project__in=held.projects(self.verb)) | Q(
            department__in=held.departments(Verb.MANAGE_DEPARTMENT_QUOTA)
        )

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> Outcome:
        """Set it."""
        row, data = form.instance, form.cleaned_data
        actor = admin_actor(request)
        return Outcome(set_min_runtime(owner=row.owner, minutes=data["minutes"], actor=actor, reason=data["reason"]))

    def remove(self, actor: Actor, obj: MinRuntime) -> None:
        lift_min_runtime(rule=obj, actor=actor, reason=FROM_CONSOLE)
