"""What a provider, or somebody in its name, says and is not believed: tokens, signatures, answers, addresses."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from portal.audit.models import AuditRecord
from tenants.access.models import User
from tests.factories.tenants import PASSWORD, UserFactory
from tests.support.identity_provider import ABSENT, Claims, IdentityProvider, new_key
from tests.support.listeners import listener
from tests.support.processes import eventually
from tests.support.signing_in import at_provider, back, come_in, refused

pytestmark = pytest.mark.django_db
LONG_AGO = 1_000_000_000


WRONG_CLAIMS = [
    pytest.param({"iss": "https://evil.example"}, "wrong_issuer", id="iss of another"),
    pytest.param({"iss": ABSENT}, "claim_missing", id="no iss"),
    pytest.param({"aud": "another"}, "wrong_audience", id="aud of another"),
    pytest.param({"aud": ABSENT}, "claim_missing", id="no aud"),
    pytest.param({"aud": ["rung", "another"]}, "wrong_party", id="several aud without azp"),
    pytest.param({"aud": ["rung", "another"], "azp": "another"}, "wrong_party", id="azp of another"),
    pytest.param({"azp": "another"}, "wrong_party", id="azp of another, one aud"),
    pytest.param({"nonce": "of-another-attempt"}, "wrong_nonce", id="nonce of another attempt"),
    pytest.param({"nonce": ABSENT}, "wrong_nonce", id="no nonce"),
    pytest.param({"exp": LONG_AGO}, "expired", id="expired"),
    pytest.param({"exp": ABSENT}, "claim_missing", id="no exp"),
    pytest.param({"nbf": 10**11}, "not_yet_valid", id="not yet valid"),
    pytest.param({"iat": ABSENT}, "claim_missing", id="no iat"),
    pytest.param({"sub": ABSENT}, "claim_missing", id="no sub"),
    pytest.param({"sub": ""}, "claim_missing", id="nobody"),
    pytest.param({"sub": "x" * 300}, "claim_missing", id="a sub without end"),
    pytest.param({"sub": "somebody-else"}, "wrong_subject", id="userinfo about somebody else"),
]


@pytest.mark.parametrize(("claims", "code"), WRONG_CLAIMS)
def test_t65_a_token_with_a_wrong_claim(client: Client, provider: IdentityProvider, claims: Claims, code: str) -> None:
    provider.claims = claims
    assert come_in(client) == 403
    assert refused(client, code)
    assert not User.objects.filter(username="dora").exists()


def part(said: Claims) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


def unsigned(_provider: IdentityProvider, claims: Claims) -> str:
    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


def under_hmac(key: bytes, claims: Claims) -> str:
    text = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
    made = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def by_a_stranger(provider: IdentityProvider, claims: Claims) -> str:
    return provider.signed(claims, new_key("a stranger's"))


def renamed_key(provider: IdentityProvider, claims: Claims) -> str:
    provider.header = {"kid": "two"}
    return provider.signed(claims)


def changed_afterwards(provider: IdentityProvider, claims: Claims) -> str:
    head, _, tail = provider.signed(claims).split(".")
    return f"{head}.{part({**claims, 'sub': 'admin'})}.{tail}"


WRONG_SIGNATURES = [
    pytest.param(unsigned, "wrong_algorithm", id="alg none"),
    pytest.param(lambda p, said: under_hmac(p.public_pem, said), "wrong_algorithm", id="HS256 with the public key"),
    pytest.param(lambda p, said: under_hmac(p.client_secret.encode(), said), "wrong_algorithm", id="HS256, our secret"),
    pytest.param(by_a_stranger, "wrong_signature", id="another key under the same name"),
    pytest.param(renamed_key, "unknown_key", id="a key nobody published"),
    pytest.param(changed_afterwards, "wrong_signature", id="changed after it was signed"),
    pytest.param(lambda _p, _said: "no.token", "unreadable_token", id="no token at all"),
    pytest.param(lambda _p, _said: "x" * 100_000, "no_token", id="a token without end"),
]


@pytest.mark.parametrize(("sign", "code"), WRONG_SIGNATURES)
def test_t65_a_token_that_the_provider_did_not_sign(
    client: Client, provider: IdentityProvider, sign: Callable[[IdentityProvider, Claims], str], code: str
) -> None:
    provider.sign = sign
    assert come_in(client) == 403
    assert refused(client, code)


def test_a_key_that_the_provider_has_rotated_in_is_looked_up(client: Client, provider: IdentityProvider) -> None:
    come_in(client)
    provider.kid = "two"
    assert come_in(Client()) == 302


@pytest.mark.parametrize(
    ("name", "key", "algorithm"),
    [
        ("ES256", ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate(), jwt.algorithms.OKPAlgorithm),
    ],
)
def test_other_kinds_of_private_keys_count_too(
    client: Client, provider: IdentityProvider, name: str, key: Any, algorithm: Any
) -> None:
    provider.other_keys = [{**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": "three"}]
    provider.sign = lambda _provider, claims: jwt.encode(claims, key, algorithm=name, headers={"kid": "three"})
    assert come_in(client) == 302


def test_t65_a_key_is_not_used_for_another_kind_of_signature(client: Client, provider: IdentityProvider) -> None:
    provider.header = {"kid": "one"}
    provider.sign = lambda requested, claims: jwt.encode(
        claims, requested.key, algorithm="PS256", headers={"kid": "one"}
    )
    assert come_in(client) == 403
    assert refused(client, "unknown_key")


def test_a_secret_may_be_posted_where_the_provider_takes_it_only_so(client: Client, provider: IdentityProvider) -> None:
    provider.configuration = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert come_in(client) == 302


def test_a_wrong_secret_brings_nobody_in(client: Client, provider: IdentityProvider, settings: Settings) -> None:
    settings.RUNG_OIDC_CLIENT_SECRET = "another"
    assert come_in(client) == 403
    assert refused(client, "provider_refused")


@pytest.mark.parametrize("ahead", [-340, -50, 50])
def test_t65_a_minute_of_skew_is_borne(client: Client, provider: IdentityProvider, ahead: float) -> None:
    provider.seconds_ahead = ahead
    assert come_in(client) == 302


@pytest.mark.parametrize(("ahead", "code"), [(-400, "expired"), (120, "not_yet_valid")])
def test_t65_more_skew_is_not(client: Client, provider: IdentityProvider, ahead: float, code: str) -> None:
    provider.seconds_ahead = ahead
    assert come_in(client) == 403
    assert refused(client, code)


def test_t65_an_answer_counts_once(client: Client, provider: IdentityProvider) -> None:
    address = at_provider(client)
    assert back(client, address) == 302
    client.post("/logout/")
    requested = len(provider.requested)
    assert back(client, address) == 403
    assert refused(client, "wrong_state")
    assert len(provider.requested) == requested, "the provider is not even asked"


def test_t65_a_code_that_was_used_brings_nobody_in(client: Client, provider: IdentityProvider) -> None:
    used = parse_qs(urlsplit(at_provider(client)).query)["code"][0]
    provider.traded({"code": used, "redirect_uri": "", "client_secret": provider.client_secret}, "")
    provider.answers = {"code": used}
    assert come_in(client) == 403
    assert refused(client, "provider_refused")


def test_t65_a_code_of_somebody_elses_attempt_fails_even_where_the_provider_is_lax(
    client: Client, provider: IdentityProvider
) -> None:
    provider.lax = True
    provider.answers = {"code": parse_qs(urlsplit(at_provider(Client())).query)["code"][0]}
    assert come_in(client) == 403
    assert refused(client, "wrong_nonce")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param({"state": "guessed"}, "wrong_state", id="a guessed state"),
        pytest.param({"state": ABSENT}, "wrong_state", id="no state"),
        pytest.param({"iss": "https://evil.example"}, "wrong_issuer", id="mixed up with another provider"),
        pytest.param({"code": ABSENT, "error": "access_denied"}, "provider_refused", id="the person said no"),
    ],
)
def test_t65_an_answer_that_was_not_asked_for(
    client: Client, provider: IdentityProvider, answers: Claims, code: str
) -> None:
    provider.answers = answers
    assert come_in(client) == 403
    assert refused(client, code)


def test_t65_an_answer_in_another_browser(client: Client, provider: IdentityProvider) -> None:
    address = at_provider(Client())
    assert back(client, address) == 403
    assert refused(client, "wrong_state")


@pytest.mark.parametrize("name", ["token_endpoint", "jwks_uri", "userinfo_endpoint", "authorization_endpoint"])
def test_an_address_without_https_is_not_asked(client: Client, provider: IdentityProvider, name: str) -> None:
    provider.configuration = {name: "http://192.0.2.1/x"}
    answer = client.get(reverse("single-sign-on"))
    assert answer.status_code == 403
    assert "without https" in answer.content.decode()


def test_a_provider_that_goes_away_meanwhile_costs_nobody_a_try(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    settings.RUNG_SIGN_IN_LIMITS = {"name": (1, 300), "account": (99, 300), "address": (1, 300)}
    address = at_provider(client)
    with listener() as visits:
        provider.configuration = {"token_endpoint": f"http://127.0.0.1:{visits.port}/token"}
        cache.clear()
        assert back(client, address) == 503
    assert come_in(Client()) == 503
    provider.configuration = {}
    cache.clear()
    assert come_in(Client()) == 302
    assert not AuditRecord.objects.filter(result="Denied").exists()


def test_a_redirect_is_not_followed(client: Client, provider: IdentityProvider) -> None:
    with listener() as visits:
        elsewhere = quote(f"http://127.0.0.1:{visits.port}/")
        provider.configuration = {"userinfo_endpoint": f"{provider.issuer}/authorize?state=x&redirect_uri={elsewhere}"}
        assert come_in(client) == 503
        assert visits.count == 0


def test_an_answer_without_end_is_not_read_and_its_connection_is_closed(
    client: Client, provider: IdentityProvider
) -> None:
    provider.configuration = {"more": "x" * 20_000_000}
    assert client.get(reverse("single-sign-on")).status_code == 503
    eventually(lambda: provider.left, seconds=4)


def test_a_configuration_of_another_issuer_is_not_believed(client: Client, provider: IdentityProvider) -> None:
    provider.configuration = {"issuer": "https://evil.example"}
    assert client.get(reverse("single-sign-on")).status_code == 403


def test_a_provider_that_is_away_is_said_and_passwords_still_work(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    with listener() as visits:
        settings.RUNG_OIDC_ISSUER = f"http://127.0.0.1:{visits.port}"
        answer = client.get(reverse("single-sign-on"))
    assert answer.status_code == 503
    assert "does not respond" in answer.content.decode()
    UserFactory.create(username="alice")
    assert client.post("/login/", {"username": "alice", "password": PASSWORD}).status_code == 302
