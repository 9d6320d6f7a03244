"""Asks one watched cluster again and again for what no watch tells. The thread never speaks to the database.

What to ask is read, and what was answered is stored, in the turns in which everything else of the cluster is stored.
"""

import threading
import time
from datetime import datetime
from typing import Final

import structlog

from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.ports import ClusterGateway
from clusters.services.inbox import Inbox
from clusters.services.inquiries import Answered, Questions, ask, keep, questions_of

log = structlog.get_logger(__name__)

EVERY: Final = 5.0
"""Seconds between two rounds."""


class Asking:
    """One cluster whose scheduler has to be asked; for any other one it does nothing."""

    def __init__(self, cluster: Cluster, gateway: ClusterGateway, inbox: Inbox, bell: threading.Event) -> None:
        self._cluster, self._gateway, self._inbox, self._bell = cluster, gateway, inbox, bell
        self._lock = threading.Lock()
        self._questions: Questions | None = None
        self._answered: Answered | None = None
        self._round = 0
        self._read_at = float("-inf")
        self._wanted = flavour_for(cluster.flavour).traits.inquiries is not None
        if self._wanted:
            threading.Thread(target=self._run, name=f"asking-{cluster.name}", daemon=True).start()

    def is_due(self) -> bool:
        """Something was answered, or it is time to say what to ask."""
        if not self._wanted:
            return False
        return self._answered is not None or time.monotonic() - self._read_at >= EVERY

    def turn(self, at: datetime) -> None:
        """Store what was answered, and say what to ask next."""
        if not self._wanted:
            return
        with self._lock:
            answered, self._answered = self._answered, None
        if answered is not None:
            keep(self._cluster, answered, at=at)
        if time.monotonic() - self._read_at >= EVERY:
            self._read_at = time.monotonic()
            self._questions = questions_of(self._cluster, turn=self._round)
            self._round += 1

    def _run(self) -> None:
        while not self._inbox.closed:
            questions, self._questions = self._questions, None
            if questions is None:
                self._inbox.rest(EVERY / 25)
                continue
            try:
                self._take(ask(self._cluster, self._gateway, questions))
            except Exception:  # as in a feed: a fault of ours in an answer must not end the asking
                log.exception("observer.asking_failed", cluster=self._cluster.name)

    def _take(self, answered: Answered) -> None:
        with self._lock:
            self._answered = answered
        self._bell.set()
