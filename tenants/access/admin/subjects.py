"""Admin console of users, service accounts, roles and access rules. A secret is shown once."""

from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.admin.service_admin import (
    ErrorsAsMessages,
    SaveResult,
    ServiceAdmin,
    ServiceForm,
    admin_actor,
    request_access,
)
from tenants.access.models import AccessRole, Membership, Role, ServiceAccount, User
from tenants.access.rules import PREDEFINED, SETS, Permission
from tenants.access.services import access_rules, roles, second_factor, subjects
from tenants.organisation.models import Department, Project


class RoleForm(ServiceForm):
    chosen = forms.MultipleChoiceField(
        label=gettext_lazy("Permission sets"),
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
    permission = Permission.MANAGE_ACCESS
    form = RoleForm
    list_display = ["name", "custom", "enabled", "allows"]
    list_filter = ["custom", "enabled"]
    search_fields = ["name"]

    @admin.display(description=gettext_lazy("permission sets"))
    def allows(self, obj: AccessRole) -> str:
        """What the role is made of."""
        sets = PREDEFINED.get(obj.key, tuple(obj.permission_sets))
        return ", ".join(SETS[each].name for each in sets if each in SETS)

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        data, actor = form.cleaned_data, admin_actor(request)
        requested = {name: data[name] for name in ("name", "description", "enabled")} | {
            "permission_sets": data["chosen"]
        }
        if change:
            return SaveResult(roles.update_role(role=form.instance, **requested, actor=actor))
        return SaveResult(roles.create_role(**requested, actor=actor))

    def remove(self, actor: Actor, obj: AccessRole) -> None:
        roles.delete_role(role=obj, actor=actor)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What cannot be changed is shown as text."""
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fields(request, obj)
        return ["name", "description", "allows"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None or obj.custom else ("allows",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.custom)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.custom)


admin.site.unregister(Group)


class SignInResetActions(admin.ModelAdmin):
    """What an admin does for people who lost their way in."""

    actions = ["reset_second_factor", "disconnect"]

    @admin.action(
        description=gettext_lazy("Reset the second factor (app and recovery codes stop working)"),
        permissions=["change"],
    )
    def reset_second_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        done = sum(second_factor.reset(user=user, actor=admin_actor(request)) for user in queryset)
        message = ngettext("%(count)s second factor was reset.", "%(count)s second factors were reset.", done)
        self.message_user(request, message % {"count": done}, messages.SUCCESS)

    @admin.action(description=gettext_lazy("Disconnect from single sign-on"), permissions=["change"])
    def disconnect(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """The next sign-in from there is not them any more, whatever address it names."""
        for user in queryset:
            subjects.unlink_identity(user=user, actor=admin_actor(request))
        self.message_user(request, _("Disconnected."), messages.SUCCESS)


@admin.register(User)
class AccountAdmin(SignInResetActions, ErrorsAsMessages, UserAdmin):
    """People. What they may do is said by memberships, not by Django's groups and permissions."""

    list_display = ["username", "email", "is_active", "is_staff", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_staff", "is_superuser"]
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (None, {"fields": ("first_name", "last_name", "email")}),
        (None, {"fields": ("is_active", "is_staff", "is_superuser")}),
    )

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: Any) -> None:
        changed = {name: form.cleaned_data.get(name) for name in form.changed_data}
        subjects.save_user(user=obj, actor=admin_actor(request), changed=changed)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        subjects.delete_user(user=obj, actor=admin_actor(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in queryset:
            subjects.delete_user(user=user, actor=admin_actor(request))

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002 - Django's name
        """Django's page; a password that was set is recorded."""
        response: HttpResponse = super().user_change_password(request, id, form_url)
        if request.method == "POST" and response.status_code == 302:
            subjects.record_password_reset(user=User.objects.get(pk=unquote(id)), actor=admin_actor(request))
        return response

    def _over(self, request: HttpRequest, obj: Any) -> bool:
        """No one sets the password of a user with more permissions."""
        return obj is None or access_rules.outranks(admin_actor(request), obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request_access(request).can(Permission.MANAGE_ACCESS)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request_access(request).can(Permission.MANAGE_ACCESS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request_access(request).can(Permission.MANAGE_ACCESS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request_access(request).can(Permission.MANAGE_ACCESS) and self._over(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request_access(request).can(Permission.MANAGE_ACCESS) and self._over(request, obj)


class MembershipForm(ServiceForm):
    """Another role in the same scope."""

    field_at = {"/role": "role"}

    class Meta:
        model = Membership
        fields = ["role"]


class MembershipCreateForm(ServiceForm):
    group_name = forms.CharField(
        label=gettext_lazy("Group"),
        required=False,
        max_length=access_rules.LONGEST_GROUP,
        help_text=gettext_lazy("Group name. It may be a group of the identity provider that no user has yet."),
    )
    field_at = {"/role": "role", "/group": "group_name"}

    class Meta:
        model = Membership
        fields = ["user", "service_account", "role", "project", "department", "cluster"]
        help_texts = {
            "user": gettext_lazy("Choose a user, a service account or a group."),
            "project": gettext_lazy(
                "Choose at most one scope. Without a scope, the role applies to the whole installation."
            ),
            "department": gettext_lazy("Includes its projects."),
        }

    def subject(self) -> access_rules.Subject:
        """The one that was named. ValidationFailed for none and for several."""
        data = self.cleaned_data
        named = [each for each in (data["user"], data["service_account"], data["group_name"]) if each]
        if len(named) != 1:
            raise ValidationFailed.at("", "one_subject", _("Choose a user, a service account or a group."))
        return access_rules.get_or_create_group(named[0]) if isinstance(named[0], str) else named[0]


@admin.register(Membership)
class MembershipAdmin(ServiceAdmin):
    permission = Permission.MANAGE_ACCESS
    form = MembershipForm
    add_form = MembershipCreateForm
    fixed_fields = ("subject", "scope", "created_by", "created_at")
    add_fields = ("user", "service_account", "group_name", "role", "project", "department", "cluster")
    list_display = ["subject", "role", "scope", "created_at"]
    list_select_related = ["user", "service_account", "group", "role", "project", "department", "cluster"]
    list_filter = ["role"]
    search_fields = [
        "user__username",
        "service_account__name",
        "group__name",
        "project__name",
        "department__name",
        "cluster__name",
    ]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fields if obj is None else super().get_fields(request, obj)

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        """Give a role, or another one."""
        row, actor = form.instance, admin_actor(request)
        if change:
            role = form.cleaned_data["role"]
            return SaveResult(access_rules.change_role(membership=row, role=role, actor=actor))
        return SaveResult(
            access_rules.grant(
                subject=form.subject(),
                role=row.role,
                project=row.project,
                department=row.department,
                cluster=row.cluster,
                actor=actor,
            )
        )

    def remove(self, actor: Actor, obj: Membership) -> None:
        access_rules.revoke(membership=obj, actor=actor)


class ServiceAccountForm(ServiceForm):
    """Let it in or shut it out."""

    class Meta:
        model = ServiceAccount
        fields = ["enabled"]


class ServiceAccountCreateForm(ServiceForm):
    """A service account to be, with its first role."""

    role = forms.ModelChoiceField(AccessRole.objects.all(), to_field_name="key", initial=Role.MEMBER)
    project = forms.ModelChoiceField(Project.objects.all(), required=False)
    department = forms.ModelChoiceField(
        Department.objects.all(), required=False, help_text="Without project and department: the whole installation."
    )
    field_at = {"/name": "name", "/role": "role"}

    class Meta:
        model = ServiceAccount
        fields = ["name"]


@admin.register(ServiceAccount)
class ServiceAccountAdmin(ServiceAdmin):
    permission = Permission.MANAGE_ACCESS
    form = ServiceAccountForm
    add_form = ServiceAccountCreateForm
    fixed_fields = ("name", "client_id", "created_by", "created_at", "last_login")
    list_display = ["name", "enabled", "created_by", "created_at", "last_login"]
    list_filter = ["enabled"]
    search_fields = ["name"]
    actions = ["rotate"]

    def perform(self, request: HttpRequest, form: Any, *, change: bool) -> SaveResult:
        """Create it, keeping the secret for the page that follows; or let it in or shut it out."""
        data, actor = form.cleaned_data, admin_actor(request)
        if change:
            return SaveResult(
                subjects.enable_service_account(account=form.instance, enabled=data["enabled"], actor=actor)
            )
        account, secret = subjects.create_service_account(
            name=data["name"],
            role=data["role"].key,
            project=data["project"],
            department=data["department"],
            actor=actor,
        )
        vars(request)["_secret"] = secret
        return SaveResult(account)

    def response_add(self, request: HttpRequest, obj: ServiceAccount, post_url_continue: str | None = None) -> Any:
        return self._show_secret(request, ServiceAccount.objects.get(pk=obj.pk), vars(request)["_secret"])

    @admin.action(description="Create a new secret (the old secret and its tokens stop working)")
    def rotate(self, request: HttpRequest, queryset: QuerySet[ServiceAccount]) -> HttpResponse | None:
        """One at a time, since the page shows one secret."""
        if len(queryset) != 1:
            self.message_user(request, _("Choose one service account."), messages.ERROR)
            return None
        account = queryset[0]
        return self._show_secret(
            request, account, subjects.rotate_service_account(account=account, actor=admin_actor(request))
        )

    def remove(self, actor: Actor, obj: ServiceAccount) -> None:
        subjects.delete_service_account(account=obj, actor=actor)

    def _show_secret(self, request: HttpRequest, account: ServiceAccount, secret: str) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "title": account.name, "opts": self.opts}
        page = render(
            request, "admin/tenants/serviceaccount/secret.html", {**context, "account": account, "secret": secret}
        )
        page["Cache-Control"] = "no-store"
        return page


for label in ("account", "socialaccount", "mfa"):
    for model in apps.get_app_config(label).get_models():
        if admin.site.is_registered(model):
            admin.site.unregister(model)
