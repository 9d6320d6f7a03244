"""The one provider of the installation, as the operator configured it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from portal.core.errors import Denied, Unavailable

WELL_KNOWN: Final = "/.well-known/openid-configuration"


class Unbelieved(Denied):
    """What a provider, or somebody in its name, said is not believed; `code` says which check it failed."""

    code = "sign_in_refused"


class ProviderAway(Unavailable):
    """The provider did not answer, or not in a way that can be read."""

    code = "provider_away"


@dataclass(frozen=True, slots=True)
class Provider:
    """Where people of the installation sign in, and as what Rung is known there."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str
    scopes: tuple[str, ...]
    groups_claim: str
    groups: Mapping[str, str]
    ca_file: str


def configured() -> Provider | None:
    """The provider; None where single sign-on is not set up."""
    if not settings.RUNG_OIDC_ISSUER:
        return None
    return Provider(
        issuer=settings.RUNG_OIDC_ISSUER,
        client_id=settings.RUNG_OIDC_CLIENT_ID,
        client_secret=settings.RUNG_OIDC_CLIENT_SECRET,
        name=settings.RUNG_OIDC_NAME,
        scopes=tuple(settings.RUNG_OIDC_SCOPES),
        groups_claim=settings.RUNG_OIDC_GROUPS_CLAIM,
        groups=dict(settings.RUNG_OIDC_GROUPS),
        ca_file=settings.RUNG_OIDC_CA_FILE,
    )


def is_safe(url: str) -> bool:
    """True for https, and for http that does not leave this machine; never with a user's name in it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
