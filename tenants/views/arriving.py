"""From a first factor to a session: who has a second one is asked for it first, and waits in an anonymous session."""

import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme

from portal.core.actors import Actor, ActorKind
from portal.core.http import arrival_of
from tenants.middleware import MARK
from tenants.models import User
from tenants.services import second_factor

BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
WAITING: Final = "signing_in"
WAITING_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Waiting:
    """Somebody whose first factor was right. `digest` changes with their password."""

    user_id: int
    digest: str
    onward: str
    shown: str
    at: float


def admit(request: HttpRequest, user: User, *, onward: str, shown: str, factor: str = "") -> HttpResponse:
    """Open the session, or ask for the second factor first. `factor` names one that the provider has seen."""
    if not second_factor.has_one(user):
        return open_session(request, user, onward=onward, shown=shown, factor=factor)
    waiting = Waiting(user.pk, user.get_session_auth_hash(), onward, shown, time.time())
    request.session[WAITING] = asdict(waiting)
    return redirect(reverse("login-code"))


def open_session(request: HttpRequest, user: User, *, onward: str, shown: str, factor: str) -> HttpResponse:
    """Under a new key; what waited is forgotten."""
    request.session.pop(WAITING, None)
    vars(request)["signed_in_with"] = shown
    login(request, user, backend=BACKEND)
    request.session[MARK] = factor
    return redirect(onward)


def who_waits(request: HttpRequest) -> tuple[Waiting, User] | None:
    """Who is to show a second factor; None after a while, or once they were disabled or changed their password."""
    kept: Any = request.session.get(WAITING)
    if kept is None:
        return None
    waiting = Waiting(**kept)
    user = User.objects.filter(pk=waiting.user_id, is_active=True).first()
    fresh = 0 <= time.time() - waiting.at <= WAITING_SECONDS
    if user is None or not fresh or not constant_time_compare(waiting.digest, user.get_session_auth_hash()):
        del request.session[WAITING]
        return None
    return waiting, user


def onward_from(request: HttpRequest) -> str:
    """Where somebody wanted to go, if it is on this site; else home."""
    wanted = request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if is_ours else reverse("home")


def person(request: HttpRequest, user: User) -> Actor:
    """Somebody who is not signed in yet, as an actor."""
    return Actor(
        kind=ActorKind.USER,
        id=str(user.pk),
        name=user.get_username(),
        **arrival_of(request),
    )
