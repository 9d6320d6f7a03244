"""The configured identity provider: its endpoints, its keys, bounded HTTP requests to it, and its ID tokens.

An ID token is verified by OpenID Connect Core 1.0, 3.1.3.7."""

import hmac
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
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProviderUnavailable("The provider's response is invalid.") from error
    if not isinstance(document, dict):
        raise ProviderUnavailable("The provider's response is invalid.")
    if status != 200:
        raise UntrustedResponse("The provider rejected this sign-in.", code="provider_refused")
    return document


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
    published = _published(provider, provider.issuer.rstrip("/") + WELL_KNOWN)
    if published.get("issuer") != provider.issuer:
        raise UntrustedResponse("The provider's configuration is from another issuer.", code="wrong_issuer")
    methods = published.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Endpoints(
        authorization=_address(published, "authorization_endpoint"),
        token=_address(published, "token_endpoint"),
        keys=_address(published, "jwks_uri"),
        userinfo=_address(published, "userinfo_endpoint") if published.get("userinfo_endpoint") else "",
        posts_secret="client_secret_basic" not in methods,
        names_itself=published.get("authorization_response_iss_parameter_supported") is True,
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
    cached: dict[str, Any] | None = cache.get(name)
    if cached is None:
        cached = fetch_json(provider, address)
        cache.set(name, cached, CACHE_SECONDS)
    return cached


def _name(provider: Provider, address: str) -> str:
    digest = jwt.utils.base64url_encode(f"{provider.issuer}\n{address}".encode()).decode()
    return f"oidc-{digest[-200:]}"


MOST_GROUPS: Final = 500
LONGEST_GROUP: Final = 150


@dataclass(frozen=True, slots=True)
class Identity:
    """A person at a provider. `subject` is who they are; the rest is only what they are called.

    `email` is empty unless the provider says that it is verified. `groups` is None where none are asked for.
    """

    issuer: str
    subject: str
    username: str
    email: str
    first_name: str
    last_name: str
    groups: frozenset[str] | None
    second_factor: bool


def identity_from(provider: Provider, claims: Mapping[str, Any]) -> Identity:
    """Read the claims. `email_verified` counts only as JSON's true: a text or a 1 is a claim of nothing."""
    email = _text(claims, "email", 254) if claims.get("email_verified") is True else ""
    methods = claims.get("amr")
    return Identity(
        issuer=provider.issuer,
        subject=claims["sub"],
        username=_text(claims, "preferred_username", 150) or email.partition("@")[0] or claims["sub"],
        email=email,
        first_name=_text(claims, "given_name", 150),
        last_name=_text(claims, "family_name", 150),
        groups=_groups(provider, claims) if provider.groups_claim else None,
        second_factor=isinstance(methods, list) and "mfa" in methods,
    )


def _text(claims: Mapping[str, Any], name: str, longest: int) -> str:
    value = claims.get(name)
    fits = isinstance(value, str) and len(value) <= longest and value.isprintable()
    return str(value).strip() if fits else ""


def _groups(provider: Provider, claims: Mapping[str, Any]) -> frozenset[str]:
    """Names of groups here. With a mapping only what it names counts. A claim that is not there is no group at all."""
    groups = claims.get(provider.groups_claim, [])
    names = {str(each) for each in (groups if isinstance(groups, list) else [groups]) if isinstance(each, str)}
    accepted = {provider.groups.get(name, "") for name in names} if provider.groups else names
    accepted = {name.strip() for name in accepted if name.isprintable() and 0 < len(name.strip()) <= LONGEST_GROUP}
    if len(accepted) > MOST_GROUPS:
        raise UntrustedResponse(
            f"The provider sent {len(accepted)} groups; the maximum is {MOST_GROUPS}. "
            "Select groups with RUNG_OIDC_GROUPS.",
            code="too_many_groups",
        )
    return frozenset(accepted)


# Signatures that need the provider's private key. `none` and the HS family, which a public key would satisfy, are not.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
SKEW_SECONDS: Final = 60
LONGEST_SUBJECT: Final = 255
LONGEST_TOKEN: Final = 64 * 1024

REFUSALS: Final[dict[type[jwt.PyJWTError], tuple[str, str]]] = {
    jwt.ExpiredSignatureError: (
        "expired",
        "The identity token has expired. Try again; if this repeats, a clock is wrong.",
    ),
    jwt.ImmatureSignatureError: ("not_yet_valid", "The identity token is dated in the future. A clock is wrong."),
    jwt.InvalidAudienceError: ("wrong_audience", "The identity token is for another application."),
    jwt.InvalidIssuerError: ("wrong_issuer", "The identity token is from another issuer."),
    jwt.InvalidSignatureError: ("wrong_signature", "The identity token is not signed by the provider."),
    jwt.MissingRequiredClaimError: ("claim_missing", "The identity token lacks a required claim."),
}


def verified_claims(provider: Provider, token: object, *, nonce: str) -> dict[str, Any]:
    """The claims of an identity token that was made by this provider, for this application and this attempt."""
    if not isinstance(token, str) or not 0 < len(token) <= LONGEST_TOKEN:
        raise UntrustedResponse("The provider sent no identity token.", code="no_token")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise UntrustedResponse(
                "The identity token has an unsupported signature algorithm.", code="wrong_algorithm"
            )
        claims = _decoded(provider, token, header)
    except jwt.PyJWTError as error:
        code, message = REFUSALS.get(type(error), ("unreadable_token", "The identity token is invalid."))
        raise UntrustedResponse(message, code=code) from error
    _check(provider, claims, nonce)
    return claims


def _decoded(provider: Provider, token: str, header: dict[str, Any]) -> dict[str, Any]:
    return jwt.decode(
        token,
        signing_key(provider, header),
        algorithms=[header["alg"]],
        issuer=provider.issuer,
        audience=provider.client_id,
        leeway=SKEW_SECONDS,
        options={"require": ["iss", "sub", "aud", "exp", "iat"]},
    )


def _check(provider: Provider, claims: dict[str, Any], nonce: str) -> None:
    """What is OpenID Connect's and not any token's: the authorized party, the nonce, the subject."""
    audience, party = claims["aud"], claims.get("azp")
    several = isinstance(audience, list) and len(set(audience)) > 1
    if (party is not None or several) and party != provider.client_id:
        raise UntrustedResponse("The identity token was issued to another application.", code="wrong_party")
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise UntrustedResponse("The identity token belongs to another sign-in attempt.", code="wrong_nonce")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= LONGEST_SUBJECT:
        raise UntrustedResponse("The identity token has no subject.", code="claim_missing")
