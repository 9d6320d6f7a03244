"""Settings that only an approved plan may change, where a second admin has to approve changes.

Every service that writes such a setting calls `check_direct_change`. A plan makes its change in `planned_change()`,
and so does a dry run, whose changes are taken back.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Check = Callable[[int | None], None]
_planned: Final[ContextVar[bool]] = ContextVar("planned", default=False)
_checks: Final[list[Check]] = []


def register_check(check: Check) -> None:
    """The app above knows where an approval is required; it gets the id of a department, None: of no department."""
    _checks[:] = [check]


@contextmanager
def planned_change() -> Iterator[None]:
    """Changes in here are those of a plan, or are taken back."""
    token = _planned.set(True)
    try:
        yield
    finally:
        _planned.reset(token)


def check_direct_change(department_id: int | None = None) -> None:
    """Conflict where a second admin has to approve the change, and no plan makes it. Check the permission first."""
    if not _planned.get():
        for check in _checks:
            check(department_id)
