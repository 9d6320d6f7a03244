"""The beat: django-celery-beat's database scheduler that also says that it is alive. Two of them are harmless."""

import time
from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from portal.core import heartbeats

BEAT_SECONDS = 5.0


class HeartbeatScheduler(DatabaseScheduler):
    """Schedules from the database and notes a heartbeat every few seconds."""

    beaten_at = float("-inf")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One round; answers the seconds to sleep."""
        if time.monotonic() - self.beaten_at >= BEAT_SECONDS:
            heartbeats.beat(heartbeats.BEAT)
            self.beaten_at = time.monotonic()
        return float(super().tick(*args, **kwargs))
