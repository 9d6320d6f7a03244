"""A stored secret that goes on being used: where none was entered, and only to where it was entered for."""

from collections.abc import Callable

from clusters.connections import Connection
from clusters.errors import CredentialUnreadable
from portal.core.errors import Refused


def stored(opens: Callable[[], Connection], *, same_place: bool) -> Connection:
    """The stored connection. Refused at the token where the secret would go elsewhere, or cannot be read any more."""
    if not same_place:
        text = "Enter the credential again: a stored one is never sent to another address."
        raise Refused.at("/token", "secret_needed", text)
    try:
        return opens()
    except CredentialUnreadable as error:
        raise Refused.at("/token", error.code, error.message) from error
