"""How each simulated scheduler speaks of what it decides: its name, the marks it leaves on pods, its reasons and words.

A scheduler without a voice of its own speaks as kube-scheduler does.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from clusters.kinds_core import GANG_POD_GROUP, KAI_QUEUE, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from clusters.ports import Manifest, Traits
from clusters.sandbox import wordings
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.scene import Scene
from clusters.sandbox.store import Store
from scheduling.capacity import Ledger
from scheduling.decisions import Cause, Decision, Evict, Start, Wait
from scheduling.fairshare import fair_shares
from scheduling.model import Node, PodGroup, total
from scheduling.resources import ZERO, Resources
from scheduling.taints import welcome


class Voice:
    """kube-scheduler's, and what the others share with it."""

    source: str = "default-scheduler"
    evicts: str = "Preempted"  # reason of the event about a victim
    waits: str = "FailedScheduling"  # and about a pod without a node
    mark: tuple[str, str, str] = ("DisruptionTarget", "True", "PreemptionByScheduler")

    def __init__(self, store: Store, scene: Scene) -> None:
        self.store = store
        self.scene = scene
        self._free: dict[str, Resources] | None = None

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        """What is said on the victim."""
        gang = self.scene.snapshot.group_by_name[eviction.for_group].gang
        node = eviction.nodes.get(pod["metadata"]["uid"], "")
        return wordings.preempted_by_kube(self._taker_uid(eviction.for_group), node, group=gang)

    def waiting(self, wait: Wait, pod: Manifest, asked: Resources) -> str:
        """Why the pod has no node."""
        counted = self.counted(wait.group, asked)
        return wordings.waiting_in_kube(wait.pend, counted, nodes=len(self.scene.snapshot.nodes))

    def grouped(self, decision: Decision) -> None:
        """What is written about the group as a whole, after what is written on its pods."""

    def counted(self, group: PodGroup, asked: Resources) -> Counter[str]:
        """How many nodes are out of the question for which cause."""
        causes: Counter[str] = Counter()
        for node in self.scene.snapshot.nodes:
            causes.update(self._causes(node, group, asked))
        return causes

    def _causes(self, node: Node, group: PodGroup, asked: Resources) -> list[str]:
        if not node.ready:
            return ["node(s) were unschedulable"]
        if not welcome(node.taints, group.tolerations):
            return ["node(s) had untolerated taint(s)"]
        if any(node.labels.get(key) != value for key, value in group.node_selector.items()):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return wordings.shortfalls(asked, self._idle()[node.name])

    def _idle(self) -> Mapping[str, Resources]:
        """What no pod holds now on each node, before this cycle."""
        if self._free is None:
            self._free = {node.name: node.capacity for node in self.scene.snapshot.nodes}
            for group in self.scene.snapshot.groups:
                for pod in group.pods:
                    if pod.node in self._free:
                        self._free[pod.node] -= pod.requests
        return self._free

    def _taker_uid(self, name: str) -> str:
        group = self.scene.snapshot.group_by_name[name]
        space, _, title = self.scene.titles[name].partition("/")
        found = self.store.find(GANG_POD_GROUP.key, title, space) if group.gang else None
        return str(found["metadata"]["uid"]) if found else group.pods[0].name


class KaiVoice(Voice):
    """KAI names the workload that gains, and for a reclaim both queues' standing."""

    source = "kai-scheduler"
    evicts = "Evict"
    waits = "Unschedulable"
    _standings: dict[str, str] | None = None

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        taker = self.scene.titles[eviction.for_group]
        if eviction.cause is Cause.CONSOLIDATE:
            return wordings.moved_by_kai(title_of(pod))
        if eviction.cause is Cause.PREEMPT:
            return wordings.preempted_by_kai(title_of(pod), taker)
        queues = (eviction.victim.queue, self.scene.snapshot.group_by_name[eviction.for_group].queue)
        return wordings.reclaimed_by_kai(title_of(pod), taker, [self._queue_standing(name) for name in queues])

    def waiting(self, wait: Wait, pod: Manifest, asked: Resources) -> str:
        pool = wait.group.pool
        nodes = [node for node in self.scene.snapshot.nodes if node.pool == pool]
        nominated = wait.nominated.get(pod["metadata"]["uid"], "")
        return wordings.waiting_in_kai(wait.pend, title_of(pod), pool=pool, nodes=nodes, nominated=nominated)

    def _queue_standing(self, name: str) -> str:
        """Computed once per cycle, and only when something is reclaimed."""
        if self._standings is None:
            self._standings = _standings(self.scene)
        return self._standings.get(name, "")


