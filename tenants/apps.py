"""App configuration of the tenants' side."""

from django.apps import AppConfig
from django.core.checks import register

from tenants import checks


class TenantsConfig(AppConfig):
    """Registers departments, projects and quotas, and their desired-state source."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
    # Changes of these decide about submits, and about who may do what.
    marked = {
        "access": {
            "User": ("is_active", "is_superuser", "username"),
            "ServiceAccount": ("name", "client_id", "secret_hash", "enabled", "expires_at"),
            "AccessKey": ("owner", "client_id", "secret_hash", "read_only", "department", "project", "expires_at"),
            "Membership": (),
            "AccessRole": ("key", "enabled", "permission_sets"),
            "User_groups": (),
        },
        "rules": {
            "Department": ("name", "cluster"),
            "Project": ("name", "namespace", "department", "cluster", "default_node_pools"),
            "DepartmentQuota": (),
            "ProjectQuota": (),
            "PriorityCap": (),
        },
    }

    def ready(self) -> None:
        """Bad configuration is found at start. Tell the cluster mechanism what the tenants' side wants."""
        from clusters import samples, sources
        from tenants.sampling import sample
        from tenants.sources import desired_state

        for check in checks.ALWAYS:
            register(check, "rung")
        for check in checks.IN_PRODUCTION:
            register(check, "rung", deploy=True)
        sources.register(desired_state, counted=True)
        samples.register(sample)
