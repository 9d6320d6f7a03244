"""App configuration of the tenants' side."""

from importlib import import_module

from django.apps import AppConfig
from django.core.checks import register
from django.db.models.signals import post_migrate

from tenants.access import checks


class TenantsConfig(AppConfig):
    """Registers departments, projects and quotas, and their desired-state source."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
    # Settings that every submit reads; see `portal.kit.db.read_cache`.
    cached = {
        "User": ("is_active", "is_superuser", "username"),
        "ServiceAccount": ("name", "client_id", "secret_hash", "enabled", "expires_at"),
        "AccessKey": ("owner", "client_id", "secret_hash", "read_only", "department", "project", "expires_at"),
        "Membership": (),
        "AccessRole": ("key", "enabled", "permission_sets"),
        "User_groups": (),
        "Department": ("name", "cluster"),
        "Project": ("name", "namespace", "department", "cluster", "default_node_pools"),
        "DepartmentQuota": (),
        "ProjectQuota": (),
        "PriorityCap": (),
    }

    def ready(self) -> None:
        """Bad configuration is found at start. Tell the cluster mechanism what the tenants' side wants."""
        from clusters.sync import selectors as sync_selectors
        from clusters.watch import selectors as watch_selectors
        from tenants.access.services.roles import install_roles
        from tenants.quotas.selectors.desired_state import desired_state
        from tenants.usage.selectors import sample

        import_module("tenants.access.middleware")  # it starts the clock of a session, whatever opens one
        for feature in ("access", "organisation", "quotas"):  # Django looks for `admin` at the root of an app only
            import_module(f"tenants.{feature}.admin")
        for check in checks.ALWAYS:
            register(check, "rung")
        for check in checks.IN_PRODUCTION:
            register(check, "rung", deploy=True)
        post_migrate.connect(install_roles, sender=self)
        sync_selectors.register_source(desired_state, counted=True)
        watch_selectors.register_sampler(sample)
