"""What a report may be asked for: the filters, the bounds. Pure; a refusal names the field."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from clusters.samples import GRAINS
from portal.core.errors import Problem, Refused

PROJECT_NAME: Final = "projectName"
DEPARTMENT_NAME: Final = "departmentName"
CLUSTER_ID: Final = "clusterId"
FIELDS: Final = (PROJECT_NAME, DEPARTMENT_NAME, CLUSTER_ID)
LONGEST: Final = GRAINS[-1].kept
"""Nothing older is kept."""
YEARS: Final = range(2000, 3000)
EQUALS: Final = "=="


def refuse_unless_good(*, name: str, start: datetime, end: datetime, now: datetime) -> None:
    """Raises Refused with every problem."""
    problems = [*_of_name(name), *_of_time(start, end, now)]
    if problems:
        raise Refused(problems[0].message, code="invalid", problems=problems)


def named_places(filter_by: Sequence[str]) -> Mapping[str, str]:
    """`["projectName==llm"]` as names by field. Raises Refused at the part that is none, or stands there twice."""
    found: dict[str, str] = {}
    for number, clause in enumerate(filter_by):
        field, _, value = clause.partition(EQUALS)
        if field not in FIELDS or field in found or not _is_value(field, value):
            message = "Up to one of each is taken: projectName==, departmentName== and clusterId==, with a value."
            raise Refused.at(f"/filterBy/{number}", "bad_filter", message, allowed=FIELDS)
        found[field] = value
    return found


def _is_value(field: str, value: str) -> bool:
    if field != CLUSTER_ID:
        return 0 < len(value) <= 63 and value.isprintable()
    try:
        return bool(UUID(value))
    except ValueError:
        return False


def _of_name(name: str) -> Iterator[Problem]:
    if not name.strip() or not name.isprintable():
        yield Problem("/name", "bad_name", "A name is one line of printable characters.")


def _of_time(start: datetime, end: datetime, now: datetime) -> Iterator[Problem]:
    if start.year not in YEARS or end.year not in YEARS:
        yield Problem("/start", "out_of_range", "Years from 2000 to 2999 are taken.")
    elif not start < end:
        yield Problem("/end", "out_of_range", "It ends after it starts.")
    elif end - start > LONGEST:
        yield Problem("/start", "out_of_range", f"At most {LONGEST.days} days lie between start and end.")
    elif start > now + timedelta(seconds=1):
        yield Problem("/start", "out_of_range", "Nothing has been measured yet of a time that is to come.")
