"""Every error a command can end with, and its exit code.

CliError
├── UsageError    64   bad flags, bad configuration, something unsafe that was not done
├── NotSignedIn    3   no credentials for this address, or they are no longer valid
├── ApiError       1   the server said no: its message, and the fields with what would be right
├── Cancelled      1   the user declined; nothing was sent
├── Unreachable    4   no connection, no answer in time, 429 or 5xx after every retry
└── TimedOut       5   what was waited for did not come in time
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """What a script can tell from `$?`."""

    OK = 0
    REFUSED = 1
    CHANGES = 2
    SIGNED_OUT = 3
    UNREACHABLE = 4
    TIMEOUT = 5
    USAGE = 64
    INTERNAL = 70
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "success; the condition is met",
    ExitCode.REFUSED: "rejected by the server, or the condition can no longer be met",
    ExitCode.CHANGES: "a plan has changes (used for nothing else)",
    ExitCode.SIGNED_OUT: "not signed in, or the session has expired",
    ExitCode.UNREACHABLE: "the server is not reachable, busy or failing after all retries",
    ExitCode.TIMEOUT: "`--timeout` exceeded",
    ExitCode.USAGE: "invalid command or configuration; nothing was sent",
    ExitCode.INTERNAL: "internal error of rung",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}


class CliError(Exception):
    """Base of everything a command ends with. `hint` says what to do about it."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_json(self) -> dict[str, Any]:
        """In the shape of the server's own errors; `code` is the exit code here."""
        return {"code": int(self.exit_code), "message": self.message, "details": type(self).__name__}


class UsageError(CliError):
    """Nothing was sent."""

    exit_code = ExitCode.USAGE


class NotSignedIn(CliError):
    """Sign in first."""

    exit_code = ExitCode.SIGNED_OUT


class Unreachable(CliError):
    """No usable answer."""

    exit_code = ExitCode.UNREACHABLE


class TimedOut(CliError):
    """It did not come in time."""

    exit_code = ExitCode.TIMEOUT


class Cancelled(CliError):
    """The answer to a question was no."""

    exit_code = ExitCode.REFUSED


class ApiError(CliError):
    """The server's "no": status, message, code for programs, and one problem per field.

    `where` names the document, `flags` the flag behind a field's pointer, where there are such.
    """

    exit_code = ExitCode.REFUSED

    def __init__(
        self, message: str, *, status: int = 0, answer: Mapping[str, Any] | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.answer = dict(answer or {})
        self.where = ""
        self.flags: Mapping[str, str] = {}

    @property
    def problems(self) -> list[Mapping[str, Any]]:
        """One per refused field."""
        found = self.answer.get("errors") or []
        return [each for each in found if isinstance(each, Mapping)]

    def as_json(self) -> dict[str, Any]:
        """What the server said, as it said it."""
        own = {"code": self.status, "message": self.message, "details": ""}
        return {**own, **self.answer, **({"document": self.where} if self.where else {})}
