"""A handler of observations that remembers, and can be made to fail."""

from clusters.inventory.models import Cluster
from clusters.watch.services.observations import Observation


class ObservationRecorder:
    """A handler that remembers; it can be made to fail."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.broken = False

    def __call__(self, cluster: Cluster, seen: Observation) -> None:
        if self.broken:
            raise RuntimeError("handler")
        self.observations.append(seen)

    @property
    def last(self) -> Observation:
        return self.observations[-1]
