"""Verify an ID token (OpenID Connect Core 1.0, 3.1.3.7) and read the identity from its claims."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from portal.sso.provider import Provider, UntrustedResponse, signing_key

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
    said = claims.get(provider.groups_claim, [])
    names = {str(each) for each in (said if isinstance(said, list) else [said]) if isinstance(each, str)}
    kept = {provider.groups.get(name, "") for name in names} if provider.groups else names
    kept = {name.strip() for name in kept if name.isprintable() and 0 < len(name.strip()) <= LONGEST_GROUP}
    if len(kept) > MOST_GROUPS:
        raise UntrustedResponse(
            f"The provider sent {len(kept)} groups; the maximum is {MOST_GROUPS}. Select groups with RUNG_OIDC_GROUPS.",
            code="too_many_groups",
        )
    return frozenset(kept)


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
