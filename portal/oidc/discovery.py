"""What a provider publishes about itself: its endpoints and its keys, kept for a few minutes."""

from dataclasses import dataclass
from typing import Any, Final

import jwt
from django.core.cache import cache

from portal.oidc.provider import WELL_KNOWN, Provider, Unbelieved, is_safe
from portal.oidc.transport import ask

KEPT_SECONDS: Final = 600


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
        raise Unbelieved("The provider's configuration is of another issuer.", code="wrong_issuer")
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
        raise Unbelieved("The provider names an address without https.", code="unsafe_address")
    return found


def key_for(provider: Provider, header: dict[str, Any]) -> jwt.PyJWK:
    """The published key that a token's header names. A key nobody knows yet is looked up anew: providers rotate."""
    address = endpoints_of(provider).keys
    found = _matching(_published(provider, address), header)
    if not found:
        cache.delete(_name(provider, address))
        found = _matching(_published(provider, address), header)
    if len(found) != 1:
        raise Unbelieved("The identity token is signed with a key the provider does not have.", code="unknown_key")
    try:
        return jwt.PyJWK(found[0], algorithm=header["alg"])
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise Unbelieved("The identity token names a key of another kind.", code="wrong_algorithm") from error


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
        kept = ask(provider, address)
        cache.set(name, kept, KEPT_SECONDS)
    return kept


def _name(provider: Provider, address: str) -> str:
    digest = jwt.utils.base64url_encode(f"{provider.issuer}\n{address}".encode()).decode()
    return f"oidc-{digest[-200:]}"
