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
    if isinstance(error, Refused):
        for problem in problems:
            _tell_problem(problem, error)
        _tell_better(error.answer.get("forecast"))
    if error.hint:
        note(f"  {error.hint}")


def _tell_problem(problem: Mapping[str, Any], error: Refused) -> None:
    line = f"line {problem['line']}, " if problem.get("line") else ""
    pointer, message = str(problem.get("pointer") or ""), str(problem.get("message") or "")
    if pointer or line or message != error.message:
        note(f"  {line}{error.flags.get(pointer, pointer) or 'the whole'}: {message}")
    if numbers := problem.get("numbers"):
        note("    " + ", ".join(f"{name} {value}" for name, value in numbers.items()))
    allowed = problem.get("allowed") or []
    if any(str(each) not in message for each in allowed):
        note(f"    allowed: {', '.join(map(str, allowed))}")


def _tell_better(forecast: object) -> None:
    """A refused rehearsal knows what would start."""
    if isinstance(forecast, dict):
        for each in forecast.get("alternatives") or []:
            note(f"  Instead: {each['words']}")
