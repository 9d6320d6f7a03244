"""The configured identity provider, its endpoints and keys, and the bounded HTTP requests to it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import requests
from django.conf import settings
from django.core.cache import cache

from portal.kit.errors import Forbidden, ServiceUnavailable

WELL_KNOWN: Final = "/.well-known/openid-configuration"


class UntrustedResponse(Forbidden):
    """An answer of the provider that failed a check; `code` names the check."""

    code = "sign_in_refused"


class ProviderUnavailable(ServiceUnavailable):
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


def configured_provider() -> Provider | None:
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


MOST_BYTES: Final = 1024 * 1024
SECONDS: Final = 10.0


def fetch_json(
    provider: Provider,
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    basic: tuple[str, str] | None = None,
    bearer: str = "",
) -> dict[str, Any]:
    """The JSON object at the address; with `form` it is posted. Unbelieved for a "no", ProviderAway for no answer."""
    if not is_safe(url):
        raise UntrustedResponse("The provider uses an address without https.", code="unsafe_address")
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
    try:
        with requests.Session() as session:
            session.trust_env = False  # no netrc, proxies or certificate bundles of the environment
            with session.request(
                "GET" if form is None else "POST",
                url,
                data=form,
                auth=basic,
                headers=headers,
                timeout=(3, 5),
                allow_redirects=False,
                stream=True,
                verify=provider.ca_file or True,
            ) as answer:  # what is not read to its end keeps its connection otherwise
                return _read(answer.status_code, _bounded(answer))
    except (requests.RequestException, OSError) as error:
        raise ProviderUnavailable("The single sign-on provider does not respond.") from error


def _bounded(answer: requests.Response) -> bytes:
    """The body, if it is small enough and comes soon enough."""
    until, body = time.monotonic() + SECONDS, b""
    for part in answer.iter_content(8192):
        body += part
        if len(body) > MOST_BYTES or time.monotonic() > until:
            raise ProviderUnavailable("The provider's response is too long or too slow.")
    return body


def _read(status: int, body: bytes) -> dict[str, Any]:
    if status >= 500 or 300 <= status < 400:
        raise ProviderUnavailable(f"The single sign-on provider returned status {status}.")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProviderUnavailable("The provider's response is invalid.") from error
    if not isinstance(said, dict):
        raise ProviderUnavailable("The provider's response is invalid.")
    if status != 200:
        raise UntrustedResponse("The provider rejected this sign-in.", code="provider_refused")
    return said


CACHE_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where to ask for what."""

    authorization: str
    token: str
    keys: str
    userinfo: str
    posts_secret: bool
    names_itself: bool


def endpoints_of(provider: Provider) -> Endpoints:
    """The endpoints; Unbelieved where the document speaks for another issuer or names an unsafe address."""
    said = _published(provider, provider.issuer.rstrip("/") + WELL_KNOWN)
    if said.get("issuer") != provider.issuer:
        raise UntrustedResponse("The provider's configuration is from another issuer.", code="wrong_issuer")
    methods = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Endpoints(
        authorization=_address(said, "authorization_endpoint"),
        token=_address(said, "token_endpoint"),
        keys=_address(said, "jwks_uri"),
        userinfo=_address(said, "userinfo_endpoint") if said.get("userinfo_endpoint") else "",
        posts_secret="client_secret_basic" not in methods,
        names_itself=said.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(document: dict[str, Any], name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str) or not is_safe(found):
        raise UntrustedResponse("The provider uses an address without https.", code="unsafe_address")
    return found


def signing_key(provider: Provider, header: dict[str, Any]) -> jwt.PyJWK:
    """The published key that a token's header names. An unknown key is fetched again, because providers rotate keys."""
    address = endpoints_of(provider).keys
    found = _matching(_published(provider, address), header)
    if not found:
        cache.delete(_name(provider, address))
        found = _matching(_published(provider, address), header)
    if len(found) != 1:
        raise UntrustedResponse(
            "The identity token is signed with a key that the provider does not have.", code="unknown_key"
        )
    try:
        return jwt.PyJWK(found[0], algorithm=header["alg"])
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise UntrustedResponse("The identity token uses a key of another kind.", code="wrong_algorithm") from error


def _matching(document: dict[str, Any], header: dict[str, Any]) -> list[dict[str, Any]]:
    """Keys for signatures with the header's id and algorithm; a header without id needs the only such key."""
    listed = document.get("keys")
    keys = [key for key in listed if isinstance(key, dict)] if isinstance(listed, list) else []
    return [
        key
        for key in keys
        if key.get("use", "sig") == "sig"
        and key.get("alg", header["alg"]) == header["alg"]
        and key.get("kty") in {"RSA", "EC", "OKP"}
        and ("kid" not in header or key.get("kid") == header["kid"])
    ]


def _published(provider: Provider, address: str) -> dict[str, Any]:
    name = _name(provider, address)
    kept: dict[str, Any] | None = cache.get(name)
    if kept is None:
        kept = fetch_json(provider, address)
        cache.set(name, kept, CACHE_SECONDS)
    return kept


def _name(provider: Provider, address: str) -> str:
    digest = jwt.utils.base64url_encode(f"{provider.issuer}\n{address}".encode()).decode()
    return f"oidc-{digest[-200:]}"
