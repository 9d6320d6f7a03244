"""Tries of secrets over REST: a wrong one is counted, a right one is not."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from portal.core import limiter


@contextmanager
def guess(what: str, *, name: str, address: str) -> Iterator[None]:
    """One try of `what` for a name from an address: TooMany before it is looked at; given back unless it fails."""
    keys = {"name": f"{address} {name}", "address": address}
    for scope, key in keys.items():
        tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
        limiter.hit(f"{what} {scope}", key, limit=tries, per=seconds)
    yield
    for scope, key in keys.items():
        limiter.give_back(f"{what} {scope}", key)
