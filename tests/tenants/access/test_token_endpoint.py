"""`POST /api/v1/token` and what its token opens, through the front door."""

import json
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, ServiceAccount
from tenants.access.services import subjects

URL = "/api/v1/token"
PROTECTED = "/api/v1/workload-types"


@pytest.fixture
def secret(db: None) -> str:
    """The secret of the account `robot`, a platform admin."""
    return subjects.create_service_account(name="robot", role=Role.PLATFORM_ADMIN, actor=SYSTEM)[1]


def ask(client: Client, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post(URL, content, content_type="application/json", **headers)


@pytest.mark.parametrize(
    ("grant", "id_key", "secret_key"),
    [
        pytest.param("app_token", "AppId", "AppSecret", id="Run:ai's Python client"),
        pytest.param("app_token", "appID", "appSecret", id="its document"),
        pytest.param("client_credentials", "clientId", "clientSecret", id="the documentation"),
        pytest.param("client_credentials", "clientID", "clientSecret", id="the document again"),
    ],
)
def test_every_spelling_of_the_clients_is_read(
    client: Client, secret: str, grant: str, id_key: str, secret_key: str
) -> None:
    answer = ask(client, {"grantType": grant, id_key: "robot", secret_key: secret})
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"accessToken", "idToken", "refreshToken", "expiresIn"}
    assert body["expiresIn"] == 86400
    assert body["accessToken"].count(".") == 2
    assert answer["Cache-Control"] == "no-store"


def test_an_unused_pair_of_nulls_is_no_contradiction(client: Client, secret: str) -> None:
    body = {"grantType": "app_token", "AppId": "robot", "AppSecret": secret, "clientId": None, "clientSecret": None}
    assert ask(client, body).status_code == 200


@pytest.mark.parametrize(
    ("body", "details"),
    [
        pytest.param({}, "unsupported_grant_type", id="nothing"),
        pytest.param({"grantType": "password"}, "unsupported_grant_type", id="another grant"),
        pytest.param({"grantType": ["app_token"]}, "unsupported_grant_type", id="grant of another type"),
        pytest.param({"grantType": "app_token"}, "invalid_request", id="no credentials"),
        pytest.param({"grantType": "app_token", "AppId": None, "AppSecret": None}, "invalid_request", id="nulls"),
        pytest.param({"grantType": "app_token", "AppId": 7, "AppSecret": {}}, "invalid_request", id="other types"),
        pytest.param({"grantType": "app_token", "AppId": "robot", "appid": "x"}, "invalid_request", id="key twice"),
        pytest.param({"grantType": "app_token", "AppId": "robot", "AppSecret": "no"}, "invalid_client", id="wrong"),
        pytest.param({"grantType": "app_token", "AppId": "x" * 999, "AppSecret": "no"}, "invalid_request", id="long"),
        pytest.param({"grantType": "app_token", "AppId": "a\x00b", "AppSecret": "no"}, "invalid_client", id="NUL"),
        pytest.param([], "invalid_request", id="a list"),
        pytest.param("{", "json_syntax", id="no JSON"),
        pytest.param(b"\xff", "not_utf8", id="no text"),
    ],
)
def test_what_is_wrong_is_400_in_runais_shape(client: Client, secret: str, body: Any, details: str) -> None:
    answer = ask(client, body)
    assert answer.status_code == 400
    error = answer.json()
    assert (error["code"], error["details"]) == (400, details)
    assert error["message"]


def test_the_token_opens_the_api(client: Client, secret: str) -> None:
    token = ask(client, {"grantType": "app_token", "AppId": "robot", "AppSecret": secret}).json()["accessToken"]
    assert client.get(PROTECTED, headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="none"),
        pytest.param("Bearer", id="no token"),
        pytest.param("Bearer x.y.z", id="nonsense"),
        pytest.param("Bearer a b", id="two"),
        pytest.param("Basic cm9ib3Q6eA==", id="another scheme"),
    ],
)
def test_without_a_genuine_token_it_is_401(client: Client, secret: str, header: str) -> None:
    answer = client.get(PROTECTED, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    assert answer.json()["code"] == 401


def test_t62_a_disabled_account_is_refused_on_its_next_request(client: Client, secret: str) -> None:
    token = ask(client, {"grantType": "app_token", "AppId": "robot", "AppSecret": secret}).json()["accessToken"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get(PROTECTED, headers=bearer).status_code == 200
    subjects.enable_service_account(account=ServiceAccount.objects.get(), enabled=False, actor=SYSTEM)
    assert client.get(PROTECTED, headers=bearer).status_code == 401


def test_t63_guesses_are_limited_and_right_ones_do_not_count(client: Client, secret: str) -> None:
    tries, _seconds = configured.RUNG_SIGN_IN_LIMITS["name"]
    right = {"grantType": "app_token", "AppId": "robot", "AppSecret": secret}
    for _ in range(tries + 3):
        assert ask(client, right).status_code == 200
    wrong = {**right, "AppSecret": "guess"}
    answers = [ask(client, wrong, REMOTE_ADDR="127.0.0.1") for _ in range(tries + 1)]
    assert [answer.status_code for answer in answers] == [400] * tries + [429]
    assert int(answers[-1]["Retry-After"]) > 0
    assert ask(client, right, HTTP_X_FORWARDED_FOR="203.0.113.9").status_code == 429


def test_sign_ins_and_refusals_are_recorded(client: Client, secret: str) -> None:
    body = {"grantType": "app_token", "AppId": "robot", "AppSecret": secret}
    ask(client, body)
    ask(client, {**body, "AppSecret": "guess"})
    rows = AuditRecord.objects.filter(action="session.start").order_by("id")
    assert [(row.result, row.source_ip) for row in rows] == [("Succeeded", "127.0.0.1"), ("Denied", "127.0.0.1")]


def test_the_pages_csrf_does_not_stand_in_a_programs_way(secret: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert ask(strict, {"grantType": "app_token", "AppId": "robot", "AppSecret": secret}).status_code == 200
