"""Limits on sessions: they end when idle or old, and without a required second factor they reach its set-up only."""

import time
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from tenants.access.models import User
from tenants.access.services import second_factor

SECOND_FACTOR_KEY: Final = "second_factor"
"""In the session of a user who gave a second factor: which."""

OPEN_VIEWS: Final = ("/api/", "/security/", "/login/", "/logout/", "/healthz", "/readyz", "/metrics")

Handler = Callable[[HttpRequest], HttpResponseBase]


SESSION_CLOCK: Final = "session_clock"
"""In every session: when it was opened and when it was last used, in seconds since 1970."""

POLL_HEADER: Final = "Rung-Poll"
"""Sent by pages that refresh themselves: no proof that a user is active."""

CLOCK_STEP: Final = 60
"""Seconds between two writes of the last use."""


@receiver(user_logged_in)
def start_session_clock(request: HttpRequest | None, **_kwargs: Any) -> None:
    """Every sign-in opens a session."""
    if request is not None:
        now = int(time.time())
        request.session[SESSION_CLOCK] = [now, now]


def limit_session(get_response: Handler) -> Handler:
    """End sessions that were idle for `RUNG_SESSION_IDLE_MINUTES`, and those older than `SESSION_COOKIE_AGE`."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        clock = request.session.get(SESSION_CLOCK) if settings.SESSION_COOKIE_NAME in request.COOKIES else None
        if clock is not None:
            opened, used = clock
            now, idle = int(time.time()), settings.RUNG_SESSION_IDLE_MINUTES * 60
            if abs(now - opened) > settings.SESSION_COOKIE_AGE or (idle and abs(now - used) > idle):
                logout(request)
            elif now - used >= CLOCK_STEP and POLL_HEADER not in request.headers:
                request.session[SESSION_CLOCK] = [opened, now]
        return get_response(request)

    return middleware


def require_second_factor(get_response: Handler) -> Handler:
    """Let through who showed one, who needs none, and the way to it. Who has one but came in without signs in again."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if not settings.RUNG_MFA_REQUIRED or request.path.startswith(OPEN_VIEWS) or not _lacks_it(request):
            return get_response(request)
        user = request.user
        if isinstance(user, User) and second_factor.is_enabled(user):
            logout(request)
            return redirect(reverse("login"))
        messages.warning(request, _("Your account requires a second factor. Set it up to continue."))
        return redirect(reverse("tenants:second-factor"))

    return middleware


def _lacks_it(request: HttpRequest) -> bool:
    user = request.user
    return isinstance(user, User) and not request.session.get(SECOND_FACTOR_KEY) and second_factor.is_required(user)
