"""App configuration of clusters, with the system checks of what real clusters need."""

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Caution

from portal.kit.security.encryption import NoEncryptionKey, SecretBox


def credentials_can_be_sealed(**_kwargs: Any) -> list[CheckMessage]:
    """An invalid key would be found only when a cluster is connected."""
    try:
        SecretBox(settings.RUNG_CREDENTIAL_KEYS)
    except NoEncryptionKey:
        return []
    except ValueError:
        hint = "Create a key with `manage.py rotate_credentials --new-key`."
        return [Error("RUNG_CREDENTIAL_KEYS contains an invalid key.", hint=hint, id="clusters.E002")]
    return []


def a_key_is_set(**_kwargs: Any) -> list[CheckMessage]:
    """In production; the demo makes its own."""
    if settings.RUNG_CREDENTIAL_KEYS:
        return []
    hint = (
        "Create a key with `manage.py rotate_credentials --new-key`. Without one, no Kubernetes cluster "
        "can be connected."
    )
    return [Error("RUNG_CREDENTIAL_KEYS is empty.", hint=hint, id="clusters.E001")]


def certificates_are_checked(**_kwargs: Any) -> list[CheckMessage]:
    """An attacker in between could read every credential."""
    if not settings.RUNG_ALLOW_INSECURE_CLUSTERS:
        return []
    return [
        Caution(
            "RUNG_ALLOW_INSECURE_CLUSTERS is on.",
            hint="Configure the certificate authority instead.",
            id="clusters.W003",
        )
    ]


ALWAYS = (credentials_can_be_sealed,)
IN_PRODUCTION = (a_key_is_set, certificates_are_checked)


class ClustersConfig(AppConfig):
    """Registers clusters, their gateway and reconcile."""

    name = "clusters"
    default_auto_field = "django.db.models.BigAutoField"
    # Settings that every submit reads; see `portal.kit.db.read_cache`.
    cached = {
        "Cluster": ("name", "flavour", "backend", "served_kinds", "silent_kinds", "configured"),
        "NodePool": (),
    }

    def ready(self) -> None:
        """Bad configuration is found at start."""
        import_module("clusters.web.admin")  # Django looks for `admin` at the root of an app only
        for check in ALWAYS:
            register(check, "rung")
        for check in IN_PRODUCTION:
            register(check, "rung", deploy=True)
