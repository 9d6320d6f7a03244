"""What is wrong with a tenant's document: every problem with its JSON pointer, its line, and the remedy."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from portal.core.strict.problems import DocumentRefused as IntakeRefused
from portal.core.strict.problems import Problem, nowhere, refused, token, visible

__all__ = ["BIDI_CONTROLS", "MOST_PROBLEMS", "IntakeRefused", "Problem", "Report", "refused", "token", "visible"]

MOST_PROBLEMS: Final = 50
BIDI_CONTROLS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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
