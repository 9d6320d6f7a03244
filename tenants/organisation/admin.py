"""Departments and projects in the console."""

from collections.abc import Mapping
from typing import Any

from django import forms
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
    ServiceAdmin,
    ServiceForm,
    admin_actor,
    reason_field,
)
from tenants.access.rules import Permission
from tenants.access.selectors import Access
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.quotas.services.quotas import planned_rule, set_deserved_enforcement


class DepartmentForm(ServiceForm):
    """What of a department can be changed."""

    reason = reason_field(required=False)
    field_at = {
        "/name": "name",
        "/description": "description",
        "/reason": "reason",
        "/enforceDeserved": "enforce_deserved",
    }

    class Meta:
        model = Department
        fields = ["cluster", "name", "description", "enforce_deserved"]


class DepartmentCreateForm(DepartmentForm):
    reason = None  # type: ignore[assignment]  # how Django removes an inherited field


@admin.register(Department)
class DepartmentAdmin(PlannedAdmin, SimpleHistoryAdmin):
    """Departments. Save opens a plan where the enforcement of the deserved quota changes; the rest is set at once."""

    form = DepartmentForm
    add_form = DepartmentCreateForm
    fixed_fields = ("cluster", "name")
    list_display = ["name", "cluster", "enforce_deserved", "created_at"]
    list_select_related = ["cluster"]
    list_filter = ["cluster"]
    search_fields = ["name"]

    def planned(self, obj: Department, data: Mapping[str, Any] | None) -> PlannedWrite | None:
        row = Department.objects.select_related("cluster").filter(pk=obj.pk).first()
        if row is None or data is None or data["enforce_deserved"] == row.enforce_deserved:
            return None
        return "enforce_deserved", planned_rule(row, data["reason"], enforce_deserved=data["enforce_deserved"])

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, data, actor = form.instance, form.cleaned_data, admin_actor(request)
        if change:
            how = {"actor": actor, "reason": data["reason"]}
            set_deserved_enforcement(department=row, enforced=data["enforce_deserved"], **how)
            return SaveResult(self._describe(request, row, form))
        values = {"description": data["description"], "enforce_deserved": data["enforce_deserved"]}
        return SaveResult(
            organisation_services.create_department(cluster=data["cluster"], name=data["name"], actor=actor, **values)
        )

    def save_model(self, request: HttpRequest, obj: Department, form: Any, change: Any) -> None:
        """A description is saved beside the plan, which does not hold it."""
        if change:
            self._describe(request, obj, form)
        super().save_model(request, obj, form, change)

    def _describe(self, request: HttpRequest, row: Department, form: Any) -> Department:
        description, why = form.cleaned_data["description"], form.cleaned_data["reason"]
        actor = admin_actor(request)
        return organisation_services.update_department(department=row, actor=actor, description=description, reason=why)

    def remove(self, actor: Actor, obj: Department) -> None:
        organisation_services.delete_department(department=obj, actor=actor, reason=FROM_CONSOLE)


class PoolNamesField(forms.CharField):
    """Names of node pools, separated by commas, as a list."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, list):
            return value
        return [name.strip() for name in (super().to_python(value) or "").split(",") if name.strip()]

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def run_validators(self, value: Any) -> None:
        """Names are checked by the service."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(data) != (initial or []))


class ProjectForm(ServiceForm):
    """What of a project can be changed."""

    default_node_pools = PoolNamesField(
        required=False, help_text=_("Names in order of preference, separated by commas.")
    )
    reason = reason_field(required=False)
    field_at = {
        "/name": "name",
        "/namespace": "namespace",
        "/description": "description",
        "/reason": "reason",
        **{f"/defaultNodePools/{place}": "default_node_pools" for place in range(20)},
    }

    class Meta:
        model = Project
        fields = ["department", "name", "namespace", "description", "default_node_pools"]


class ProjectCreateForm(ProjectForm):
    reason = None  # type: ignore[assignment]  # how Django removes an inherited field


@admin.register(Project)
class ProjectAdmin(ServiceAdmin, SimpleHistoryAdmin):
    permission = Permission.MANAGE_PROJECT
    form = ProjectForm
    add_form = ProjectCreateForm
    fixed_fields = ("department", "name", "namespace")
    list_display = ["name", "department", "cluster", "namespace", "created_at"]
    list_select_related = ["department", "cluster"]
    list_filter = [
        ("cluster", admin.RelatedOnlyFieldListFilter),
        ("department", admin.RelatedOnlyFieldListFilter),
    ]
    search_fields = ["name", "namespace"]

    def reached(self, held: Access) -> Q:
        return Q(pk__in=held.projects(self.permission))

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, data, actor = form.instance, form.cleaned_data, admin_actor(request)
        values = {"description": data["description"], "default_node_pools": data["default_node_pools"]}
        if change:
            return SaveResult(
                organisation_services.update_project(project=row, actor=actor, reason=data["reason"], **values)
            )
        return SaveResult(
            organisation_services.create_project(
                department=data["department"], name=data["name"], namespace=data["namespace"], actor=actor, **values
            )
        )

    def remove(self, actor: Actor, obj: Project) -> None:
        organisation_services.delete_project(project=obj, actor=actor, reason=FROM_CONSOLE)
