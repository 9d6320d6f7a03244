"""What is wrong with a document that somebody sent: every problem with its JSON pointer, its line, and the remedy.

DocumentRefused
├── 400   the text is no YAML or JSON at all
├── 413   larger than is read
└── 422   a field is refused
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


def visible(text: object, longest: int = 80) -> str:
    """Attacker's text made fit for a message: short, storable, and without characters that hide or reorder others."""
    if isinstance(text, int) and text.bit_length() > 256:
        return f"a number of {text.bit_length()} bits"
    shown = str(text)[: longest + 1]
    shown = shown if len(shown) <= longest else f"{shown[:longest]}…"
    if shown.isascii() and shown.isprintable():  # nearly always, and asked for every key of a document
        return shown
    return "".join(_escaped(char) if unicodedata.category(char)[0] == "C" else char for char in shown)


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 126 else f"\\x{ord(char):02x}"


def token(key: object) -> str:
    """One JSON pointer token (RFC 6901), shown safely."""
    if isinstance(key, str) and len(key) <= 120 and key.isascii() and key.isidentifier():
        return key  # nearly always
    return visible(key, 120).replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused field. `document` counts from zero within a file of several; `allowed` is what would be right."""

    pointer: str
    code: str
    message: str
    line: int | None = None
    allowed: tuple[str, ...] = ()
    document: int = 0

    def as_json(self) -> dict[str, Any]:
        """The problem as an API answer shows it; empty parts are left out."""
        shown = {key: value for key, value in asdict(self).items() if value not in (None, (), "", 0)}
        return {"pointer": self.pointer, **shown}


class DocumentRefused(Exception):
    """A document that is not taken. `status` is 400, 413 or 422; `problems` is never empty."""

    def __init__(self, status: int, problems: Iterable[Problem]) -> None:
        self.status = status
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{each.pointer or '/'}: {each.message}" for each in self.problems[:3]))


def refused(status: int, code: str, message: str, *, pointer: str = "", line: int | None = None) -> DocumentRefused:
    """A refusal with a single problem, such as a parser's."""
    return DocumentRefused(status, [Problem(pointer, code, message, line)])


def nowhere(_pointer: str) -> int | None:
    """The line of a pointer in something that had no text."""
    return None
