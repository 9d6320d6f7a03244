"""Second factors and single sign-on in the console: admins reset and disconnect; the tables stay away."""

from django.apps import apps
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from tenants.admin.base import admin_actor
from tenants.models import User
from tenants.services import identities, second_factor

for label in ("account", "socialaccount", "mfa"):
    for model in apps.get_app_config(label).get_models():
        if admin.site.is_registered(model):
            admin.site.unregister(model)


class ResetsSignIn(admin.ModelAdmin):
    """What an admin does for people who lost their way in."""

    actions = ["reset_second_factor", "disconnect"]

    @admin.action(
        description=gettext_lazy("Reset the second factor (app and recovery codes stop working)"),
        permissions=["change"],
    )
    def reset_second_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Each reset is recorded."""
        done = sum(second_factor.reset(user=user, actor=admin_actor(request)) for user in queryset)
        said = ngettext("%(count)s second factor was reset.", "%(count)s second factors were reset.", done)
        self.message_user(request, said % {"count": done}, messages.SUCCESS)

    @admin.action(description=gettext_lazy("Disconnect from the single sign-on"), permissions=["change"])
    def disconnect(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """The next sign-in from there is not them any more, whatever address it names."""
        for user in queryset:
            identities.part(user=user, actor=admin_actor(request))
        self.message_user(request, _("They are disconnected."), messages.SUCCESS)
