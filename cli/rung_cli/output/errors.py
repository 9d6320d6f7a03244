"""How an error is said: one line, then field by field what was wrong and what would be right; or JSON where asked."""

import sys

from rung_cli.errors import ApiError, CliError
from rung_cli.output.formats import Format, as_json
from rung_cli.output.stderr import colored, note, plain
from rung_cli.output.submission import requested


def print_error(error: CliError, chosen: Format) -> None:
    """On stderr."""
    if chosen is Format.JSON:
        sys.stderr.write(as_json(error.as_json()) + "\n")
        return
    where = f"{error.where}: " if isinstance(error, ApiError) and error.where else ""
    problems = _problems(error) if isinstance(error, ApiError) else {}
    # The message of the whole often is that of a problem, which is printed with its place.
    repeated = any(message in error.message for message in problems)
    sys.stderr.write(f"{colored('rung:', '31')} {plain(where + ('refused.' if repeated else error.message))}\n")
    for message, (places, allowed) in problems.items():
        note(f"  {'; '.join(places)}: {message}" if places else f"  {message}")
        if any(each not in message for each in allowed):
            note(f"    Allowed: {', '.join(allowed)}")
    if isinstance(error, ApiError):
        _print_forecast(error.answer.get("forecast"))
    if error.hint:
        note(f"  {error.hint}")


def _problems(error: ApiError) -> dict[str, tuple[list[str], list[str]]]:
    """What is wrong, once each: the places where it is, and what is allowed there."""
    found = dict[str, tuple[list[str], list[str]]]()
    for problem in error.problems:
        places, allowed = found.setdefault(str(problem.get("message") or ""), ([], []))
        pointer = str(problem.get("pointer") or "")
        line = f"line {problem['line']}" if problem.get("line") else ""
        if place := ", ".join(filter(None, (line, error.flags.get(pointer, pointer)))):
            places.append(place)
        allowed += [text for each in problem.get("allowed") or () if (text := str(each)) not in allowed]
    return found


def _print_forecast(forecast: object) -> None:
    """The answer of a refused dry run has how much all pods request, and what would start."""
    if isinstance(forecast, dict):
        if wanted := forecast.get("requested"):
            note(f"  Requests: {requested(wanted)}")
        for each in forecast.get("alternatives") or []:
            note(f"  Alternative: {each['words']}")
