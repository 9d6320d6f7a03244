"""The console's name, and what does not belong into it."""

from django.apps import apps
from django.contrib import admin
from django.utils.translation import gettext_lazy as _

admin.site.site_header = admin.site.site_title = _("Rung admin console")
admin.site.index_title = _("Departments, projects and quotas")

# The beat schedule is settings; a task typed in here would be overwritten, or be a way around them.
for model in apps.get_app_config("django_celery_beat").get_models():
    if admin.site.is_registered(model):
        admin.site.unregister(model)
