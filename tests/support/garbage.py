"""Collect garbage less often: with the thresholds of Python it is a tenth of the time of tests without processes."""

import gc


def pytest_configure() -> None:
    """A full collection still comes, since what it frees holds connections and files."""
    gc.set_threshold(10_000, 20, 10)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: no collection needs to visit them."""
    gc.collect()
    gc.freeze()
