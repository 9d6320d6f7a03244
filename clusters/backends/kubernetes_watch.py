"""From the lines of a watch to events. Pure, but for the stream it reads."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from clusters.backends.kubernetes_answers import error_of, parsed
from clusters.backends.kubernetes_objects import tidied
from clusters.errors import ClusterUnreachable
from clusters.ports import WatchEvent

TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


def events(lines: Iterable[bytes]) -> Iterator[WatchEvent]:
    """One event a line. VersionExpired and others: as the server says. ClusterUnreachable: a line cannot be read."""
    for line in lines:
        event = parsed(line)
        type_, manifest = event.get("type"), event.get("object")
        if not isinstance(manifest, dict):
            raise ClusterUnreachable("A line of the watch holds no object.")
        if type_ == "ERROR":
            raise error_of(manifest, status=_code(manifest))
        if type_ not in TYPES:
            raise ClusterUnreachable("A line of the watch is no event.")
        yield WatchEvent(type_, tidied(manifest))


def _code(status: dict[str, Any]) -> int:
    code = status.get("code")
    return code if isinstance(code, int) else 500
