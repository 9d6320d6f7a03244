"""What holds for every request: whose headers are believed, who may keep an answer, how an error looks."""

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags

from portal.kit.api.error_responses import DATABASE_UNAVAILABLE, database_unavailable_response, error_response
from portal.kit.api.routes import digest_of
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import RungError
from portal.kit.security.request_identity import READING, REQUEST_ID, is_api, is_trusted_proxy, note_denial

Handler = Callable[[HttpRequest], HttpResponseBase]
FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_", "HTTP_X_REAL_IP", "HTTP_X_REQUEST_ID")
HEALTH: Final = frozenset({"/healthz", "/readyz", "/metrics"})
READS_EVERY_TIME: Final = ("/login/", *HEALTH)
"""A sign-in may create accounts; health is reported without the database."""
IDENTITY = ("HTTP_X_REMOTE_", "HTTP_REMOTE_USER", "HTTP_IMPERSONATE_", "HTTP_X_HTTP_METHOD_OVERRIDE", "HTTP_KUBEFLOW_")


def strip_forged_headers(get_response: Handler) -> Handler:
    """Identity headers are removed always, forwarding headers unless a trusted proxy sent them."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        trusted = is_trusted_proxy(request.META.get("REMOTE_ADDR", ""))
        forged = IDENTITY if trusted else IDENTITY + FORWARDED
        for name in [name for name in request.META if name.startswith(forged)]:
            del request.META[name]
        return get_response(request)

    return middleware


def name_request(get_response: Handler) -> Handler:
    """Every answer has the id of its request, by which logs and audit know it: a trusted proxy's, else a new one."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        sent = request.META.get("HTTP_X_REQUEST_ID", "")
        request.META["HTTP_X_REQUEST_ID"] = name = sent if REQUEST_ID.fullmatch(sent) else str(uuid4())
        response = get_response(request)
        response.headers["X-Request-ID"] = name
        return response

    return middleware


def drop_health_cookies(get_response: Handler) -> Handler:
    """Health is the same for everybody: without their cookies nothing reads their session from the database."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if request.path in HEALTH:
            request.META.pop("HTTP_COOKIE", None)
        return get_response(request)

    return middleware


def set_cache_headers(get_response: Handler) -> Handler:
    """Pages are not cached; `Vary` separates fragments from pages, and users from each other."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store, private")
        patch_vary_headers(response, ["HX-Request", "Cookie"])
        return response

    return middleware


def answer_not_modified(get_response: Handler) -> Handler:
    """Below /api/, a reader that has the same answer already gets 304.

    The answer is made all the same: it saves the line and the reader's work, and never shows an older state.
    """

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if not is_api(request):
            return response
        patch_vary_headers(response, ["Authorization"])
        if request.method in {"GET", "HEAD"} and response.status_code == 200 and isinstance(response, HttpResponse):
            return _unless_known(request, response)
        return response

    return middleware


def _unless_known(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Weak validators: a proxy may compress what they name."""
    suffix = getattr(response, "settings_tag", "")
    tag = f'"{digest_of(response.content)}{suffix and "."}{suffix}"'
    response.headers["ETag"] = f"W/{tag}"
    known = [each.removeprefix("W/") for each in parse_etags(request.headers.get("If-None-Match", ""))]
    if tag not in known and known != ["*"]:
        return response
    same = {name: value for name, value in response.headers.items() if name in NOT_MODIFIED_HEADERS}
    unchanged = HttpResponse(status=304, headers=same)
    del unchanged.headers["Content-Type"]
    return unchanged


NOT_MODIFIED_HEADERS: Final = frozenset({"ETag", "Vary", "Cache-Control"})


def read_settings_once(get_response: Handler) -> Handler:
    """Let a GET with a session or a token read each setting at most once. Streams read again what they send later."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        identified = settings.SESSION_COOKIE_NAME in request.COOKIES or "Authorization" in request.headers
        if request.method not in READING or not identified or request.path.startswith(READS_EVERY_TIME):
            return get_response(request)
        with cached_reads():
            return get_response(request)

    return middleware


class ErrorResponseMiddleware:
    """Turns an error that a view let through into its answer: JSON below /api/, a page elsewhere."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to an error of ours, or to a database that is away, full or read-only."""
        if isinstance(error, DATABASE_UNAVAILABLE):
            return database_unavailable_response(request, error)
        note_denial(request, error)
        return error_response(request, error) if isinstance(error, RungError) else None
