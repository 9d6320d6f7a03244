"""Cron schedules and time zones as the API server reads them: five fields or a word, and a zone it can load."""

import re
from functools import cache
from typing import Any, Final
from zoneinfo import available_timezones

from workloads.intake.problems import visible
from workloads.intake.rules import ABSENT, Place, text

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Each field: its name, its lowest and highest value, and the words for values.
FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 6, DAYS),
)
WORDS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_PART: Final = re.compile(r"(?P<first>\*|\?|[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?(?:/(?P<step>[1-9][0-9]{0,3}))?")
_written = text(100, r"[-0-9A-Za-z*/,?@ ]+", "a cron schedule such as 0 3 * * *", shortest=1)
_zone = text(64, r"[A-Za-z0-9_+/-]+", "a time zone such as Europe/Paris")


def schedule(value: Any, place: Place) -> Any:
    """Five fields, or a word such as @daily."""
    written = _written(value, place)
    if written is ABSENT or written in WORDS:
        return written
    parts = written.split()
    if len(parts) != len(FIELDS):
        return place.refuse("bad_schedule", f"A schedule has five fields such as 0 3 * * *; found {len(parts)}.", WORDS)
    for given, (name, least, most, words) in zip(parts, FIELDS, strict=True):
        if not all(_fits(each, least, most, words) for each in given.lower().split(",")):
            return place.refuse("bad_schedule", f"{visible(given)!r} is no {name} from {least} to {most}.")
    return written


def time_zone(value: Any, place: Place) -> Any:
    """A zone of the time zone database, by its exact name."""
    name = _zone(value, place)
    known = _zones()
    if name is ABSENT or not known or name in known:
        return name
    return place.refuse("bad_time_zone", f"{visible(name)!r} is no time zone such as Europe/Paris.")


@cache
def _zones() -> frozenset[str]:
    """Empty where the machine has no such database: then the API server judges."""
    return frozenset(available_timezones())


def _fits(part: str, least: int, most: int, words: tuple[str, ...]) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    if found["first"] in "*?":
        return found["last"] is None
    first = _number(found["first"], least, words)
    last = _number(found["last"], least, words) if found["last"] else first
    return first is not None and last is not None and least <= first <= last <= most


def _number(written: str, least: int, words: tuple[str, ...]) -> int | None:
    if written in words:
        return words.index(written) + least
    return int(written) if written.isdecimal() and len(written) < 4 else None
