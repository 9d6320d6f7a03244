"""Which of KAI's schedulers serves which node pool. Pure.

KAI runs one scheduler for each SchedulingShard. It sees the nodes, queues and pod groups that carry one value of the label
`kai.scheduler/node-pool`, or those without the label, and shares out what it sees as one amount.
Source: KAI 0.17, its operator and `conf.SchedulingNodePoolParams`.
"""

from typing import Final

from clusters.kinds_core import KAI_SHARD
from clusters.ports import Manifest, Shards

NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"


def value_of(shard: Manifest) -> str:
    """The value of the label whose nodes it takes; empty: those without the label."""
    value = (shard.get("spec") or {}).get("partitionLabelValue")
    return value[:63] if isinstance(value, str) else ""


SHARDS: Final = Shards(
    label=NODE_POOL_LABEL,
    kind=KAI_SHARD,
    why="which scheduler serves which node pool",
    value_of=value_of,
    shared=(
        "One KAI scheduler serves the node pools {pools}. It counts quotas and fair shares over the nodes of all of them: "
        "work inside its quota in one pool may wait for ever behind work that is over its quota in another."
    ),
    remedy=f"Give every pool a SchedulingShard, and its nodes and the pool here the label {NODE_POOL_LABEL}.",
    unserved=(
        "No SchedulingShard of KAI takes the nodes of {pool}: nothing that is submitted there starts until one has the "
        "partitionLabelValue {value}."
    ),
    caution=(
        "One KAI scheduler serves {pools} and counts shares over all of their nodes: it may leave waiting what the "
        "estimate, which goes pool by pool, lets start or reclaim."
    ),
)
