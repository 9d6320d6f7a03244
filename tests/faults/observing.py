"""The observer as it runs: its own loop, its threads and its pool, in this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clusters.watch.services.observer import Observer


@contextmanager
def observer() -> Iterator[Observer]:
    """One that observes every cluster inside. For tests marked `postgres`."""
    found = Observer(pause=0.2)
    thread = threading.Thread(target=found.run, name="the observer")
    thread.start()
    try:
        yield found
    finally:
        found.stop.set()
        thread.join()
