"""Exact limits for guesses of secrets and other costly requests, and the sign-in view. A correct guess is refunded.

The database holds the count, so it survives restarts and is shared by all processes; the window starts with the first
try, so that no boundary doubles it. Call it outside of a transaction that may be rolled back.
"""

import hashlib
import math
import unicodedata
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from portal.kit.errors import RungError, TooManyRequests
from portal.kit.models import LimiterBucket
from portal.kit.security.request_identity import client_ip

TOO_MANY_GUESSES: Final = "Too many attempts. Wait and try again."


def hit(scope: str, key: str, *, limit: int, per: int, refusal: str = TOO_MANY_GUESSES) -> None:
    """Count one try; after `limit` tries in `per` seconds raise `TooManyRequests` with `refusal` and `retry_after`.

    1. make the row, with a window that has begun, if it is missing
    2. restart a window that is over (one caller wins)
    3. add one, only while the count is below the limit (the database decides who gets the last one)
    """
    now, name = timezone.now(), _name(scope, key)
    window = {"started_at": now, "ends_at": now + timedelta(seconds=per)}
    LimiterBucket.objects.bulk_create([LimiterBucket(key=name, **window)], ignore_conflicts=True)
    bucket = LimiterBucket.objects.filter(key=name)
    bucket.filter(ends_at__lte=now).update(**window, count=0)
    if not bucket.filter(count__lt=limit).update(count=F("count") + 1):
        raise TooManyRequests(refusal, retry_after=_seconds_left(name))


def refund(scope: str, key: str) -> None:
    """Take one counted try back: it turned out to be right."""
    LimiterBucket.objects.filter(key=_name(scope, key), count__gt=0).update(count=F("count") - 1)


def forget_old() -> int:
    """Drop windows that are over; answers how many."""
    return LimiterBucket.objects.filter(ends_at__lt=timezone.now() - timedelta(hours=1)).delete()[0]


def _seconds_left(name: str) -> int:
    ends_at = LimiterBucket.objects.filter(key=name).values_list("ends_at", flat=True).first() or timezone.now()
    return max(1, math.ceil((ends_at - timezone.now()).total_seconds()))


def _name(scope: str, key: str) -> str:
    return hashlib.sha256(f"{scope}\n{key}".encode()).hexdigest()


Counted = tuple[str, str]


class ThrottledLoginView(LoginView):
    """Django's sign-in view; the console signs in here too."""

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Count the try before the password is looked at."""
        try:
            count_try(keys_of(request))
        except TooManyRequests as error:
            return self.refuse(error)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """A right password does not count as a guess."""
        refund_try(keys_of(self.request))
        return self.admit(form)

    def admit(self, form: AuthenticationForm) -> HttpResponse:
        """Open a session, under a new key, and go where one wanted to go."""
        return super().form_valid(form)

    def refuse(self, error: RungError) -> HttpResponse:
        """The page again, with why not, and when to come back."""
        context = self.get_context_data(form=self.get_form_class()(self.request), refused=error)
        page: HttpResponseBase = self.render_to_response(context, status=error.status)
        if error.retry_after is not None:
            page["Retry-After"] = str(error.retry_after)
        return page  # type: ignore[return-value]  # render_to_response is typed as the base of all responses


def keys_of(request: HttpRequest) -> list[Counted]:
    """What is counted: this name from this address, this name from anywhere, and this address."""
    return keys_for(request, request.POST.get("username", ""))


def keys_for(request: HttpRequest, name: str) -> list[Counted]:
    """The same for a name that is known already."""
    address, account = client_ip(request) or "", account_key(name)
    return [("name", f"{address} {account}"), ("account", account), ("address", address)]


def account_key(name: str) -> str:
    """One key for all spellings of a name that sign in to one account: Django strips and NFKC-normalises it."""
    return unicodedata.normalize("NFKC", name.strip()).strip()[:254].casefold()


def code_keys(request: HttpRequest, user_id: str) -> list[Counted]:
    """For codes: by person, wherever the guesses come from, since a million codes are few. And by address."""
    return [("code", user_id), ("code day", user_id), ("address", client_ip(request) or "")]


def count_try(keys: Iterable[Counted], *, what: str = "sign-in") -> None:
    """Count one guess of `what` under each key. TooManyRequests if a key is over its limit."""
    for scope, key in keys:
        tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
        hit(f"{what} {scope}", key, limit=tries, per=seconds)


def refund_try(keys: Iterable[Counted], *, what: str = "sign-in") -> None:
    """Take the counted guess back: the secret was right."""
    for scope, key in keys:
        refund(f"{what} {scope}", key)
