"""Changes of workloads, from the portal's event streams, and by polling where these are silent.

Each stream has a thread of its own, and everything that is asked for has one together, so a caller waits
exactly as long as it asks for. A stream that breaks goes on where it was. One that never sent an event (an older
portal, a proxy that keeps it back, one too many) is not tried again; nothing is missed, since looking went on.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlencode

from rung_cli.errors import ApiError, Unreachable
from rung_cli.http.client import Api
from rung_cli.http.transport import StreamEvent

DELETED: Final = "Deleted"
FIRST: Final = 0.5
LONGEST: Final = 5.0
STREAMED: Final = 8
"""Workloads that are followed by streams, of which a portal keeps ten open for one reader; the others are polled."""

CHANGES: Final = frozenset({"ready", "change", "reset"})
"""Events of the change feed after which a list may be another one."""
TOGETHER: Final = 0.3
"""Seconds that changes are waited for after the first, so that many at once are one look."""
UNTOLD: Final = 60.0
"""Seconds after which the list is read without a change: changes do not include allocated GPUs and times."""

Row = dict[str, Any]


@dataclass(eq=False, slots=True)
class WatchedWorkload:
    """One workload. `open`: its stream is being read; `speaks`: and has sent an event; `spoke`: some stream had."""

    now: Row
    streamed: bool
    open: bool = False
    speaks: bool = False
    spoke: bool = False
    last: str = ""
    """Id of the last event: where the next stream goes on."""


class Watch:
    """Of several workloads at once."""

    def __init__(self, api: Api, known: Sequence[Row]) -> None:
        self._api = api
        self._lives = [WatchedWorkload(_as_seen(each), streamed=place < STREAMED) for place, each in enumerate(known)]
        self._news = SimpleQueue[Row | Exception]()
        self._looking = False
        for life in self._lives:
            self._news.put(life.now)

    def next(self, timeout: float | None) -> Row | None:
        """A workload as it is now, or as it was in between; None when the time is over.

        The first ones are those that it was made with. What keeps looking from going on is raised.
        """
        if self._news.empty() and not self._looking and (timeout is None or timeout > 0):
            self._looking = True
            _begin(self._look_on)
        try:
            found = self._news.get(timeout=None if timeout is None else max(0.0, timeout))
        except Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def leave(self, workload_id: str) -> None:
        """Ask for it no more."""
        self._lives = [each for each in self._lives if each.now["id"] != workload_id]

    def _look_on(self) -> None:
        """For ever: open a stream where there is none, and look where none speaks, a little less often each time."""
        pause = FIRST
        try:
            while True:
                for life in self._lives:
                    if life.streamed and not life.open:
                        life.open = True
                        _begin(self._listen, life, self._api.token())
                time.sleep(pause)
                pause = min(pause * 1.5, LONGEST)
                for life in self._lives:
                    if not life.speaks:
                        self._news.put(fetch_workload(self._api, life.now))
        except Exception as error:  # whatever it is, it is for the one who waits
            self._news.put(error)

    def _listen(self, life: WatchedWorkload, token: str) -> None:
        """One stream, until it ends."""
        try:
            for event in self._api.wire.events(f"v1/workloads/{life.now['id']}/stream", token, life.last):
                life.speaks = life.spoke = True
                self._hear(life, event)
        except (Unreachable, ValueError) as error:  # looking goes on
            self._api.wire.debug(f"the stream of {life.now['name']} ended: {error}")
        finally:
            life.streamed = life.streamed and life.spoke
            life.speaks = life.open = False

    def _hear(self, life: WatchedWorkload, event: StreamEvent) -> None:
        """A phase that it has, or had meanwhile, is news; after the end of a life there is nothing more to hear."""
        life.last = event.id or life.last
        data = json.loads(event.data) if event.data else {}
        match event.event, data:
            case "phase", {"phase": phase, "phaseReason": reason, "phaseMessage": message}:
                self._say(life, phase, reason, message)
            case "timeline", {"type": "phase", "phase": phase, "reason": reason, "message": message}:
                self._say(life, phase, reason, message)
            case "end", {"reason": reason}:
                life.streamed = reason not in {"ended", "deleted"}
                if reason == "deleted":
                    self._say(life, DELETED)
            case _:  # other entries of its history
                pass

    def _say(self, life: WatchedWorkload, phase: str, reason: str | None = "", message: str = "") -> None:
        life.now = {**life.now, "phase": phase, "phaseReason": reason, "phaseMessage": message}
        self._news.put(life.now)


class ChangeFeed:
    """Says when workloads of a project, or any, have changed: by the portal's change feed, by the clock without one."""

    def __init__(self, api: Api, project: str, interval: float) -> None:
        query = urlencode({"filterBy": f"projectName=={project}"}) if project else ""
        self._api, self._path, self._interval = api, f"v1/workloads/stream?{query}".rstrip("?"), interval
        self._speaks, self._changed = False, Event()
        _begin(self._follow)

    def wait(self) -> None:
        """Until there is something to look at."""
        if self._changed.wait(UNTOLD if self._speaks else self._interval):
            time.sleep(TOGETHER)
        self._changed.clear()

    def _follow(self) -> None:
        """Stream after stream, each from where the last one ended; none more after one that never said anything."""
        last, spoke = "", True
        while spoke:
            spoke = False
            try:
                for event in self._api.wire.events(self._path, self._api.token(), last):
                    spoke = self._speaks = True
                    last = event.id or last
                    if event.event in CHANGES:
                        self._changed.set()
            except (Unreachable, ApiError) as error:  # looking goes on
                self._api.wire.debug(f"the change feed ended: {error}")
            finally:
                self._speaks = False
            if spoke:
                self._changed.set()
                time.sleep(self._interval)


def fetch_workload(api: Api, known: Mapping[str, Any]) -> Row:
    """The workload now; deleted counts as a phase."""
    try:
        return _as_seen(api.get(f"v1/workloads/{known['id']}"))
    except ApiError as refusal:
        if refusal.status != 404:
            raise
        return {**known, "phase": DELETED}


def _as_seen(now: Row) -> Row:
    return {**now, "phase": DELETED} if now.get("deletedAt") else now


def _begin(work: Callable[..., None], *given: Any) -> None:
    """In a thread that ends with the command."""
    Thread(target=work, args=given, daemon=True).start()
