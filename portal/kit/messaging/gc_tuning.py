"""Python's garbage collector in the processes of the portal."""

import gc


def collect_rarely() -> None:
    """For every process, as the first step of `portal.celery`: what it loads stays, and loading takes a tenth less.

    A collection of the youngest generation holds every thread while it visits what is new. On a machine that other
    processes use as well, 10,000 objects take 5 to 10 ms and 50,000 take 60 to 90. Older objects are visited after 4
    million new ones.
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
