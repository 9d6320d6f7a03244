"""The working state for Volcano, which also counts the GPUs that reclaim may free."""

from collections import defaultdict

from scheduling.model.snapshot import Snapshot, Strategy
from scheduling.state.assignments import Assignment
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity
from scheduling.state.tables import add


class VolcanoState(SchedulingState):
    """Counts GPUs of preemptible pods on nodes when pod groups come and go; evictions of a cycle do not change that."""

    tables = (*SchedulingState.tables, "preemptible_gpus", "surplus_gpus")

    def __init__(self, snapshot: Snapshot) -> None:
        self.preemptible_gpus: dict[str, dict[int, int]] = defaultdict(dict)
        """By queue and node index."""
        self.surplus_gpus: dict[str, dict[int, int]] = defaultdict(dict)
        """The same of pod groups with more pods than their minimum."""
        super().__init__(snapshot, default=Strategy.SPREAD)

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        super()._occupy(assignment, capacity, sign)
        group, gpu = assignment.group, assignment.pod.requests.gpu * sign
        if group.preemptible and gpu:
            add(self.preemptible_gpus[group.queue], capacity.index, gpu)
            if len(group.pods) > group.min_member:
                add(self.surplus_gpus[group.queue], capacity.index, gpu)
