"""What Rung answers when it cannot do what was asked. One tree; every error carries its status, code and problems.

RungError
├── BadRequest     400   unreadable syntax, bad filter, forged cursor
├── Denied         403   identity known, action not allowed on something it may see
├── Absent         404   absent or foreign: the same answer
├── Conflict       409   conflicts with the current state (in use, moved on, below current use)
├── Stale          412   changed since the caller read it
├── TooLarge       413   refused before parsing
├── Refused        422   a field is refused: pointer, code, allowed values
├── TooMany        429   limiter; carries `retry_after` seconds
└── Unavailable    503   database read-only, full or away
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NoReturn


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused field: where (JSON pointer, line of the text if known), why, and what would be right."""

    pointer: str
    code: str
    message: str
    allowed: tuple[str, ...] = ()
    line: int | None = None
    numbers: dict[str, str] = field(default_factory=dict)

    @property
    def placed_message(self) -> str:
        """The message after its place, for a text that one field holds as a whole."""
        line = f"line {self.line}: " if self.line else ""
        place = f"{self.pointer}: " if self.pointer else ""
        return f"{line}{place}{self.message}"

    def as_json(self) -> dict[str, Any]:
        """The problem as an API answer shows it; empty parts are left out."""
        return {key: value for key, value in asdict(self).items() if value not in (None, (), {})}


class RungError(Exception):
    """Base of everything Rung refuses. `message` is for people, `code` for programs."""

    status: ClassVar[int] = 500
    code: str = "error"
    recorded: bool = False
    """Does the audit trail tell of it already?"""

    def __init__(
        self, message: str, *, code: str | None = None, problems: Iterable[Problem] = (), retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.problems = tuple(problems)
        self.retry_after = retry_after

    @property
    def beside(self) -> Mapping[str, Any]:
        """Additional fields of the API's error answer."""
        return {}

    @classmethod
    def at(
        cls, pointer: str, code: str, message: str, *, allowed: Iterable[str] = (), **numbers: object
    ) -> "RungError":
        problem = Problem(pointer, code, message, tuple(allowed), numbers={k: str(v) for k, v in numbers.items()})
        return cls(message, code=code, problems=[problem])


class BadRequest(RungError):
    """Syntax that cannot be read."""

    status = 400
    code = "bad_request"


class Forbidden(RungError):
    """The actor may see the thing but not do this to it."""

    status = 403
    code = "denied"


class NotFound(RungError):
    """No such thing, or not yours: the same answer."""

    status = 404
    code = "not_found"

    def __init__(self, message: str = "Not found.", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)


class Conflict(RungError):
    """Conflicts with the current state."""

    status = 409
    code = "conflict"


class PreconditionFailed(RungError):
    """Changed since the caller read it, as `If-Match` says."""

    status = 412
    code = "stale"


class PayloadTooLarge(RungError):
    """Larger than Rung reads."""

    status = 413
    code = "too_large"


class ValidationFailed(RungError):
    """A field is refused."""

    status = 422
    code = "refused"


class TooManyRequests(RungError):
    """Too many tries; `retry_after` says when to come back."""

    status = 429
    code = "too_many"


class ServiceUnavailable(RungError):
    """The database cannot take the write now."""

    status = 503
    code = "unavailable"


def check_together(*checks: Callable[[], Any]) -> list[Any]:
    """What each of them answers. The first refusal is raised with the problems of the others: one answer says all."""
    answers = []
    for place, check in enumerate(checks, start=1):
        try:
            answers.append(check())
        except (BadRequest, ValidationFailed, Conflict) as error:
            raise_with(error, *checks[place:])
    return answers


def raise_with(error: RungError, *checks: Callable[[], object]) -> NoReturn:
    """Raise it with what these checks refuse besides, each reason once a field."""
    for check in checks:
        try:
            check()
        except (BadRequest, ValidationFailed, Conflict) as other:
            known = {(each.pointer, each.code) for each in error.problems}
            error.problems += tuple(each for each in other.problems if (each.pointer, each.code) not in known)
    raise error
