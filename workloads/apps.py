"""App configuration of the workloads."""

from django.apps import AppConfig


class WorkloadsConfig(AppConfig):
    """Registers the dictionary, workloads, their desired-state source and observation handler."""

    name = "workloads"
    default_auto_field = "django.db.models.BigAutoField"
