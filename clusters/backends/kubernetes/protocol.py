"""Requests to an API server (paths, update bodies), and its responses: objects, lists, watch events, errors.

The API server records who wrote which field (`metadata.managedFields`, paths in the FieldsV1 form). What is recorded
under our name and is no longer wanted goes. Everything else stays: what others wrote, and what no manager wrote because
the server filled it in after the request, such as a Job's selector. A default that counts as ours comes back by
itself.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from clusters.ports.gateway import (
    AdmissionDenied,
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Invalid,
    Kind,
    Manifest,
    NotAuthorized,
    NotServed,
    NotSynced,
    ObjectConflict,
    ObjectRef,
    QuotaExceeded,
    VersionConflict,
    VersionExpired,
    WatchEvent,
)
from clusters.ports.objects import MANAGED_BY, MANAGER, WHOLE_MAPS, is_managed

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


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object. ClusterUnreachable: it is none, is cut off, or is nested too deeply."""
    try:
        found = orjson.loads(data)
        if data.count(b"{") + data.count(b"[") > DEEP:
            orjson.dumps(found)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise ClusterUnreachable("Invalid response: not JSON, truncated, or nested too deeply.") from error
    if not isinstance(found, dict):
        raise ClusterUnreachable("Invalid response: not a JSON object.")
    return found


def error_for(status: int, headers: Mapping[str, str], body: bytes) -> ClusterError:
    """The error for an answer other than 2xx."""
    answer = _status(body)
    seconds = _seconds(headers.get("Retry-After")) or _seconds(_details(answer).get("retryAfterSeconds"))
    return error_of(answer, status=status, retry_after=seconds)


def error_of(answer: Mapping[str, Any], *, status: int, retry_after: int | None = None) -> ClusterError:
    """The same for a `Status` object, such as a watch sends."""
    message = _message(answer) or f"The API server returned status {status}."
    if status in _DECIDE:
        return _DECIDE[status](answer, message)
    if status in _BUSY or status >= 500:
        return ClusterBusy(message, retry_after=retry_after)
    if 300 <= status < 400:
        return ClusterRefused("The server redirects, which Rung does not follow.")
    return _SAYS.get(status, ClusterRefused)(message)


def is_absent(status: int, body: bytes) -> bool:
    """Whether a 404 is about an object, not about an unserved path."""
    return status == 404 and _named(_status(body))


def has_no_log(status: int, body: bytes) -> bool:
    """The answer for a pod that has written nothing yet: it is on no node, or its container has not begun."""
    return status == 204 or (status == 400 and bool(_NO_LOG.search(_message(_status(body)))))


def _forbidden(answer: Mapping[str, Any], message: str) -> ClusterError:
    """403 is also what admission answers: only a missing right is a matter of the credential."""
    if _has_cause(answer, "NamespaceTerminating") or NO_ACCOUNT in message:
        return NotSynced(message)
    if NOT_READY in message:
        return ClusterBusy(message)
    if _NO_QUOTA.search(message):
        return QuotaExceeded(message)
    if not answer or _MAY_NOT.search(message):
        return NotAuthorized(message)
    return AdmissionDenied(message)


def _invalid(answer: Mapping[str, Any], message: str) -> ClusterError:
    """Blame the object only where the API server itself says so: a proxy before it may answer 400 as well."""
    return Invalid(message, pointer=_pointer(answer)) if answer else ClusterRefused(message)


def _pointer(answer: Mapping[str, Any]) -> str:
    """Return the first refused field (`spec.containers[0].image`) as a JSON pointer, "" where the server names none."""
    causes = _details(answer).get("causes")
    first = causes[0] if isinstance(causes, list) and causes else None
    path = _CONTROL.sub("", str(first.get("field") or "")) if isinstance(first, dict) else ""
    steps = [key or index for key, index in _STEP.findall(path[:LONGEST_POINTER])]
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def _conflict(answer: Mapping[str, Any], message: str) -> ClusterError:
    return ObjectConflict(message) if answer.get("reason") == "AlreadyExists" else VersionConflict(message)


def _absent(answer: Mapping[str, Any], message: str) -> ClusterError:
    return ClusterRefused(message) if _named(answer) else NotServed("The cluster does not serve this kind.")


def _named(answer: Mapping[str, Any]) -> bool:
    return bool(_details(answer).get("name"))


def _has_cause(answer: Mapping[str, Any], reason: str) -> bool:
    causes = _details(answer).get("causes")
    return isinstance(causes, list) and any(isinstance(each, dict) and each.get("reason") == reason for each in causes)


