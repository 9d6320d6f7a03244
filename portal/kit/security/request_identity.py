"""The identity behind an HTTP request: actor, channel, address; and the denials that it met.

Identity headers of clients are never trusted. `portal.audit.request_records` records denials once the request is
answered, outside of every transaction, unless the service that refused has done so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

import structlog
from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from portal.kit.errors import Forbidden
from portal.kit.security.actors import Actor, ActorKind, Channel, RequestOrigin

REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
API_PREFIX = "/api/"
CLI_AGENT: Final = "rung-cli/"
"""How `rung` begins its User-Agent. It names the door in records and allows nothing."""


def actor_of(request: HttpRequest) -> Actor:
    """The subject of a request and the door it came through. Tokens name their own actor; sessions name a user."""
    known = getattr(getattr(request, "auth", None), "actor", None)
    if isinstance(known, Actor):
        return known
    user = getattr(request, "user", None)
    signed_in = user is not None and user.is_authenticated
    return Actor(
        kind=ActorKind.USER,
        id=str(user.pk) if user is not None and signed_in else "",
        name=user.get_username() if user is not None and signed_in else "anonymous",
        **request_origin(request),
    )


def request_origin(request: HttpRequest) -> RequestOrigin:
    """Door, address, id, method and path. Query strings stay out: they may carry codes and secrets."""
    return {
        "channel": channel_of(request),
        "source_ip": client_ip(request),
        "request_id": request_id(),
        "http_method": request.method or "",
        "url": request.path,
    }


def channel_of(request: HttpRequest) -> Channel:
    """The door: admin console, REST, `rung` or the pages."""
    match = request.resolver_match
    if match is not None and "admin" in match.app_names:
        return Channel.ADMIN
    if not is_api(request):
        return Channel.UI
    return Channel.CLI if request.META.get("HTTP_USER_AGENT", "").startswith(CLI_AGENT) else Channel.API


def is_api(request: HttpRequest) -> bool:
    """True where answers are JSON, errors included."""
    return request.path.startswith(API_PREFIX)


def request_id() -> str:
    """The id under which this request is logged, or empty."""
    value = str(structlog.contextvars.get_contextvars().get("request_id", ""))
    return value if REQUEST_ID.fullmatch(value) else ""


def client_ip(request: HttpRequest) -> str | None:
    """The peer's address; behind trusted proxies the last address that is not one of theirs."""
    peer: str | None = request.META.get("REMOTE_ADDR") or None
    if peer is None or not is_trusted_proxy(peer):
        return peer
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    return next((hop for hop in reversed(hops) if is_address(hop) and not is_trusted_proxy(hop)), peer)


def is_trusted_proxy(address: str) -> bool:
    """True for addresses the operator named in `RUNG_TRUSTED_PROXIES`."""
    trusted: Sequence[str] = settings.RUNG_TRUSTED_PROXIES
    return is_address(address) and any(ip_address(address) in ip_network(network) for network in trusted)


def is_address(text: str) -> bool:
    """True for an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


DENIALS_ATTRIBUTE: Final = "_denials"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied action; `detail` names the part of the request, if not all of it."""

    error: Forbidden
    detail: Mapping[str, Any] = field(default_factory=dict)


def note_denial(request: HttpRequest | Request, error: Exception, detail: Mapping[str, Any] | None = None) -> None:
    """Keep it if it is a write that the actor may not do; other errors are not denials."""
    if isinstance(error, Forbidden) and request.method not in READING:
        denials_of(request).append(Denial(error, detail or {}))


def denials_of(request: HttpRequest | Request) -> list[Denial]:
    """All that were kept, in order."""
    denials: list[Denial] = vars(getattr(request, "_request", request)).setdefault(DENIALS_ATTRIBUTE, [])
    return denials
