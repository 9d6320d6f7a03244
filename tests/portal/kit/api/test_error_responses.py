"""Errors, health and headers: JSON for programs, pages for people, nothing for caches and attackers."""

import json
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from portal import urls
from portal.kit.api import error_responses
from portal.kit.errors import TooManyRequests, ValidationFailed

CANARY = "canary-secret-4711"


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError(f"password={CANARY}")


def refused(request: HttpRequest) -> HttpResponse:
    raise ValidationFailed.at("/spec/gpus", "too_many_gpus", "Only 8 GPUs exist.", allowed=["8"])


def limited(request: HttpRequest) -> HttpResponse:
    raise TooManyRequests("Slow down.", retry_after=7)


def without_database(request: HttpRequest) -> HttpResponse:
    raise OperationalError(f"could not connect as {CANARY}")


VIEWS = {"broken": broken, "refused": refused, "limited": limited, "without-database": without_database}


@pytest.fixture
def routes() -> Iterator[None]:
    """The portal's URLs and four that fail, as pages and below /api/."""
    extra = [path(f"{prefix}{name}", view) for prefix in ("", "api/") for name, view in VIEWS.items()]
    names = ("handler400", "handler403", "handler404", "handler500")
    module = ModuleType("failing_urls")
    vars(module).update({name: getattr(urls, name) for name in names}, urlpatterns=[*extra, *urls.urlpatterns])
    with override_settings(ROOT_URLCONF=module):
        yield


@pytest.fixture
def calm(client: Client) -> Client:
    """A client that gets the 500 instead of the exception."""
    client.raise_request_exception = False
    return client


@pytest.mark.usefixtures("routes", "db")
@pytest.mark.parametrize(
    ("name", "status", "details"),
    [("broken", 500, "internal"), ("refused", 422, "too_many_gpus"), ("limited", 429, "too_many"),
     ("without-database", 503, "unavailable")],
)  # fmt: skip
class TestErrors:
    def test_programs_get_one_json_shape(self, calm: Client, name: str, status: int, details: str) -> None:
        answer = calm.get(f"/api/{name}")
        assert answer.status_code == status
        assert (answer.json()["code"], answer.json()["details"]) == (status, details)

    def test_people_get_a_page(self, calm: Client, name: str, status: int, details: str) -> None:
        answer = calm.get(f"/{name}")
        assert (answer.status_code, answer["Content-Type"]) == (status, "text/html; charset=utf-8")

    def test_t64_neither_shows_a_secret(self, calm: Client, name: str, status: int, details: str) -> None:
        said = calm.get(f"/api/{name}").content + calm.get(f"/{name}").content
        assert CANARY.encode() not in said
        assert b"Traceback" not in said


@pytest.mark.usefixtures("routes", "db")
def test_a_refusal_says_where_and_what_would_be_right(calm: Client) -> None:
    [problem] = calm.get("/api/refused").json()["errors"]
    assert (problem["pointer"], problem["allowed"]) == ("/spec/gpus", ["8"])


@pytest.mark.usefixtures("routes", "db")
@pytest.mark.parametrize("url", ["/limited", "/api/limited"])
def test_a_limiter_says_when_to_come_back(calm: Client, url: str) -> None:
    assert calm.get(url)["Retry-After"] == "7"


@pytest.mark.django_db
def test_an_unknown_route_is_json_below_the_api_and_a_page_elsewhere(client: Client) -> None:
    assert client.get("/api/no/such/thing").json()["code"] == 404
    assert "text/html" in client.get("/no/such/thing")["Content-Type"]


def test_t60_a_stale_form_is_answered_in_the_same_shapes() -> None:
    request = HttpRequest()
    request.path = "/api/v1/token"
    assert json.loads(error_responses.csrf_failed(request).content)["details"] == "csrf"


@pytest.mark.django_db
def test_t56_no_cache_keeps_a_page_and_fragments_are_distinguished(client: Client) -> None:
    answer = client.get("/login/")
    assert "no-store" in answer["Cache-Control"]
    assert {"HX-Request", "Cookie"} <= {name.strip() for name in answer["Vary"].split(",")}


@pytest.mark.django_db
def test_scripts_come_from_here_or_carry_the_nonce_of_this_answer(client: Client) -> None:
    policies = [client.get("/login/")["Content-Security-Policy"] for _ in range(2)]
    [scripts] = [part for part in policies[0].split("; ") if part.startswith("script-src ")]
    assert "'self'" in scripts
    assert "'nonce-" in scripts
    assert "unsafe" not in scripts
    assert policies[0] != policies[1]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("header", "value"),
    [("X-Frame-Options", "DENY"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "same-origin")],
)
def test_browsers_are_told_to_be_careful(client: Client, header: str, value: str) -> None:
    assert client.get("/login/")[header] == value
