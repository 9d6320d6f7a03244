"""Records that no service writes: sign-ins, sign-outs, failed attempts, and denied writes."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from portal.audit.models import Result
from portal.audit.services import record, record_refusal
from portal.kit.api.error_responses import DATABASE_UNAVAILABLE, database_unavailable_response
from portal.kit.security.actors import Actor, ActorKind, Channel
from portal.kit.security.request_identity import Denial, actor_of, denials_of, request_id, request_origin


@receiver(user_logged_in)
def signed_in(request: HttpRequest | None, user: AbstractBaseUser, **_kwargs: Any) -> None:
    """A sign-in; pages that know the method (second factor, single sign-on) note it on the request."""
    shown = vars(request).get("signed_in_with") if request is not None else None
    record(_actor(request, user), "session.start", user, entity_type="user", detail={"with": shown} if shown else None)


@receiver(user_logged_out)
def signed_out(request: HttpRequest | None, user: AbstractBaseUser | None, **_kwargs: Any) -> None:
    """A sign-out; without a session nothing is recorded."""
    if user is not None:
        record(_actor(request, user), "session.end", user, entity_type="user")


@receiver(user_login_failed)
def sign_in_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_kwargs: Any) -> None:
    """A failed sign-in. Unknown names are not recorded, because people type passwords there."""
    names = get_user_model()._default_manager.filter(username=str(credentials.get("username", ""))[:254])
    user = names.first()
    record(_actor(request, user), "session.start", user, result=Result.DENIED, entity_type="user")


def _actor(request: HttpRequest | None, user: AbstractBaseUser | None) -> Actor:
    name = user.get_username() if user is not None else "unknown"
    key = str(user.pk) if user is not None else ""
    if request is None:
        return Actor(ActorKind.USER, key, name, Channel.COMMAND, request_id=request_id())
    return Actor(ActorKind.USER, key, name, **request_origin(request))


Handler = Callable[[HttpRequest], HttpResponseBase]


def record_denials(get_response: Handler) -> Handler:
    """After the answer is made: one record per denial, saying who sent what where."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        try:
            for denial in denials_of(request):
                if not denial.error.recorded:
                    _record(request, denial)
        except DATABASE_UNAVAILABLE as error:
            return database_unavailable_response(request, error)
        return response

    return middleware


def _record(request: HttpRequest, denial: Denial) -> None:
    record_refusal(
        actor_of(request),
        f"request.{str(request.method).lower()}",
        denial.error,
        entity_type="request",
        entity_name=request.path,
        detail=denial.detail,
    )
