"""How an error is said: one line, then field by field what was wrong and what would be right; or JSON where asked."""

import sys
from collections.abc import Mapping
from typing import Any

from rung_cli.errors import ApiError, CliError
from rung_cli.output.formats import Format, as_json
from rung_cli.output.stderr import colored, note, plain


def print_error(error: CliError, chosen: Format) -> None:
    """On stderr."""
    if chosen is Format.JSON:
        sys.stderr.write(as_json(error.as_json()) + "\n")
        return
    where = f"{error.where}: " if isinstance(error, ApiError) and error.where else ""
    problems = error.problems if isinstance(error, ApiError) else []
    # Where each field says what is wrong with it, the whole's message would say the first of that once more.
    message = "refused." if problems and all(each.get("pointer") for each in problems) else error.message
    sys.stderr.write(f"{colored('rung:', '31')} {plain(where + message)}\n")
    if isinstance(error, ApiError):
        for problem in problems:
            _print_problem(problem, error)
        _print_alternatives(error.answer.get("forecast"))
    if error.hint:
        note(f"  {error.hint}")


def _print_problem(problem: Mapping[str, Any], error: ApiError) -> None:
    line = f"line {problem['line']}, " if problem.get("line") else ""
    pointer, message = str(problem.get("pointer") or ""), str(problem.get("message") or "")
    if pointer or line or message != error.message:
        note(f"  {line}{error.flags.get(pointer, pointer) or 'the whole'}: {message}")
    if numbers := problem.get("numbers"):
        note("    " + ", ".join(f"{name} {value}" for name, value in numbers.items()))
    allowed = problem.get("allowed") or []
    if any(str(each) not in message for each in allowed):
        note(f"    Allowed: {', '.join(map(str, allowed))}")


def _print_alternatives(forecast: object) -> None:
    """A refused rehearsal knows what would start."""
    if isinstance(forecast, dict):
        for each in forecast.get("alternatives") or []:
            note(f"  Alternative: {each['words']}")
