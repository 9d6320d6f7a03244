"""App configuration of the tenants' side, with system checks of signing in that run at start."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Caution
from django.db.models.signals import post_migrate

from portal.sso.provider import configured_provider, is_safe

LONGEST_ISSUER: Final = 200


def provider_is_complete(**_kwargs: Any) -> list[CheckMessage]:
    """Its address is safe and short enough to be stored, and Rung has a name and a secret there."""
    provider = configured_provider()
    if provider is None:
        return []
    found: list[CheckMessage] = []
    if not is_safe(provider.issuer) or len(provider.issuer) > LONGEST_ISSUER:
        hint = (
            "Use an https address of at most 200 characters that matches the issuer in the provider's "
            "tokens. http is allowed on loopback only."
        )
        found.append(Error("RUNG_OIDC_ISSUER is not a valid issuer address.", hint=hint, id="tenants.E001"))
    if not (provider.client_id and provider.client_secret):
        hint = "The provider issues both when you register Rung."
        found.append(Error("RUNG_OIDC_CLIENT_ID or RUNG_OIDC_CLIENT_SECRET is empty.", hint=hint, id="tenants.E002"))
    if "openid" not in provider.scopes:
        found.append(Error("RUNG_OIDC_SCOPES lacks openid.", hint="The scope openid is required.", id="tenants.E003"))
    if provider.ca_file and not Path(provider.ca_file).is_file():
        found.append(Error("RUNG_OIDC_CA_FILE does not exist.", hint="Certificates in PEM.", id="tenants.E004"))
    return found


def second_factor_groups_are_known(**_kwargs: Any) -> list[CheckMessage]:
    """An unknown value would require a second factor of no user."""
    if settings.RUNG_MFA_REQUIRED in {"", "admins", "everyone"}:
        return []
    return [Error("RUNG_MFA_REQUIRED has an invalid value.", hint="Use admins, everyone or empty.", id="tenants.E005")]


def groups_are_mapped_in_pairs(**_kwargs: Any) -> list[CheckMessage]:
    """A pair without one half would match no group."""
    if all(theirs and ours for theirs, ours in settings.RUNG_OIDC_GROUPS.items()):
        return []
    hint = "Use pairs such as provider-group=rung-group, separated by commas."
    return [Error("RUNG_OIDC_GROUPS contains an invalid pair.", hint=hint, id="tenants.E006")]


def provider_uses_https(**_kwargs: Any) -> list[CheckMessage]:
    """On loopback http is for trying things out."""
    if not settings.RUNG_OIDC_ISSUER.startswith("http://"):
        return []
    return [Caution("RUNG_OIDC_ISSUER uses http.", hint="Use https.", id="tenants.W007")]


ALWAYS = (provider_is_complete, groups_are_mapped_in_pairs, second_factor_groups_are_known)
IN_PRODUCTION = (provider_uses_https,)
"""What `check --deploy` adds."""


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
        for check in ALWAYS:
            register(check, "rung")
        for check in IN_PRODUCTION:
            register(check, "rung", deploy=True)
        post_migrate.connect(install_roles, sender=self)
        sync_selectors.register_source(desired_state, counted=True)
        watch_selectors.register_sampler(sample)
