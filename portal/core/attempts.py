"""One transaction around services that have their own: a rehearsal, or work that is bound to an idempotency key."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction

from portal.core.errors import RungError

_within: ContextVar[bool] = ContextVar("_within", default=False)


@contextmanager
def attempt() -> Iterator[None]:
    """A refusal ends it with a commit and goes on: the service has rolled back what it did; the record of its "no",
    and tries that were counted, stay. Every other error rolls everything back.
    """
    refusal: RungError | None = None
    token = _within.set(True)
    try:
        with transaction.atomic():
            try:
                yield
            except RungError as error:
                refusal = error
    finally:
        _within.reset(token)
    if refusal is not None:
        raise refusal


def within_attempt() -> bool:
    """Is the transaction around the caller one that commits when something is refused?"""
    return _within.get()
