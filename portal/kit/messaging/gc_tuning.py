"""Python's garbage collector in the processes of the portal."""

import gc


def collect_rarely() -> None:
    """For every process, as the first step of `portal.celery`: what it loads stays, and loading takes a tenth less.

    A young collection holds every thread while it visits what is new: 10,000 objects take 1 to 2 ms. Where other
    processes fill the caches of the machine they take 6 to 8 ms, and 50,000 ten times as long. Older objects are
    visited after 4 million new ones.
    """
    gc.set_threshold(10_000, 400, 50)


def tune_gc() -> None:
    """Once everything is loaded: what is there stays for good, and what comes mostly dies without being collected.

    A full collection over all of Django holds every thread of a process for a tenth of a second, and with Python's own
    thresholds one may come after a few hundred requests, or in the middle of a list of thousands of objects.
    """
    gc.collect()
    gc.freeze()
    collect_rarely()
