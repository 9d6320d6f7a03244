"""What the configuration of a cluster's scheduler has to do with what is foretold of a workload."""

from typing import Final

from clusters.models import Cluster
from clusters.services.configured import cautions
from scheduling.decisions import Outcome
from scheduling.reasons import Reason

WHATEVER: Final = frozenset(
    {
        Reason.NEVER_FITS,
        Reason.NO_SUCH_POOL,
        Reason.QUEUE_MISSING,
        Reason.GANG_INCOMPLETE,
        Reason.PREEMPTION_NEVER,
        Reason.EVICTING,
    }
)
"""Reasons to wait that are none of its configuration's."""


def configured_so(cluster: Cluster, outcome: Outcome) -> tuple[str, ...]:
    """Sentences for the workload's people; empty where the configuration makes no difference."""
    if outcome.pend and outcome.pend.reason in WHATEVER and not outcome.victims:
        return ()
    return cautions(cluster, outcome.kind)
