"""What a scheduler writes into objects of its own is kept as events about the jobs they stand for.

So it waits for its job to be seen, outlives the object it stood in, and is read like everything said of a job. A later
version of the object rewrites what the earlier one said.
"""

from collections.abc import Mapping
from datetime import datetime

from clusters.flavours import flavour_for
from clusters.kinds_core import EVENT
from clusters.models import Cluster, ClusterEvent
from clusters.services.looks import Look
from clusters.services.observed_events import store_events


def store_told(cluster: Cluster, looks: Mapping[str, Look], *, at: datetime) -> list[ClusterEvent]:
    """Events that these looks at the scheduler's objects amount to, as far as they are about ours and new."""
    events: list[ClusterEvent] = []
    for kind, tell in flavour_for(cluster.flavour).traits.tells.items():
        if look := looks.get(kind.key):
            told = [event for each in look.present for event in tell(each)]
            events += store_events(cluster, Look(EVENT, look.version, told), at=at)
    return events
