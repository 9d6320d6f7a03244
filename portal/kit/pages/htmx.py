"""HTML over htmx: one URL serves the page and its swappable parts; errors, redirects and messages fit both.

A part is a named partial of the page whose name is the id of the element that htmx replaces.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.messages import get_messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from portal.kit.errors import RungError
from portal.kit.security.request_identity import is_api


def render_page(
    request: HttpRequest, template: str, context: Mapping[str, Any], *, parts: tuple[str, ...] = (), status: int = 200
) -> HttpResponse:
    """The page, or only the part that htmx asks to replace."""
    target = requested_partial(request)
    name = f"{template}#{target}" if target in parts else template
    return render(request, name, dict(context), status=status)


def requested_partial(request: HttpRequest) -> str:
    """The id of the element that htmx replaces; empty for an ordinary request."""
    htmx: HtmxDetails = getattr(request, "htmx")  # noqa: B009 - set by the middleware, unknown to the type of request
    return (htmx.target or "") if htmx and not htmx.boosted else ""


class HtmxMiddleware:
    """Fits what views answer to htmx: redirects, messages beside the part, refusals as messages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Only requests of htmx are touched; a part is another answer than its page."""
        response = self.get_response(request)
        if getattr(request, "htmx", None) and isinstance(response, HttpResponse):
            response = _with_messages(request, _redirect_in_page(request, response))
        patch_vary_headers(response, ["HX-Target"])
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A refusal that htmx meets is shown as a message on the page it came from."""
        if not isinstance(error, RungError) or not getattr(request, "htmx", None) or is_api(request):
            return None
        response = render(request, "components/refusal.html", {"error": error}, status=error.status)
        response["HX-Retarget"] = "#messages"
        response["HX-Reswap"] = "outerHTML"
        if error.retry_after is not None:
            response["Retry-After"] = str(error.retry_after)
        return response


def _redirect_in_page(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """htmx follows a redirect inside the page; tell the browser to go there instead. Never to another site."""
    location = response.get("Location", "")
    if response.status_code not in {301, 302, 303} or not _same_site(request, location):
        return response
    moved = HttpResponse(status=204)
    moved.cookies = response.cookies
    moved["HX-Redirect"] = location
    return moved


def _same_site(request: HttpRequest, location: str) -> bool:
    return url_has_allowed_host_and_scheme(location, {request.get_host()}, require_https=request.is_secure())


def _with_messages(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Messages travel beside the part that was asked for."""
    if response.status_code != 200 or "HX-Retarget" in response or not requested_partial(request):
        return response
    if messages := list(get_messages(request)):
        response.write(render_to_string("components/messages.html", {"messages": messages, "oob": True}))
    return response
