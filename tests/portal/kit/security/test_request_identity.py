"""Who is behind a request, and what no client can claim by a header."""

from typing import Any, Final

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.pages.middleware import strip_forged_headers
from portal.kit.security.actors import SYSTEM, ActorKind, Channel
from portal.kit.security.request_identity import REQUEST_ID, actor_of, client_ip
from tenants.access.models import User
from tests.support.rest_clients import Robot

PROXY = "10.0.0.9"


def request_from(peer: str, path: str = "/", **headers: str) -> HttpRequest:
    """A request as views see it, after the first middleware."""
    request = RequestFactory().get(path, REMOTE_ADDR=peer, **headers)
    strip_forged_headers(lambda _request: HttpResponse())(request)
    return request


@pytest.mark.django_db
def test_a_signed_in_user_acts_under_their_name() -> None:
    request = request_from("192.0.2.1")
    request.user = alice = User.objects.create_user("alice")
    actor = actor_of(request)
    assert (actor.kind, actor.id, actor.name) == (ActorKind.USER, str(alice.pk), "alice")
    assert (actor.channel, actor.source_ip) == (Channel.UI, "192.0.2.1")


def test_nobody_is_anonymous() -> None:
    assert (actor_of(request_from("192.0.2.1")).name, actor_of(request_from("192.0.2.1")).id) == ("anonymous", "")


def test_a_token_names_its_own_actor() -> None:
    class Credential:
        actor = SYSTEM.through(Channel.API)

    request = request_from("192.0.2.1", "/api/v1/workloads")
    request.auth = Credential()  # type: ignore[attr-defined]  # set by REST framework
    assert actor_of(request) is Credential.actor


def test_the_path_tells_the_door() -> None:
    assert actor_of(request_from("192.0.2.1", "/api/v1/workloads")).channel is Channel.API


@pytest.mark.parametrize(
    ("path", "agent", "channel"),
    [
        ("/api/v1/workloads", "rung-cli/1.0", Channel.CLI),
        ("/api/v1/workloads", "curl/8 rung-cli/1.0", Channel.API),
        ("/workloads/", "rung-cli/1.0", Channel.UI),
    ],
)
def test_the_command_line_names_itself_as_the_door_of_the_api(path: str, agent: str, channel: Channel) -> None:
    assert actor_of(request_from("192.0.2.1", path, HTTP_USER_AGENT=agent)).channel is channel


def test_an_actor_knows_the_request_but_not_its_query_string() -> None:
    actor = actor_of(request_from("192.0.2.1", "/login/single-sign-on/return/?code=canary"))
    assert (actor.http_method, actor.url) == ("GET", "/login/single-sign-on/return/")


@pytest.mark.django_db
def test_the_console_is_a_door_of_its_own(admin_client: Client) -> None:
    answer = admin_client.get(reverse("admin:index"))
    assert actor_of(answer.wsgi_request).channel is Channel.ADMIN


@pytest.mark.parametrize(
    "header", ["HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED", "HTTP_X_FORWARDED_HOST"]
)
def test_t55_forwarding_headers_of_clients_are_dropped(header: str) -> None:
    request = request_from("192.0.2.1", **{header: "203.0.113.5"})
    assert header not in request.META
    assert client_ip(request) == "192.0.2.1"


@pytest.mark.parametrize("header", ["HTTP_X_REMOTE_USER", "HTTP_REMOTE_USER", "HTTP_IMPERSONATE_USER"])
def test_t55_nobody_becomes_somebody_by_a_header(client: Client, header: str, settings: Settings) -> None:
    settings.RUNG_TRUSTED_PROXIES = [f"{PROXY}/32"]
    assert header not in request_from(PROXY, **{header: "admin"}).META


def test_t55_a_host_of_the_clients_choice_is_refused(client: Client) -> None:
    assert client.get("/healthz", HTTP_HOST="evil.example").status_code == 400
    assert client.get("/healthz", HTTP_X_FORWARDED_HOST="evil.example").status_code == 200


@pytest.mark.parametrize(
    ("chain", "address"),
    [
        pytest.param("203.0.113.5", "203.0.113.5", id="the client"),
        pytest.param("198.51.100.1, 203.0.113.5, 10.0.0.7", "203.0.113.5", id="a lie in front, a second proxy behind"),
        pytest.param("", PROXY, id="nothing said"),
        pytest.param("not-an-address", PROXY, id="nonsense"),
    ],
)
def test_behind_a_trusted_proxy_the_last_foreign_address_counts(settings: Settings, chain: str, address: str) -> None:
    settings.RUNG_TRUSTED_PROXIES = ["10.0.0.0/24"]
    assert client_ip(request_from(PROXY, HTTP_X_FORWARDED_FOR=chain)) == address


PATHS: Final = (
    "/healthz",
    "/api/v1/workloads",
    "/api/v1/no-such-route",
    "/no-such-page",
    "/accounts/login/",
    "/static/no-such-file.css",
)


@pytest.mark.django_db
@pytest.mark.parametrize("path", PATHS)
def test_every_answer_names_its_request(client: Client, path: str) -> None:
    answers = [client.get(path, headers={"X-Request-ID": "chosen-by-a-client"}) for _ in range(2)]
    names = {each["X-Request-ID"] for each in answers}
    assert len(names - {"chosen-by-a-client"}) == 2
    assert all(REQUEST_ID.fullmatch(each) for each in names)


@pytest.mark.django_db
def test_the_audit_trail_knows_a_request_by_the_id_of_its_answer(robot: Robot, cluster: Cluster, settings: Any) -> None:
    body = {"name": "new", "clusterId": str(cluster.pk), "resources": []}
    made = robot.send("POST", "v1/org-unit/departments", body)
    assert AuditRecord.objects.get(action="department.create").request_id == made["X-Request-ID"]
    settings.RUNG_TRUSTED_PROXIES = ["127.0.0.1"]
    headers = {"X-Request-ID": "proxy-7"}
    assert robot.client.get("/api/v1/workloads", headers=headers)["X-Request-ID"] == "proxy-7"
    assert robot.client.get("/api/v1/workloads", headers={"X-Request-ID": "not one"})["X-Request-ID"] != "not one"
