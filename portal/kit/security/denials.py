"""Denials within a request, kept until it is answered: `portal.audit.middleware` records it then,
outside of every transaction, unless the service that refused has done so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import HttpRequest
from rest_framework.request import Request

from portal.kit.errors import Forbidden

REQUEST_ATTRIBUTE: Final = "_denials"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied action; `detail` names the part of the request, if not all of it."""

    error: Forbidden
    detail: Mapping[str, Any] = field(default_factory=dict)


def note_denial(request: HttpRequest | Request, error: Exception, detail: Mapping[str, Any] | None = None) -> None:
    """Keep it if it is a write that the actor may not do; other errors are not denials."""
    if isinstance(error, Forbidden) and request.method not in READING:
        denials_of(request).append(Denial(error, detail or {}))


def denials_of(request: HttpRequest | Request) -> list[Denial]:
    """All that were kept, in order."""
    kept: list[Denial] = vars(getattr(request, "_request", request)).setdefault(REQUEST_ATTRIBUTE, [])
    return kept
