"""Who must have a second factor and has none yet gets as far as the page where it is set up."""

from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from tenants.access.models import User
from tenants.access.services import second_factor

SECOND_FACTOR_KEY: Final = "second_factor"
"""In the session of whoever showed a second factor: which."""

OPEN_VIEWS: Final = ("/api/", "/security/", "/login/", "/logout/", "/healthz", "/readyz", "/metrics")

Handler = Callable[[HttpRequest], HttpResponseBase]


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
