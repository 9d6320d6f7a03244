"""App configuration of the cluster mechanism."""

from django.apps import AppConfig
from django.core.checks import register

from clusters import checks


class ClustersConfig(AppConfig):
    """Registers clusters, their gateway and reconcile."""

    name = "clusters"
    default_auto_field = "django.db.models.BigAutoField"
    # Changes of these decide about submits.
    marked = {
        "rules": {
            "Cluster": ("name", "flavour", "backend", "served_kinds", "silent_kinds", "configured"),
            "NodePool": (),
        }
    }

    def ready(self) -> None:
        """Bad configuration is found at start."""
        for check in checks.ALWAYS:
            register(check, "rung")
        for check in checks.IN_PRODUCTION:
            register(check, "rung", deploy=True)
