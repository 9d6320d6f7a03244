"""`manage.py observer`: watch clusters until SIGTERM or Ctrl-C. Any number may run; leases share out the clusters."""

import signal
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from clusters.observer import Observer
from portal.core.collector import calm_collector


class Command(BaseCommand):
    """Runs one observer."""

    help = "Watch every active cluster and keep its nodes, pods and events as rows."

    def handle(self, *args: Any, **options: Any) -> None:
        """Loop until told to stop."""
        calm_collector()
        observer = Observer()

        def end(_number: int, _frame: FrameType | None) -> None:
            observer.stop.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        observer.run()
