"""What is said beside the answer, on stderr: warnings, progress, questions. Never a secret or an escape sequence."""

import os
import re
import sys
from collections.abc import Iterable
from typing import Final

from rung_cli.errors import Cancelled, UsageError

_STRING: Final = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|\x1b|$)"
_SEQUENCE: Final = re.compile(_STRING + r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?")
UNSEEN: Final = "\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
"""What acts on a terminal, turns the order of what is read, or is no character; for a class of a pattern."""
_CONTROL: Final = re.compile(f"[\x00-\x08\x0b-\x1f{UNSEEN}]")


def plain(text: str) -> str:
    """What a server said, without anything that acts on a terminal. Line ends and tabs stay."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def note(text: str) -> None:
    """One line of progress."""
    _say(plain(text))


def warn(text: str) -> None:
    """Something a person should see, though the command goes on."""
    _say(f"{colored('warning:', '33')} {plain(text)}")


def progress(text: str) -> None:
    """How far it is, in place of what was said before, where a terminal may move its cursor; empty: it is over."""
    if colours(sys.stderr):
        sys.stderr.write(f"\r\x1b[2K{plain(text)}")
        sys.stderr.flush()


def confirm(lines: Iterable[str], question: str, *, hint: str, declined: str) -> None:
    """Ask on a terminal what --yes answers in a script. declined: the text of Cancelled if the user says no.

    UsageError without a terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError("Cannot ask for confirmation: not a terminal.", hint=hint)
    for each in lines:
        note(each)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Cancelled(declined)


def colored(text: str, code: str) -> str:
    """Coloured where stderr is a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if colours(sys.stderr) else text


def colours(stream: object) -> bool:
    """Only on a terminal, and not where `NO_COLOR` or a dumb terminal says otherwise."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and bool(getattr(stream, "isatty", lambda: False)())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
