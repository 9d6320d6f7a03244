"""Exit codes. Scripts depend on them: none is ever given another meaning."""

from enum import IntEnum


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
    ExitCode.OK: "done; what was waited for has come",
    ExitCode.REFUSED: "the server said no, or what was waited for can no longer come",
    ExitCode.CHANGES: "a plan holds changes; nothing else ever ends with 2",
    ExitCode.SIGNED_OUT: "not signed in, or no longer",
    ExitCode.UNREACHABLE: "the server cannot be reached, is busy or broken, after every retry",
    ExitCode.TIMEOUT: "the time of `--timeout` is over",
    ExitCode.USAGE: "the command or its configuration is wrong; nothing was sent",
    ExitCode.INTERNAL: "a defect of rung itself",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
