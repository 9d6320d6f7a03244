"""App configuration of the cluster mechanism."""

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    """Registers clusters, their gateway and reconcile."""

    name = "clusters"
    default_auto_field = "django.db.models.BigAutoField"
