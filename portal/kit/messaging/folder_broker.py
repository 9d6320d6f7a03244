"""The demo's broker: kombu's transport over folders, with files that appear whole or not at all.

kombu's own writes into the file that readers already see; a reader that is faster than the writer finds an empty
message, and its worker ends. Here a file is written under a hidden name and renamed, and taken by renaming too.
"""

import fcntl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps, loads


def install() -> None:
    """Use it wherever a broker's address begins with `filesystem://`."""
    TRANSPORT_ALIASES["filesystem"] = "portal.kit.messaging.folder_broker:FolderTransport"


class FolderChannel(filesystem.Channel):
    """A channel whose files are written and taken atomically."""

    # kombu's two base classes disagree about the name of the message.
    def _put(self, queue: str, payload: Any, **_kwargs: Any) -> None:  # type: ignore[override]
        write_atomically(Path(self.data_folder_out) / f"{time.time_ns()}_{uuid.uuid4()}.{queue}.msg", dumps(payload))

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        for file in sorted(Path(self.data_folder_in).iterdir()):
            if file.name.partition(".")[2] == f"{queue}.msg" and (text := take(file)) is not None:
                return loads(text)
        raise Empty

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        with locked(self.control_folder / ".lock"):
            table = {tuple(entry) for entry in self.get_table(exchange)}
            table.add((routing_key or "", pattern or "", queue or ""))
            write_atomically(self._exchange_file(exchange), dumps(sorted(table)))


class FolderTransport(filesystem.Transport):
    """kombu's transport with our channel."""

    Channel = FolderChannel


def write_atomically(file: Path, text: str) -> None:
    """The file appears with all of its text."""
    hidden = file.with_name(f".{uuid.uuid4().hex}")
    hidden.write_text(text)
    hidden.replace(file)


def take(file: Path) -> str | None:
    """The text of a file that is now gone; None if another worker took it."""
    taken = file.with_name(f".{uuid.uuid4().hex}")
    try:
        file.rename(taken)
    except FileNotFoundError:
        return None
    text = taken.read_text()
    taken.unlink()
    return text


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time."""
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
