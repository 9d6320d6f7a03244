"""What an API server's answer means: its JSON, and the error that stands for a status. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from clusters.errors import (
    AdmissionDenied,
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Invalid,
    NotAuthorized,
    NotServed,
    NotSynced,
    ObjectConflict,
    QuotaExceeded,
    VersionConflict,
    VersionExpired,
)

DEEP: Final = 254  # levels of nesting: as many as orjson writes; it reads 1024, too many to walk through in Python
NO_ACCOUNT: Final = "error looking up service account"  # of a namespace that was made a moment ago
NOT_READY: Final = "not yet ready to handle request"  # an admission plugin of a server that has just started
LONGEST_MESSAGE: Final = 1000
LONGEST_WAIT: Final = 600  # seconds of Retry-After that are believed
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_NO_LOG: Final = re.compile(r"does not have a host assigned|is waiting to start")
LONGEST_POINTER: Final = 300
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_NO_QUOTA: Final = re.compile(r"(exceeded|failed|status unknown for|insufficient) quota")
_MAY_NOT: Final = re.compile(r'User "[^"]*" cannot |^Forbidden$|anonymous')


def parsed(data: bytes) -> dict[str, Any]:
    """A JSON object. ClusterUnreachable: it is none, is cut off, or is nested too deeply."""
    try:
        found = orjson.loads(data)
        if data.count(b"{") + data.count(b"[") > DEEP:
            orjson.dumps(found)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise ClusterUnreachable(
            "The answer cannot be read: it is no JSON, is cut off or is nested too deeply."
        ) from error
    if not isinstance(found, dict):
        raise ClusterUnreachable("The answer is no JSON object.")
    return found


def error_for(status: int, headers: Mapping[str, str], body: bytes) -> ClusterError:
    """The error that an answer other than 2xx stands for."""
    said = _status(body)
    seconds = _seconds(headers.get("Retry-After")) or _seconds(_details(said).get("retryAfterSeconds"))
    return error_of(said, status=status, retry_after=seconds)


def error_of(said: Mapping[str, Any], *, status: int, retry_after: int | None = None) -> ClusterError:
    """The same for a `Status` object, such as a watch sends."""
    message = _message(said) or f"The API server answered {status}."
    if status in _DECIDE:
        return _DECIDE[status](said, message)
    if status in _BUSY or status >= 500:
        return ClusterBusy(message, retry_after=retry_after)
    if 300 <= status < 400:
        return ClusterRefused("The server answers with a redirect, which is not followed.")
    return _SAYS.get(status, ClusterRefused)(message)


def is_absent(status: int, body: bytes) -> bool:
    """404 of an object, not of a path that nobody serves."""
    return status == 404 and _named(_status(body))


def has_no_log(status: int, body: bytes) -> bool:
    """The answer for a pod that has written nothing yet: it is on no node, or its container has not begun."""
    return status == 204 or (status == 400 and bool(_NO_LOG.search(_message(_status(body)))))


def _forbidden(said: Mapping[str, Any], message: str) -> ClusterError:
    """403 is also what admission answers: only a missing right is a matter of the credential."""
    if _has_cause(said, "NamespaceTerminating") or NO_ACCOUNT in message:
        return NotSynced(message)
    if NOT_READY in message:
        return ClusterBusy(message)
    if _NO_QUOTA.search(message):
        return QuotaExceeded(message)
    if not said or _MAY_NOT.search(message):
        return NotAuthorized(message)
    return AdmissionDenied(message)


def _invalid(said: Mapping[str, Any], message: str) -> ClusterError:
    """Blame the object only where the API server itself says so: a proxy before it may answer 400 as well."""
    return Invalid(message, pointer=_pointer(said)) if said else ClusterRefused(message)


def _pointer(said: Mapping[str, Any]) -> str:
    """Return the first refused field (`spec.containers[0].image`) as a JSON pointer, "" where the server names none."""
    causes = _details(said).get("causes")
    first = causes[0] if isinstance(causes, list) and causes else None
    path = _CONTROL.sub("", str(first.get("field") or "")) if isinstance(first, dict) else ""
    steps = [key or index for key, index in _STEP.findall(path[:LONGEST_POINTER])]
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def _conflict(said: Mapping[str, Any], message: str) -> ClusterError:
    return ObjectConflict(message) if said.get("reason") == "AlreadyExists" else VersionConflict(message)


def _absent(said: Mapping[str, Any], message: str) -> ClusterError:
    return ClusterRefused(message) if _named(said) else NotServed("The cluster does not serve this kind.")


def _named(said: Mapping[str, Any]) -> bool:
    return bool(_details(said).get("name"))


def _has_cause(said: Mapping[str, Any], reason: str) -> bool:
    causes = _details(said).get("causes")
    return isinstance(causes, list) and any(isinstance(each, dict) and each.get("reason") == reason for each in causes)


def _details(said: Mapping[str, Any]) -> Mapping[str, Any]:
    details = said.get("details")
    return details if isinstance(details, dict) else {}


def _status(body: bytes) -> dict[str, Any]:
    """The `Status` in a body; empty when it holds something else, such as a proxy's page."""
    try:
        found = parsed(body)
    except ClusterUnreachable:
        return {}
    return found if found.get("kind") == "Status" else {}


def _message(said: Mapping[str, Any]) -> str:
    return _CONTROL.sub(" ", str(said.get("message") or ""))[:LONGEST_MESSAGE].strip()


def _seconds(value: Any) -> int | None:
    """Whole seconds of a wait that the server asks for; dates are not used by API servers."""
    text = str(value or "")
    return min(int(text), LONGEST_WAIT) if text.isascii() and text.isdecimal() and len(text) < 10 else None


_SAYS: Final[Mapping[int, type[ClusterError]]] = {
    401: NotAuthorized,
    410: VersionExpired,
}
_DECIDE: Final[Mapping[int, Callable[[Mapping[str, Any], str], ClusterError]]] = {
    400: _invalid,
    422: _invalid,
    403: _forbidden,
    404: _absent,
    409: _conflict,
}
_BUSY: Final = frozenset({408, 429})
