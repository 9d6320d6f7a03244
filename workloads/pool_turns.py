"""When the next of a workload's node pools has its turn. Pure: moments in, an answer out.

Run:ai's order: the pools of a workload are tried in the order it names them, until one lets it start.
"""

from datetime import datetime, timedelta
from typing import Final

PATIENCE: Final = timedelta(seconds=30)
"""So long it is left in a pool that, by the model, does not let it start."""
DOUBT: Final = timedelta(minutes=5)
"""So long it is left where, by the model, it starts: longer than victims usually take to end."""


def its_turn_is_over(*, waited: timedelta, starts_here: bool) -> bool:
    """Has its present pool had the time it gets?"""
    return waited >= (DOUBT if starts_here else PATIENCE)


def waited_in_pool(*, now: datetime, waits_since: datetime, pool_since: datetime | None) -> timedelta:
    """Since the later of: it came to this pool, it began to wait."""
    return now - max(waits_since, pool_since or waits_since)
