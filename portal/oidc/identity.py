"""What a provider says about a person, read from claims that were checked before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from portal.oidc.provider import Provider, Unbelieved

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
        raise Unbelieved(
            f"The provider names {len(kept)} groups; Rung takes {MOST_GROUPS}. RUNG_OIDC_GROUPS picks what counts.",
            code="too_many_groups",
        )
    return frozenset(kept)
