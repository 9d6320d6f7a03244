"""Sign-ins under way at the provider, kept in the session of the browser that started them. Each is taken out once."""

from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.oidc.flow import Attempt, begin
from portal.oidc.provider import Provider, Unbelieved

KEPT: Final = "single_sign_on"
MOST: Final = 5
"""Tabs of one browser that may be on their way at once."""


def start(request: HttpRequest, provider: Provider, *, onward: str, joins: int | None = None) -> str:
    """The provider's address for a new attempt. `joins` is the user who wants to connect their account."""
    address = request.build_absolute_uri(reverse("single-sign-on-return"))
    url, attempt = begin(provider, redirect_uri=address)
    others: dict[str, Any] = request.session.get(KEPT, {})
    newest = dict(list(others.items())[-(MOST - 1) :])
    request.session[KEPT] = {
        **newest,
        attempt.state: {"attempt": attempt.as_json(), "onward": onward, "joins": joins},
    }
    return url


def take(request: HttpRequest) -> tuple[Attempt, dict[str, Any]]:
    """The attempt that an answer belongs to, taken out for good, before anything is believed."""
    pending: dict[str, Any] = request.session.get(KEPT, {})
    kept = pending.pop(request.GET.get("state", ""), None)
    if kept is None:
        raise Unbelieved(_("This answer belongs to no attempt of this browser. Start again."), code="wrong_state")
    request.session[KEPT] = pending
    request.session.save()
    return Attempt(**kept["attempt"]), kept
