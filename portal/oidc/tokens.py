"""Identity tokens: believed only with every check of OpenID Connect Core 1.0 section 3.1.3.7."""

import hmac
from typing import Any, Final

import jwt

from portal.oidc.discovery import key_for
from portal.oidc.provider import Provider, Unbelieved

# Signatures that need the provider's private key. `none` and the HS family, which a public key would satisfy, are not.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
SKEW_SECONDS: Final = 60
LONGEST_SUBJECT: Final = 255
LONGEST_TOKEN: Final = 64 * 1024

REFUSALS: Final[dict[type[jwt.PyJWTError], tuple[str, str]]] = {
    jwt.ExpiredSignatureError: ("expired", "The identity token has expired. If you were quick, a clock is wrong."),
    jwt.ImmatureSignatureError: ("not_yet_valid", "The identity token is from the future: a clock is wrong."),
    jwt.InvalidAudienceError: ("wrong_audience", "The identity token is for another application."),
    jwt.InvalidIssuerError: ("wrong_issuer", "The identity token is of another issuer."),
    jwt.InvalidSignatureError: ("wrong_signature", "The identity token is not signed by the provider."),
    jwt.MissingRequiredClaimError: ("claim_missing", "The identity token lacks a claim that it must have."),
}


def verified(provider: Provider, token: object, *, nonce: str) -> dict[str, Any]:
    """The claims of an identity token that was made by this provider, for this application and this attempt."""
    if not isinstance(token, str) or not 0 < len(token) <= LONGEST_TOKEN:
        raise Unbelieved("The provider sent no identity token.", code="no_token")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise Unbelieved("The identity token's signature is of a kind that proves nothing.", code="wrong_algorithm")
        claims = _decoded(provider, token, header)
    except jwt.PyJWTError as error:
        code, message = REFUSALS.get(type(error), ("unreadable_token", "The identity token cannot be read."))
        raise Unbelieved(message, code=code) from error
    _check(provider, claims, nonce)
    return claims


def _decoded(provider: Provider, token: str, header: dict[str, Any]) -> dict[str, Any]:
    return jwt.decode(
        token,
        key_for(provider, header),
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
        raise Unbelieved("The identity token was issued to another application.", code="wrong_party")
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise Unbelieved("The identity token belongs to another attempt to sign in.", code="wrong_nonce")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= LONGEST_SUBJECT:
        raise Unbelieved("The identity token names nobody.", code="claim_missing")
