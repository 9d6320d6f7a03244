"""One small set of rules per scheduler flavour, over the shared kit. A flavour never reads another flavour's rules."""

from typing import Protocol

from scheduling.decisions import Decision
from scheduling.model import Snapshot


class Rules(Protocol):
    """How one scheduler decides. Pure: the same snapshot always gives the same decisions."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """One scheduling cycle over everything that waits."""
        ...
