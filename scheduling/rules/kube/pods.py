"""Plain kube-scheduler: pod by pod, by priority over all namespaces.

Source: kube-scheduler's default preemption, checked decision by decision against a real one (docs/model.md).

- Nothing knows queues or gangs; a queue in the snapshot acts as a ResourceQuota: over it a pod is not even created, so
  nothing is evicted for it. Pods that exist (`PodGroup.made`) count there while they wait and until they are gone.
- Room that ending pods will leave is nobody's yet. They count as victims like any other: taking them costs nothing
  more, but the order below does not spare others for their sake.
- Room promised to a nominated pod is kept from pods of equal or lower priority, not from stronger ones.
- On one node all lower-priority pods are taken away, then given back by priority, older start first, while the newcomer
  still fits. A pod that has not started is the youngest. Preemptibility protects nobody.
- The node: lowest highest-priority victim, then smallest sum of priorities (each shifted up by 2^31, so fewer victims
  nearly always win), fewest victims, latest start of the top victims, first node.
- Who waits for victims on its nominated node evicts nobody else meanwhile.
- A class with preemptionPolicy Never evicts nobody. Disruption budgets are not modelled.
"""

from scheduling.model.decisions import Decision
from scheduling.model.snapshot import Snapshot, Strategy
from scheduling.rules.kube.preemption import KubePreemption, schedule_order
from scheduling.state.cluster_state import SchedulingState


class KubeRules:
    """Rules of the flavour `kube`."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Every waiting pod once, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.groups)
        cycle = KubePreemption(SchedulingState(snapshot, default=Strategy.SPREAD, counts_on_leaving=False), waiting)
        return [decision for group in waiting for decision in cycle.turn(group)]
