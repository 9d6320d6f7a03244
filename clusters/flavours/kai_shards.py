"""Which of KAI's schedulers serves which node pool. Pure.

KAI runs one scheduler for each SchedulingShard. It sees the nodes, queues and pod groups that carry one value of the
label `kai.scheduler/node-pool`, or those without the label, and shares out what it sees as one amount.
Source: KAI 0.17, its operator and `conf.SchedulingNodePoolParams`.
"""

from typing import Final

from clusters.ports import Manifest

NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"


def value_of(shard: Manifest) -> str:
    """The value of the label whose nodes a SchedulingShard takes; empty: those without the label."""
    value = (shard.get("spec") or {}).get("partitionLabelValue")
    return value[:63] if isinstance(value, str) else ""
