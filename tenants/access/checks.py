"""System checks of signing in: a mistake is found at start, not by the first person who wants to come in."""

from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution

from portal.sso.provider import configured_provider, is_safe

LONGEST_ISSUER: Final = 200


def provider_can_be_asked(**_kwargs: Any) -> list[CheckMessage]:
    """Its address is safe and short enough to be stored, and Rung has a name and a secret there."""
    provider = configured_provider()
    if provider is None:
        return []
    found: list[CheckMessage] = []
    if not is_safe(provider.issuer) or len(provider.issuer) > LONGEST_ISSUER:
        hint = "An https address of at most 200 characters, as the provider's tokens name it; http only on loopback."
        found.append(Error("RUNG_OIDC_ISSUER is no address to sign in at.", hint=hint, id="tenants.E001"))
    if not (provider.client_id and provider.client_secret):
        hint = "The provider gives both out where Rung is registered."
        found.append(Error("RUNG_OIDC_CLIENT_ID or RUNG_OIDC_CLIENT_SECRET is empty.", hint=hint, id="tenants.E002"))
    if "openid" not in provider.scopes:
        found.append(Error("RUNG_OIDC_SCOPES lacks openid.", hint="No identity comes without it.", id="tenants.E003"))
    if provider.ca_file and not Path(provider.ca_file).is_file():
        found.append(Error("RUNG_OIDC_CA_FILE is not there.", hint="Certificates in PEM.", id="tenants.E004"))
    return found


def second_factor_is_asked_of_somebody_known(**_kwargs: Any) -> list[CheckMessage]:
    """A typing mistake would ask nobody."""
    if settings.RUNG_MFA_REQUIRED in {"", "admins", "everyone"}:
        return []
    return [Error("RUNG_MFA_REQUIRED is none of its words.", hint="admins, everyone or empty.", id="tenants.E005")]


def groups_are_mapped_in_pairs(**_kwargs: Any) -> list[CheckMessage]:
    """Half a pair would be nobody's group."""
    if all(theirs and ours for theirs, ours in settings.RUNG_OIDC_GROUPS.items()):
        return []
    hint = "Pairs such as theirs=ours, separated by commas."
    return [Error("RUNG_OIDC_GROUPS holds something that is no pair.", hint=hint, id="tenants.E006")]


def provider_is_asked_over_https(**_kwargs: Any) -> list[CheckMessage]:
    """On loopback http is for trying things out."""
    if not settings.RUNG_OIDC_ISSUER.startswith("http://"):
        return []
    return [Caution("RUNG_OIDC_ISSUER is asked over http.", hint="Use https.", id="tenants.W007")]


ALWAYS = (provider_can_be_asked, groups_are_mapped_in_pairs, second_factor_is_asked_of_somebody_known)
IN_PRODUCTION = (provider_is_asked_over_https,)
"""What `check --deploy` adds."""
