"""App configuration of the tenants' side."""

from django.apps import AppConfig


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
        """Tell the cluster mechanism what the tenants' side wants; models exist only from here on."""
        from clusters import samples, sources
        from tenants.sampling import sample
        from tenants.sources import desired_state

        sources.register(desired_state, counted=True)
        samples.register(sample)
