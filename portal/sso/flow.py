"""The way to the provider and back: an attempt is made here, kept in the session, and used up by the first answer."""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from portal.sso.provider import (
    Endpoints,
    Identity,
    Provider,
    UntrustedResponse,
    endpoints_of,
    fetch_json,
    identity_from,
    verified_claims,
)

ATTEMPT_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One sign-in under way. The provider sees a digest of `verifier`; `nonce` comes back inside the token."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    started_at: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def begin_login(provider: Provider, *, redirect_uri: str) -> tuple[str, LoginAttempt]:
    """The provider's address to send the browser to, and the attempt to keep for its return."""
    endpoints = endpoints_of(provider)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    attempt = LoginAttempt(state, nonce, verifier, redirect_uri, started_at=time.time())
    digest = hashlib.sha256(attempt.verifier.encode()).digest()
    requested = {
        "response_type": "code",
        "response_mode": "query",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(provider.scopes),
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    separator = "&" if urlsplit(endpoints.authorization).query else "?"
    return f"{endpoints.authorization}{separator}{urlencode(requested)}", attempt


def finish_login(provider: Provider, attempt: LoginAttempt, answer: Mapping[str, str]) -> Identity:
    """Who came back. The attempt must have been taken out of the session before, so that no answer counts twice.

    1. is the answer to this attempt, in time, and from this provider?
    2. trade the code for tokens
    3. check the identity token
    4. ask for what it leaves out
    """
    endpoints = endpoints_of(provider)
    _check(provider, attempt, answer, endpoints)
    tokens = _traded(provider, attempt, answer["code"], endpoints)
    claims = verified_claims(provider, tokens.get("id_token"), nonce=attempt.nonce)
    more = _userinfo(provider, claims, tokens.get("access_token"), endpoints)
    return identity_from(provider, _together(claims, more))


def _check(provider: Provider, attempt: LoginAttempt, answer: Mapping[str, str], endpoints: Endpoints) -> None:
    if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
        raise UntrustedResponse("This response belongs to another sign-in attempt.", code="wrong_state")
    if not 0 <= time.time() - attempt.started_at <= ATTEMPT_SECONDS:
        raise UntrustedResponse("Sign-in timed out. Start again.", code="attempt_too_old")
    named = answer.get("iss")
    if (named is not None or endpoints.names_itself) and named != provider.issuer:
        raise UntrustedResponse("This response comes from another provider.", code="wrong_issuer")
    if "error" in answer or not answer.get("code"):
        raise UntrustedResponse("The provider rejected the sign-in.", code="provider_refused")


def _traded(provider: Provider, attempt: LoginAttempt, code: str, endpoints: Endpoints) -> dict[str, Any]:
    form = {
        "grant_type": "authorization_code",
        "code": code[:4096],
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        "client_id": provider.client_id,
    }
    if endpoints.posts_secret:
        return fetch_json(provider, endpoints.token, form={**form, "client_secret": provider.client_secret})
    quoted = urlencode({"": provider.client_id})[1:], urlencode({"": provider.client_secret})[1:]  # RFC 6749 2.3.1
    return fetch_json(provider, endpoints.token, form=form, basic=quoted)


def _userinfo(provider: Provider, claims: Mapping[str, Any], token: object, endpoints: Endpoints) -> dict[str, Any]:
    """Claims that are not in the token; of the same subject, or not at all."""
    wanted = {"email", provider.groups_claim} - {""}
    if wanted <= claims.keys() or not endpoints.userinfo or not isinstance(token, str):
        return {}
    answer = fetch_json(provider, endpoints.userinfo, bearer=token)
    if answer.get("sub") != claims["sub"]:
        raise UntrustedResponse("The provider answered for a different user.", code="wrong_subject")
    return answer


def _together(claims: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The token's claims first. The source of an address also says whether it is verified."""
    named_by = claims if "email" in claims else more
    mail = {name: named_by.get(name) for name in ("email", "email_verified")}
    return {**more, **claims, **mail}
