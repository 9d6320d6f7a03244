"""`manage.py observer`: watch clusters until SIGTERM or Ctrl-C. Any number may run; leases share out the clusters."""

import signal
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from clusters.watch.services.observer import Observer
from portal.kit.messaging.gc_tuning import tune_gc


class Command(BaseCommand):
    """Runs one observer."""

    help = "Watch all active clusters and store their nodes, pods and events."

    def handle(self, *args: Any, **options: Any) -> None:
        tune_gc()
        observer = Observer()

        def end(_number: int, _frame: FrameType | None) -> None:
            observer.stop.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        observer.run()
