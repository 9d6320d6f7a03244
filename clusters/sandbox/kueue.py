"""Kueue's controller in the sandbox: one cycle of the model over its queues lets jobs go, or evicts them, as a whole.

In pools with a topology it gives their pods places on nodes, too. Elsewhere these are kube-scheduler's work.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from clusters.flavours import flavour_for
from clusters.pods import condition_is_true
from clusters.ports import Manifest
from clusters.sandbox import admission, wordings
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.kueue_entries import Entry, entries_in, snapshot_of
from clusters.sandbox.kueue_topology import give_places, has_lost_one, send, take_places, topology_of
from clusters.sandbox.kueue_webhooks import write
from clusters.sandbox.kueue_workloads import ADMITTED, GATE, RESERVED, queue_of
from clusters.sandbox.queues import dialect_of
from clusters.sandbox.scheduler import Counts
from clusters.sandbox.store import Store
from scheduling.cycle import cycle
from scheduling.decisions import Cause, Decision, Evict, Start, Wait

EVICTED: Final = "Evicted"
LOST: Final = "NodeFailures"
LOST_SAID: Final = "Workload eviction triggered by unhealthy nodes"


def run(store: Store, *, flavour: str) -> Counts:
    """Decide once for everything that waits in a queue; nothing where the scheduler does not queue whole jobs."""
    traits = flavour_for(flavour).traits
    dialect = dialect_of(traits)
    if not traits.queues_jobs or dialect is None:
        return Counts()
    desk = _Desk(store, entries_in(store))
    desk.take_back()
    if all(entry.holds for entry in desk.entries.values()):
        return desk.counts
    for decision in cycle(snapshot_of(store, dialect, desk.entries), flavour=flavour):
        desk.carry_out(decision)
    return desk.counts


@dataclass(slots=True)
class _Desk:
    """Writes decisions into Workloads, and holds back or lets go what they stand for."""

    store: Store
    entries: Mapping[str, Entry]
    counts: Counts = field(default_factory=Counts)
    _evicts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def carry_out(self, decision: Decision) -> None:
        match decision:
            case Start():
                self._let_go(self.entries[decision.group.name], decision.placements)
            case Evict():
                self._evicts[decision.for_group] += 1
                self._evict(self.entries[decision.victim.name], decision)
            case Wait():
                self._wait(self.entries[decision.group.name], decision)

    def take_back(self) -> None:
        """What has lost a node of its places queues for others; the real one first looks for another node instead."""
        for entry in self.entries.values():
            if has_lost_one(self.store, entry.workload):
                self._say(entry, EVICTED, "True", LOST, LOST_SAID)
                self._requeue(entry, LOST_SAID)

    def _let_go(self, entry: Entry, placements: Mapping[str, str]) -> None:
        given = {slot.key: placements[entry.named(slot)] for slot in entry.slots if entry.named(slot) in placements}
        if given:
            give_places(entry.workload, entry.cluster_queue, given)
        self._say(entry, RESERVED, "True", "QuotaReserved", f"Quota reserved in ClusterQueue {entry.cluster_queue}")
        self._say(entry, ADMITTED, "True", "Admitted", "The workload is admitted")
        for kind in ("Preempted", EVICTED):
            if condition_is_true(entry.workload, kind):
                self._say(entry, kind, "False", "QuotaReserved", "Previously: preempted")
        self._hold(entry, held=False)

    def _evict(self, entry: Entry, eviction: Evict) -> None:
        taker = self.entries[eviction.for_group]
        message = wordings.preempted_by_kueue(
            workload=taker.workload["metadata"]["uid"],
            job=eviction.for_group,
            cause=eviction.cause,
            queues=(taker.cluster_queue, entry.cluster_queue),
        )
        reason = "InClusterQueue" if eviction.cause is Cause.PREEMPT else "InCohortReclamation"
        self._say(entry, "Preempted", "True", reason, message)
        self._say(entry, EVICTED, "True", "Preempted", message)
        self.counts.evicted += len(eviction.pods)
        self._requeue(entry, message)

    def _requeue(self, entry: Entry, message: str) -> None:
        self._say(entry, RESERVED, "False", "Pending", message)
        self._say(entry, ADMITTED, "False", "NoReservation", "The workload has no reservation")
        take_places(entry.workload)
        self._hold(entry, held=True)

    def _wait(self, entry: Entry, wait: Wait) -> None:
        ends = self._evicts.get(wait.group.name, 0) or 1
        queue = queue_of(entry.owner)
        flavor = wait.group.pool
        topology = topology_of(self.store, flavor)
        pods = len(wait.group.waiting)
        message = wordings.waiting_in_kueue(
            wait.pend, queue=queue, flavor=flavor, topology=topology, pods=pods, evicts=ends
        )
        self._say(entry, RESERVED, "False", "Pending", message)
        self.counts.waiting += len(wait.group.waiting)

    def _hold(self, entry: Entry, *, held: bool) -> None:
        """A job is suspended or resumed; pods of what cannot be are ended, or their gates opened."""
        if pointer := entry.kind.suspend:
            write(entry.owner, pointer, held=held)
            self.store.touch(entry.owner)
            return
        for pod in entry.pods:
            if held:
                admission.delete(self.store, pod)
            else:
                self._open(entry, pod)

    def _open(self, entry: Entry, pod: Manifest) -> None:
        gates = pod["spec"].pop("schedulingGates", [])
        if left := [gate for gate in gates if gate != GATE]:
            pod["spec"]["schedulingGates"] = left
        send(self.store, pod, entry.workload)
        self.store.touch(pod)

    def _say(self, entry: Entry, kind: str, status: str, reason: str, message: str) -> None:
        if set_condition(entry.workload, kind, status, at=self.store.now, reason=reason, message=message):
            self.store.touch(entry.workload)