class VolcanoVoice(Voice):
    """Volcano names nobody who gains, and marks its victims as not ready."""

    source = "volcano"
    evicts = "Evict"
    waits = "Unschedulable"
    mark = ("Ready", "False", "Evict")

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        return wordings.evicted_by_volcano(eviction.cause)

    def waiting(self, wait: Wait, pod: Manifest, asked: Resources) -> str:
        counted = self.counted(wait.group, asked)
        nominated = wait.nominated.get(pod["metadata"]["uid"], "")
        nodes = len(self.scene.snapshot.nodes)
        return wordings.waiting_in_volcano(wait, title_of(pod), counted, nodes=nodes, nominated=nominated)

    def grouped(self, decision: Decision) -> None:
        """The PodGroup beside an object says how the gang stands; a condition that is over stays beside the next."""
        if isinstance(decision, Evict) or (found := self._groups.get(decision.group.name)) is None:
            return
        status, before = found.setdefault("status", {}), found.get("status", {}).get("phase")
        placed = [bool(self.scene.pods[pod.name]["spec"].get("nodeName")) for pod in decision.group.pods]
        ready = sum(placed) >= decision.group.min_member
        status["phase"] = "Running" if ready else "Unknown" if any(placed) else "Inqueue"
        if self._says(found, decision, ready=ready) or status["phase"] != before:
            self.store.touch(found)

    def _says(self, found: Manifest, decision: Start | Wait, *, ready: bool) -> bool:
        if ready or isinstance(decision, Start):
            return set_condition(found, "Scheduled", "True", at=self.store.now, reason=wordings.GANG_READY)
        pod = next(pod for pod in decision.group.waiting if not self.scene.pods[pod.name]["spec"].get("nodeName"))
        counted, nodes = self.counted(decision.group, pod.requests), len(self.scene.snapshot.nodes)
        text = wordings.waiting_in_volcano(
            decision, title_of(self.scene.pods[pod.name]), counted, nodes=nodes, nominated=""
        )
        message = wordings.gang_waiting_in_volcano(decision, text)
        reason = "NotEnoughResources"
        return set_condition(found, "Unschedulable", "True", at=self.store.now, reason=reason, message=message)

    @cached_property
    def _groups(self) -> Mapping[str, Manifest]:
        return {each["metadata"]["uid"]: each for each in self.store.of(VOLCANO_POD_GROUP.key)}


def _standings(scene: Scene) -> dict[str, str]:
    snapshot = scene.snapshot
    ledger = Ledger(snapshot.queues)
    for group in snapshot.groups:
        ledger.charge(group.queue, total(group.holding), preemptible=group.preemptible)
        ledger.request(group.queue, total(group.holding) + total(group.waiting))
    texts: dict[str, str] = {}
    for pool in snapshot.pools:
        queues = [queue for queue in snapshot.queues if queue.pool == pool]
        whole = sum((node.capacity for node in snapshot.nodes if node.pool == pool and node.ready), ZERO)
        fair = fair_shares(queues, {queue.name: ledger.uses[queue.name].requested for queue in queues}, whole)
        for queue in queues:
            used = ledger.uses[queue.name].allocated
            texts[queue.name] = wordings.queue_standing(queue, used, fair.get(queue.name, ZERO))
    return texts


def title_of(pod: Manifest) -> str:
    """Namespace and name."""
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


VOICES: Final[Mapping[str, type[Voice]]] = {KAI_QUEUE.key: KaiVoice, VOLCANO_QUEUE.key: VolcanoVoice}


def voice_of(store: Store, scene: Scene, traits: Traits) -> Voice:
    """Of the scheduler that brings this kind of queues along."""
    key = traits.installed.key if traits.installed else ""
    return VOICES.get(key, Voice)(store, scene)
