"""How an error is said: one line, then field by field what was wrong and what would be right; or JSON where asked."""

import sys
from collections.abc import Mapping
from typing import Any

from rung_cli.errors import CliError, Refused
from rung_cli.notes import note, painted, plain
from rung_cli.output import Format, as_json


def tell(error: CliError, chosen: Format) -> None:
    """On stderr."""
    if chosen is Format.JSON:
        sys.stderr.write(as_json(error.as_json()) + "\n")
        return
    where = f"{error.where}: " if isinstance(error, Refused) and error.where else ""
    problems = error.problems if isinstance(error, Refused) else []
    # Where each field says what is wrong with it, the whole's message would say the first of that once more.
    message = "refused." if problems and all(each.get("pointer") for each in problems) else error.message
    sys.stderr.write(f"{painted('rung:', '31')} {plain(where + message)}\n")
    for problem in problems:
        _tell_problem(problem, error.message)
    if error.hint:
        note(f"  {error.hint}")


def _tell_problem(problem: Mapping[str, Any], known: str) -> None:
    line = f"line {problem['line']}, " if problem.get("line") else ""
    pointer, message = str(problem.get("pointer") or ""), str(problem.get("message") or "")
    if pointer or line or message != known:
        note(f"  {line}{pointer or 'the whole'}: {message}")
    if numbers := problem.get("numbers"):
        note("    " + ", ".join(f"{name} {value}" for name, value in numbers.items()))
    if allowed := problem.get("allowed"):
        note(f"    allowed: {', '.join(map(str, allowed))}")
