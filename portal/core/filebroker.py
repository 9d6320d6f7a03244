"""The filesystem broker of the demo, with one repair: a message appears whole or not at all.

kombu opens the message's file under its final name before it writes, and a consumer that reads it then dies.
"""

import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Writes under a name that no consumer looks for, then renames."""

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        name = f"{round(monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        final = Path(self.data_folder_out) / name
        draft = final.with_suffix(".draft")
        try:
            draft.write_text(str(dumps(message)), encoding="utf-8")  # type: ignore[no-untyped-call]  # kombu
            draft.replace(final)
        except OSError as error:
            raise ChannelError(f"Cannot add {name!r} to the broker's folder") from error


class Transport(filesystem.Transport):
    """What `filesystem://` means here."""

    Channel = Channel


def install() -> None:
    """Let every connection of this process to `filesystem://` use it."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
