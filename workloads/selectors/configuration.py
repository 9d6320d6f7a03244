"""What the configuration of a cluster's scheduler has to do with what is foretold of a workload."""

from typing import Final

from clusters.models import Cluster
from clusters.services.configured import cautions, left_out
from scheduling.decisions import Cause, Outcome
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
    return cautions(cluster, outcome.kind) if outcome.victims or _matters(cluster, outcome) else ()


def _matters(cluster: Cluster, outcome: Outcome) -> bool:
    """Who is at its limit gains by nothing that others give back."""
    reason = outcome.pend.reason if outcome.pend else None
    if reason is Reason.OVER_LIMIT:
        return bool(left_out(cluster) - {Cause.RECLAIM})
    return reason not in WHATEVER
