"""Departments and projects in the console."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from simple_history.admin import SimpleHistoryAdmin

from portal.kit.security.actors import Actor
from tenants.access.admin.service_admin import (
    FROM_CONSOLE,
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


class DepartmentForm(ServiceForm):
    """What of a department can be changed."""

    reason = reason_field(required=False)
    field_at = {"/name": "name", "/description": "description", "/reason": "reason", "": "enforce_deserved"}

    class Meta:
        model = Department
        fields = ["cluster", "name", "description", "enforce_deserved"]


class DepartmentCreateForm(DepartmentForm):
    reason = None  # type: ignore[assignment]  # how Django removes an inherited field


@admin.register(Department)
class DepartmentAdmin(ServiceAdmin, SimpleHistoryAdmin):
    form = DepartmentForm
    add_form = DepartmentCreateForm
    fixed_fields = ("cluster", "name")
    list_display = ["name", "cluster", "enforce_deserved", "created_at"]
    list_select_related = ["cluster"]
    list_filter = ["cluster"]
    search_fields = ["name"]

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        row, data, actor = form.instance, form.cleaned_data, admin_actor(request)
        values = {"description": data["description"], "enforce_deserved": data["enforce_deserved"]}
        if change:
            return SaveResult(
                organisation_services.update_department(department=row, actor=actor, reason=data["reason"], **values)
            )
        return SaveResult(
            organisation_services.create_department(cluster=data["cluster"], name=data["name"], actor=actor, **values)
        )

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
    verb = Permission.MANAGE_PROJECT
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
        return Q(pk__in=held.projects(self.verb))

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
