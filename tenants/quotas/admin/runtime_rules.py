"""Admin console of time limits, idle limits and minimum runtimes, with reasons and history. Save opens a plan."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin

from portal.kit.api.routes import PlannedWrite
from portal.kit.security.actors import Actor
from tenants.access.admin.service_admin import (
    FROM_CONSOLE,
    PlannedAdmin,
    SaveResult,
    ServiceForm,
    admin_actor,
    reason_field,
)
from tenants.access.rules import Permission
from tenants.access.selectors import Access
from tenants.quotas.models import IdleLimit, MinRuntime, RuntimeLimit, TimeLimit
from tenants.quotas.services.quotas import planned_rule
from tenants.quotas.services.runtime_rules import remove_limit, remove_min_runtime, set_limit, set_min_runtime


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
class LimitAdmin(PlannedAdmin, SimpleHistoryAdmin):
    permission = Permission.MANAGE_PROJECT_QUOTA
    form = LimitForm
    fixed_fields = ("department", "project", "category")
    list_display = ["whose", "category", "minutes", "notice_minutes"]
    list_select_related = ["department", "project"]
    list_filter = ["category"]
    search_fields = ["project__name", "department__name"]

    def reached(self, held: Access) -> Q:
        return Q(project__in=held.projects(self.permission)) | Q(
            department__in=held.departments(Permission.MANAGE_DEPARTMENT_QUOTA)
        )

    @admin.display(description=_("department or project"))
    def whose(self, obj: RuntimeLimit) -> str:
        return obj.whose

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
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
        return SaveResult(limit)

    def planned(self, obj: RuntimeLimit, data: Mapping[str, Any] | None) -> PlannedWrite:
        names = ("minutes", "notice_minutes")
        values = {name: data[name] for name in names} if data else {"minutes": None}
        reason = data["reason"] if data else FROM_CONSOLE
        kind = str(obj._meta.verbose_name).replace(" ", "_")
        return kind, planned_rule(obj.owner, reason, category=obj.category, **values)

    def remove(self, actor: Actor, obj: RuntimeLimit) -> None:
        remove_limit(limit=obj, actor=actor, reason=FROM_CONSOLE)


class MinRuntimeForm(ServiceForm):
    """How long runs are left alone, and why."""

    reason = reason_field(required=True)
    field_at = {"/minutes": "minutes", "/reason": "reason"}

    class Meta:
        model = MinRuntime
        fields = ["department", "project", "minutes"]


@admin.register(MinRuntime)
class MinRuntimeAdmin(PlannedAdmin, SimpleHistoryAdmin):
    permission = Permission.MANAGE_PROJECT_QUOTA
    form = MinRuntimeForm
    fixed_fields = ("department", "project")
    list_display = ["whose", "minutes"]
    list_select_related = ["department", "project"]
    search_fields = ["project__name", "department__name"]

    def reached(self, held: Access) -> Q:
        return Q(project__in=held.projects(self.permission)) | Q(
            department__in=held.departments(Permission.MANAGE_DEPARTMENT_QUOTA)
        )

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, data = form.instance, form.cleaned_data
        actor = admin_actor(request)
        return SaveResult(set_min_runtime(owner=row.owner, minutes=data["minutes"], actor=actor, reason=data["reason"]))

    def planned(self, obj: MinRuntime, data: Mapping[str, Any] | None) -> PlannedWrite:
        reason = data["reason"] if data else FROM_CONSOLE
        return "min_runtime", planned_rule(obj.owner, reason, minutes=data["minutes"] if data else None)

    def remove(self, actor: Actor, obj: MinRuntime) -> None:
        remove_min_runtime(rule=obj, actor=actor, reason=FROM_CONSOLE)
