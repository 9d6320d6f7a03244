"""Who is behind a REST request: a service account or a person by an access key, read for every request."""

from dataclasses import dataclass
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from portal.kit.db.read_cache import Reads, cached_reads, current_reads
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import request_origin
from tenants.access.services.credentials import Subject, subject_of_token

SCHEME = b"bearer"


@dataclass(frozen=True, slots=True)
class Caller:
    """A subject as DRF wants a user."""

    subject: Subject

    is_authenticated = True
    is_anonymous = False

    @property
    def pk(self) -> str:
        """The id of the account or the person; throttles use it."""
        return self.subject.id


@dataclass(frozen=True, slots=True)
class Credential:
    """What `request.auth` holds: the actor of the request, and the settings read for it."""

    actor: Actor
    reads: Reads

    @property
    def read_only(self) -> bool:
        """True for an access key that only reads; `Route` refuses its writes."""
        return self.actor.limits is not None and self.actor.limits.read_only


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>` of `POST /api/v1/token`. Disabled subjects and old secrets end at once."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Caller and credential; None without a bearer header; AuthenticationFailed (401) for a bad token."""
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != SCHEME:
            return None
        reads = current_reads()
        with cached_reads(reads):
            subject = subject_of_token(parts[1].decode("latin-1")) if len(parts) == 2 else None
        if subject is None:
            raise AuthenticationFailed("Invalid or expired token.", code="bad_token")
        actor = subject.actor(request_origin(request))
        return Caller(subject), Credential(actor, reads)

    def authenticate_header(self, request: Request) -> str:
        """Named in a 401."""
        return "Bearer"


def reads_of(request: Request) -> Reads | None:
    """For `cached_reads`: what was read to authenticate the request; None where it has no bearer token."""
    return request.auth.reads if isinstance(request.auth, Credential) else None


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the library leaves it untyped
    """How the OpenAPI document names it."""

    target_class = "tenants.access.api.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """A JWT in the Authorization header."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
