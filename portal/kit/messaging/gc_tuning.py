"""Python's garbage collector in the processes of the portal."""

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 80, 50)
"""The settings set them for every process, since loading the portal makes objects that stay: that takes a tenth less.

A young collection visits everything that is new: 50,000 objects take 5 to 7 ms, and 200,000 four times as long.
"""


def tune_gc() -> None:
    """Once everything is loaded: what is there stays for good, and what comes mostly dies without being collected.

    A full collection over all of Django holds every thread of a process for a tenth of a second, and with Python's own
    thresholds one may come after a few hundred requests, or in the middle of a list of thousands of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
