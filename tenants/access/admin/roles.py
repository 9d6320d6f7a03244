"""Roles in the console: those that come with Rung to look at, custom ones made of permission sets."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from portal.kit.security.actors import Actor
from tenants.access.admin.service_admin import SaveResult, ServiceAdmin, ServiceForm, admin_actor
from tenants.access.models import AccessRole
from tenants.access.rules import PREDEFINED, SETS, Permission
from tenants.access.services import roles


class RoleForm(ServiceForm):
    chosen = forms.MultipleChoiceField(
        label=_("Permission sets"),
        choices=[(each.id, f"{each.name}: {each.description}") for each in SETS.values()],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "radiolist"}),  # labels as wide as they need
    )
    field_at = {"/name": "name", "/description": "description", "/permissionSets": "chosen"}

    class Meta:
        model = AccessRole
        fields = ["name", "description", "enabled"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "chosen" in self.fields:
            self.fields["chosen"].initial = self.instance.permission_sets


@admin.register(AccessRole)
class AccessRoleAdmin(ServiceAdmin):
    verb = Permission.MANAGE_ACCESS
    form = RoleForm
    list_display = ["name", "custom", "enabled", "allows"]
    list_filter = ["custom", "enabled"]
    search_fields = ["name"]

    @admin.display(description=_("permission sets"))
    def allows(self, obj: AccessRole) -> str:
        """What the role is made of."""
        sets = PREDEFINED.get(obj.key, tuple(obj.permission_sets))
        return ", ".join(SETS[each].name for each in sets if each in SETS)

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        data, actor = form.cleaned_data, admin_actor(request)
        asked = {name: data[name] for name in ("name", "description", "enabled")} | {"permission_sets": data["chosen"]}
        if change:
            return SaveResult(roles.update_role(role=form.instance, **asked, actor=actor))
        return SaveResult(roles.create_role(**asked, actor=actor))

    def remove(self, actor: Actor, obj: AccessRole) -> None:
        roles.delete_role(role=obj, actor=actor)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What cannot be changed is told in words."""
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fields(request, obj)
        return ["name", "description", "allows"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None or obj.custom else ("allows",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.custom)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.custom)
