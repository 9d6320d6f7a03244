"""What is wrong with a tenant's document: every problem with its JSON pointer, its line, and the remedy.

IntakeRefused
├── 400   the text is no YAML or JSON at all
├── 413   larger than is read
└── 422   a field is refused
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

MOST_PROBLEMS: Final = 50
BIDI_CONTROLS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: object, longest: int = 80) -> str:
    """Attacker's text made fit for a message: short, storable, and without characters that hide or reorder others."""
    if isinstance(text, int) and text.bit_length() > 256:
        return f"a number of {text.bit_length()} bits"
    shown = str(text)[: longest + 1]
    shown = shown if len(shown) <= longest else f"{shown[:longest]}…"
    return "".join(_escaped(char) if unicodedata.category(char)[0] == "C" else char for char in shown)


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 126 else f"\\x{ord(char):02x}"


def token(key: object) -> str:
    """One JSON pointer token (RFC 6901), shown safely."""
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


class IntakeRefused(Exception):
    """A document that is not taken. `status` is 400, 413 or 422; `problems` is never empty."""

    def __init__(self, status: int, problems: Iterable[Problem]) -> None:
        self.status = status
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{each.pointer or '/'}: {each.message}" for each in self.problems[:3]))


def refused(status: int, code: str, message: str, *, pointer: str = "", line: int | None = None) -> IntakeRefused:
    """A refusal with a single problem, such as a parser's."""
    return IntakeRefused(status, [Problem(pointer, code, message, line)])


def nowhere(_pointer: str) -> int | None:
    """The line of a pointer in something that had no text."""
    return None


@dataclass
class Report:
    """Collects the problems and warnings of one document until there are too many to be of use."""

    line_of: Callable[[str], int | None] = nowhere
    document: int = 0

    def __post_init__(self) -> None:
        self._problems: list[Problem] = []
        self._warnings: list[str] = []

    def add(self, pointer: str, code: str, message: str, allowed: Iterable[str] = ()) -> None:
        """Note one problem; the fiftieth ends the reading."""
        problem = Problem(pointer, code, message, self.line_of(pointer), tuple(allowed), self.document)
        if problem not in self._problems:
            self._problems.append(problem)
        if len(self._problems) >= MOST_PROBLEMS:
            raise IntakeRefused(422, self._problems)

    def warn(self, message: str) -> None:
        """Note what was changed or left out without refusing it."""
        if message not in self._warnings and len(self._warnings) < MOST_PROBLEMS:
            self._warnings.append(message)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    def settle(self) -> None:
        """Refuse the document if anything was noted."""
        if self._problems:
            raise IntakeRefused(422, self._problems)
