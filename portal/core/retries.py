"""How tasks retry: only what a retry can help, a few times, further apart each time, with jitter.

The delays stay far below the broker's visibility timeout; after the last try the periodic sweep finds the row.
"""

from typing import Any


def transient(error: type[Exception], *, tries: int = 3) -> dict[str, Any]:
    """Arguments of `shared_task` that retry this error and nothing else."""
    return {
        "autoretry_for": (error,),
        "max_retries": tries,
        "retry_backoff": 1,
        "retry_backoff_max": 30,
        "retry_jitter": True,
    }
