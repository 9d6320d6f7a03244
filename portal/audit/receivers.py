"""Sign-ins, sign-outs and failed tries are audited: Django's own signals, no others."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from portal.audit.models import Result
from portal.audit.services import record
from portal.kit.security.actors import Actor, ActorKind, Channel
from portal.kit.security.request_identity import request_id, request_origin


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