def _details(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _status(body: bytes) -> dict[str, Any]:
    """The `Status` in a body; empty when it holds something else, such as a proxy's page."""
    try:
        found = parse_object(body)
    except ClusterUnreachable:
        return {}
    return found if found.get("kind") == "Status" else {}


def _message(answer: Mapping[str, Any]) -> str:
    return _CONTROL.sub(" ", str(answer.get("message") or ""))[:LONGEST_MESSAGE].strip()


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


EDGE: Final = 1000
"""Bytes in which a list's metadata stand."""
_CONTINUE: Final = re.compile(rb'"continue":"([A-Za-z0-9_=-]{1,800})"')


def without_managed_fields(found: Any) -> Manifest:
    """The object without the record of who owns which field. ClusterUnreachable: it is none.

    Of what is ours our own entries stay: an update prunes by them.
    """
    if not isinstance(found, dict) or not isinstance(metadata := found.get("metadata"), dict):
        raise ClusterUnreachable("Invalid response: not an object.")
    if not (_is_map(metadata.get("labels")) and _is_map(metadata.get("annotations"))):
        raise ClusterUnreachable("Invalid response: invalid labels.")
    fields = metadata.pop("managedFields", None)
    if isinstance(fields, list) and is_managed(found):
        metadata["managedFields"] = [each for each in fields if isinstance(each, dict) and _is_ours(each)]
    return found


def list_members(kind: Kind, page: Mapping[str, Any]) -> tuple[list[Manifest], str, str]:
    """A page's objects, where the next one begins, and the list's version. Members do not say what they are."""
    items, metadata = page.get("items") or [], page.get("metadata")
    if not isinstance(items, list) or not isinstance(metadata, dict):
        raise ClusterUnreachable("Invalid response: not a list.")
    found = [without_managed_fields(item) for item in items]
    for each in found:
        each["apiVersion"], each["kind"] = kind.api_version, kind.kind
    return found, str(metadata.get("continue") or ""), str(metadata.get("resourceVersion", ""))


def continuation(page: bytes) -> str:
    """The token of the next page as it seems to stand in the list's metadata, before anything is parsed; else empty.

    The metadata of a list are its first words or its last. A look-alike in an object is found out by `list_members`.
    """
    found = _CONTINUE.search(page[:EDGE]) or _CONTINUE.search(page[-EDGE:])
    return found[1].decode("ascii") if found else ""


def _is_map(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_ours(entry: dict[str, Any]) -> bool:
    return bool(entry.get("manager") == MANAGER)


TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


def events(lines: Iterable[bytes]) -> Iterator[WatchEvent]:
    """One event a line. VersionExpired and others: as the server says. ClusterUnreachable: a line cannot be read."""
    for line in lines:
        event = parse_object(line)
        type_, manifest = event.get("type"), event.get("object")
        if not isinstance(manifest, dict):
            raise ClusterUnreachable("Invalid watch event: no object.")
        if type_ == "ERROR":
            raise error_of(manifest, status=_code(manifest))
        if type_ not in TYPES:
            raise ClusterUnreachable("Invalid watch event.")
        yield WatchEvent(type_, without_managed_fields(manifest))


def _code(status: dict[str, Any]) -> int:
    code = status.get("code")
    return code if isinstance(code, int) else 500


OURS: Final = f"{MANAGED_BY}={MANAGER}"


def collection_path(kind: Kind, namespace: str = "") -> str:
    """Path of all objects of a kind, in one namespace or everywhere."""
    within = f"/namespaces/{_segment(namespace)}" if kind.namespaced and namespace else ""
    return f"{group_path(kind)}{within}/{kind.plural}"


def group_path(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def object_path(ref: ObjectRef) -> str:
    return f"{parent_path(ref)}/{_segment(ref.name)}"


def parent_path(ref: ObjectRef) -> str:
    """Path of the collection that an object is in. ClusterRefused: it names no namespace."""
    if ref.kind.namespaced and not ref.namespace:
        raise ClusterRefused(f"{ref.kind.kind} {ref.name} has no namespace.")
    return collection_path(ref.kind, ref.namespace)


def query_string(**parameters: str | int) -> str:
    """`?a=1&b=2` of what is not empty."""
    given: Mapping[str, str | int] = {name: value for name, value in parameters.items() if value != ""}
    return f"?{urlencode(given)}" if given else ""


def _segment(name: str) -> str:
    """A name as one segment of a path: never a way out of it."""
    if not name or name in {".", ".."} or "/" in name or "%" in name:
        raise Invalid(f"{name[:63]!r} is not a valid object name.")
    return quote(name, safe="")


_GONE: Final = object()


def update_body(manifest: Manifest, observed: Manifest, *, manager: str) -> Manifest:
    """The body of the update. `observed` is the whole object as it was read last, with our entries of managedFields."""
    body: Manifest = _maps(observed, manifest, _own_fields(observed, manager))
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        body["metadata"].pop(name, None)
        if name in observed["metadata"]:
            body["metadata"][name] = observed["metadata"][name]
    body["metadata"].pop("managedFields", None)  # absent means: keep the record
    return body


Fields = Mapping[str, Any]
"""FieldsV1: `f:<name>`, `k:<json of an item's keys>` and `v:<json of a value>`; `.` is the thing itself, {} a leaf."""

NOTHING: Final[Fields] = {}


def _own_fields(observed: Manifest, manager: str) -> Fields:
    """The fields of our last writes. Another version of the API may name fields differently: it is left out."""
    ours = (manager, "Update", observed["apiVersion"])
    for entry in observed["metadata"].get("managedFields") or ():
        found = (entry.get("manager"), entry.get("operation"), entry.get("apiVersion"))
        if found == ours and not entry.get("subresource"):
            return fields if isinstance(fields := entry.get("fieldsV1"), dict) else NOTHING
    return NOTHING


def _maps(live: Mapping[str, Any], desired: Mapping[str, Any], owned: Fields) -> dict[str, Any]:
    result = {}
    for key, value in live.items():
        mine = owned.get(f"f:{key}")
        merged = _both(key, value, desired[key], mine) if key in desired else _pruned(value, mine)
        if merged is not _GONE:
            result[key] = merged
    return result | {key: value for key, value in desired.items() if key not in live}


def _both(key: str, live: Any, desired: Any, owned: Fields | None) -> Any:
    """A leaf of ours is written whole: a plain value, or a map or list that the API takes as one value."""
    is_leaf = owned is not None and not owned
    if key not in WHOLE_MAPS and not is_leaf:
        if isinstance(live, Mapping) and isinstance(desired, Mapping):
            return _maps(live, desired, owned or NOTHING)
        if isinstance(live, list) and isinstance(desired, list):
            return _lists(live, desired, owned or NOTHING)
    return desired


def _lists(live: list[Any], desired: list[Any], owned: Fields) -> list[Any]:
    """Items that have keys are merged by them, and foreign ones stay behind ours; any other list is wholly ours."""
    if any(name.startswith("v:") for name in owned):
        return desired + [each for each in _foreign(live, owned) if each not in desired]
    records = _records(owned)
    if not records:
        return desired
    names = records[0][0].keys()
    pairs = [(each, _same(each, live, names)) for each in desired]
    ours = [each if same is None else _maps(same, each, _record(same, records)) for each, same in pairs]
    taken = [same for _, same in pairs if same is not None]
    return ours + [each for each in _foreign(live, owned) if not any(each is same for same in taken)]


def _pruned(value: Any, owned: Fields | None) -> Any:
    """What is left of a live value that is not wanted any more."""
    if owned is None:
        return value
    left: Any = None
    if isinstance(value, Mapping) and owned:
        pruned = ((key, _pruned(each, owned.get(f"f:{key}"))) for key, each in value.items())
        left = {key: each for key, each in pruned if each is not _GONE}
    elif isinstance(value, list) and owned:
        left = list(_foreign(value, owned))
    return left or _GONE


def _foreign(live: list[Any], owned: Fields) -> Iterator[Any]:
    """Items that other writers put into the list."""
    records, values = _records(owned), [json.loads(name[2:]) for name in owned if name.startswith("v:")]
    for item in live:
        if item not in values and "." not in _record(item, records):
            yield item


def _records(owned: Fields) -> list[tuple[dict[str, Any], Fields]]:
    """Keys and fields of every item of ours."""
    return [(json.loads(name[2:]), fields) for name, fields in owned.items() if name.startswith("k:")]


def _record(item: Any, records: list[tuple[dict[str, Any], Fields]]) -> Fields:
    if isinstance(item, Mapping):
        for keys, fields in records:
            if all(item.get(name) == value for name, value in keys.items()):
                return fields
    return NOTHING


def _same(desired: Any, live: list[Any], names: Any) -> Any:
    """The live item of the same keys. A key that ours leaves out (a port's protocol) was filled in by the server."""
    given = {name: desired[name] for name in names if name in desired} if isinstance(desired, Mapping) else {}
    if not given:
        return None
    found = [each for each in live if isinstance(each, Mapping) and given.items() <= each.items()]
    return found[0] if len(found) == 1 else None
