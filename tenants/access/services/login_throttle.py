"""Tries of secrets over REST: a wrong one is counted, a right one is not."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from portal.kit.security import rate_limit


@contextmanager
def throttle_guess(what: str, *, name: str, address: str) -> Iterator[None]:
    """One try of `what` for a name from an address: TooMany before it is looked at; given back unless it fails."""
    keys = {"name": f"{address} {name}", "address": address}
    for scope, key in keys.items():
        tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
        rate_limit.hit(f"{what} {scope}", key, limit=tries, per=seconds)
    yield
    for scope, key in keys.items():
        rate_limit.refund(f"{what} {scope}", key)
