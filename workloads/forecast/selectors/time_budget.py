"""How long the scheduler's model may take for one question of a page, a request or a task.

On a cluster that is over-committed many times a cycle can take minutes. The caller then reports that there is no
estimate, or returns what was found by then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeVar

from scheduling.state.workspace import OutOfTime, interrupted_when

Found = TypeVar("Found")

SECONDS = 3.0


def too_long(seconds: float) -> str:
    """Why there is no estimate after so many seconds."""
    return f"the estimate was stopped after {seconds:.0f} s because too many workloads compete on this cluster"


TOO_LONG: Final = too_long(SECONDS)


@contextmanager
def time_budget(seconds: float | None = None) -> Iterator[None]:
    """Raise OutOfTime from the model once so many seconds are over, or those of a budget around this one.

    None: SECONDS.
    """
    until = monotonic() + (SECONDS if seconds is None else seconds)
    with interrupted_when(lambda: monotonic() >= until):
        yield


def until_out_of_time(found: Iterator[Found], last: Found) -> Iterator[Found]:
    """What is found within the time budget, and `last` where that is over before all is."""
    try:
        yield from found
    except OutOfTime:
        yield last
