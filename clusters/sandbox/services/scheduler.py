"""The sandbox's scheduler: one cycle of the model, its decisions written to pods in the flavour's words.

A scheduler without a voice of its own speaks as kube-scheduler does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from clusters.flavours.registry import flavour_for
from clusters.ports.flavour import Traits
from clusters.ports.gateway import Manifest
from clusters.ports.objects import GANG_POD_GROUP, KAI_QUEUE, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from clusters.sandbox import rules as sandbox_rules
from clusters.sandbox.services.admission import start_leaving
from clusters.sandbox.services.snapshot import SandboxSnapshot, SnapshotPool, namespaced_name, read_snapshot
from clusters.sandbox.services.store import WARNING, ObjectStore, record_event, set_condition
from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Decision, Evict, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, SnapshotNode, welcome
from scheduling.state.fair_share import fair_shares
from scheduling.state.queue_usage import QueueUsageTracker, UsageEntry


class DecisionReporter:
    """kube-scheduler's, and what the others share with it."""

    source: str = "default-scheduler"
    evicts: str = "Preempted"  # reason of the event about a victim
    waits: str = "FailedScheduling"  # and about a pod without a node
    mark: tuple[str, str, str] = ("DisruptionTarget", "True", "PreemptionByScheduler")

    def __init__(self, store: ObjectStore, scene: SandboxSnapshot) -> None:
        self.store = store
        self.scene = scene
        self._free: dict[str, Resources] | None = None

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        """What is said on the victim."""
        gang = self.scene.snapshot.group_by_name[eviction.for_group].gang
        node = eviction.nodes.get(pod["metadata"]["uid"], "")
        return sandbox_rules.preempted_by_kube(self._taker_uid(eviction.for_group), node, group=gang)

    def waiting(self, wait: Wait, pod: Manifest, requested: Resources) -> str:
        """Why the pod has no node."""
        counted = self.counted(wait.group, requested)
        return sandbox_rules.waiting_in_kube(wait.pend, counted, nodes=len(self.scene.snapshot.nodes))

    def grouped(self, decision: Decision) -> None:
        """What is written about the group as a whole, after what is written on its pods."""

    def counted(self, group: PodGroup, requested: Resources) -> Counter[str]:
        """How many nodes are out of the question for which cause."""
        causes: Counter[str] = Counter()
        for node in self.scene.snapshot.nodes:
            causes.update(self._causes(node, group, requested))
        return causes

    def _causes(self, node: SnapshotNode, group: PodGroup, requested: Resources) -> list[str]:
        if not node.ready:
            return ["node(s) were unschedulable"]
        if not welcome(node.taints, group.tolerations):
            return ["node(s) had untolerated taint(s)"]
        if any(node.labels.get(key) != value for key, value in group.node_selector.items()):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return sandbox_rules.shortfalls(requested, self._idle()[node.name])

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


class KaiReporter(DecisionReporter):
    """KAI names the workload that gains, and for a reclaim the usage of both queues."""

    source = "kai-scheduler"
    evicts = "Evict"
    waits = "Unschedulable"
    _standings: dict[str, str] | None = None

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        taker = self.scene.titles[eviction.for_group]
        if eviction.cause is Cause.CONSOLIDATE:
            return sandbox_rules.moved_by_kai(namespaced_name(pod))
        if eviction.cause is Cause.PREEMPT:
            return sandbox_rules.preempted_by_kai(namespaced_name(pod), taker)
        queues = (eviction.victim.queue, self.scene.snapshot.group_by_name[eviction.for_group].queue)
        return sandbox_rules.reclaimed_by_kai(namespaced_name(pod), taker, [self._queue_usage(name) for name in queues])

    def waiting(self, wait: Wait, pod: Manifest, requested: Resources) -> str:
        pool = wait.group.pool
        nodes = [node for node in self.scene.snapshot.nodes if node.pool == pool]
        nominated = wait.nominated.get(pod["metadata"]["uid"], "")
        return sandbox_rules.waiting_in_kai(
            wait.pend, namespaced_name(pod), pool=pool, nodes=nodes, nominated=nominated
        )

    def _queue_usage(self, name: str) -> str:
        """Computed once per cycle, and only when something is reclaimed."""
        if self._standings is None:
            self._standings = _standings(self.scene)
        return self._standings.get(name, "")


class VolcanoReporter(DecisionReporter):
    """Volcano names no preemptor, and marks its victims as not ready."""

    source = "volcano"
    evicts = "Evict"
    waits = "Unschedulable"
    mark = ("Ready", "False", "Evict")

    def evicted(self, eviction: Evict, pod: Manifest) -> str:
        return sandbox_rules.evicted_by_volcano(eviction.cause)

    def waiting(self, wait: Wait, pod: Manifest, requested: Resources) -> str:
        counted = self.counted(wait.group, requested)
        nominated = wait.nominated.get(pod["metadata"]["uid"], "")
        nodes = len(self.scene.snapshot.nodes)
        return sandbox_rules.waiting_in_volcano(wait, namespaced_name(pod), counted, nodes=nodes, nominated=nominated)

    def grouped(self, decision: Decision) -> None:
        """The PodGroup beside an object holds the state of the gang; a former condition stays beside the next."""
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
            return set_condition(found, "Scheduled", "True", at=self.store.now, reason=sandbox_rules.GANG_READY)
        pod = next(pod for pod in decision.group.waiting if not self.scene.pods[pod.name]["spec"].get("nodeName"))
        counted, nodes = self.counted(decision.group, pod.requests), len(self.scene.snapshot.nodes)
        text = sandbox_rules.waiting_in_volcano(
            decision, namespaced_name(self.scene.pods[pod.name]), counted, nodes=nodes, nominated=""
        )
        message = sandbox_rules.gang_waiting_in_volcano(decision, text)
        reason = "NotEnoughResources"
        return set_condition(found, "Unschedulable", "True", at=self.store.now, reason=reason, message=message)

    @cached_property
    def _groups(self) -> Mapping[str, Manifest]:
        return {each["metadata"]["uid"]: each for each in self.store.of(VOLCANO_POD_GROUP.key)}


def _standings(scene: SandboxSnapshot) -> dict[str, str]:
    snapshot = scene.snapshot
    ledger = QueueUsageTracker(snapshot.queues)
    ledger.enter(map(UsageEntry.of, snapshot.groups))
    texts: dict[str, str] = {}
    for pool in snapshot.pools:
        queues = [queue for queue in snapshot.queues if queue.pool == pool]
        whole = sum((node.capacity for node in snapshot.nodes if node.pool == pool and node.ready), ZERO)
        fair = fair_shares(queues, {queue.name: ledger.uses[queue.name].requested for queue in queues}, whole)
        for queue in queues:
            used = ledger.uses[queue.name].allocated
            texts[queue.name] = sandbox_rules.queue_usage(queue, used, fair.get(queue.name, ZERO))
    return texts


REPORTERS: Final[Mapping[str, type[DecisionReporter]]] = {
    KAI_QUEUE.key: KaiReporter,
    VOLCANO_QUEUE.key: VolcanoReporter,
}


def reporter_for(store: ObjectStore, scene: SandboxSnapshot, traits: Traits) -> DecisionReporter:
    """Of the scheduler that brings this kind of queues along."""
    key = traits.installed.key if traits.installed else ""
    return REPORTERS.get(key, DecisionReporter)(store, scene)


KUBE = "kube"


@dataclass(slots=True)
class CycleCounts:
    """Pods started, evicted and left waiting by one cycle."""

    started: int = 0
    evicted: int = 0
    waiting: int = 0

    def __add__(self, other: "CycleCounts") -> "CycleCounts":
        return CycleCounts(self.started + other.started, self.evicted + other.evicted, self.waiting + other.waiting)


def run(store: ObjectStore, *, flavour: str, pools: Sequence[SnapshotPool]) -> CycleCounts:
    """Decide once for every pod that waits for a node; none waits, nothing is decided.

    kube-scheduler places the pods of what is queued as whole jobs, and of a scheduler that is not simulated.
    """
    traits = flavour_for(flavour).traits
    if traits.queues_jobs or not traits.simulated:
        flavour, traits = KUBE, flavour_for(KUBE).traits
    scene = read_snapshot(store, traits=traits, pools=pools)
    if not any(group.waiting for group in scene.snapshot.groups):
        return CycleCounts()
    scheduler = _Scheduler(store, scene, reporter_for(store, scene, traits))
    for decision in cycle(scene.snapshot, flavour=flavour):
        match decision:
            case Start():
                scheduler.bind(decision)
            case Evict():
                scheduler.evict(decision)
            case Wait():
                scheduler.wait(decision)
        scheduler.voice.grouped(decision)
    return scheduler.counts


@dataclass(slots=True)
class _Scheduler:
    """Applies decisions and explains them."""

    store: ObjectStore
    scene: SandboxSnapshot
    voice: DecisionReporter
    counts: CycleCounts = field(default_factory=CycleCounts)

    def bind(self, start: Start) -> None:
        for uid, node in start.placements.items():
            pod = self.scene.pods[uid]
            pod["spec"]["nodeName"] = node
            pod["status"].pop("nominatedNodeName", None)
            set_condition(pod, "PodScheduled", "True", at=self.store.now)
            self.store.touch(pod)
            message = f"Successfully assigned {namespaced_name(pod)} to {node}"
            record_event(self.store, pod, "Scheduled", message, source=self.voice.source)
        self.counts.started += len(start.placements)

    def evict(self, eviction: Evict) -> None:
        kind, status, reason = self.voice.mark
        for uid in eviction.pods:
            pod = self.scene.pods[uid]
            message = self.voice.evicted(eviction, pod)
            set_condition(pod, kind, status, at=self.store.now, reason=reason, message=message)
            start_leaving(self.store, pod)
            record_event(self.store, pod, self.voice.evicts, message, source=self.voice.source)
        self.counts.evicted += len(eviction.pods)

    def wait(self, wait: Wait) -> None:
        for each in wait.group.waiting:
            pod = self.scene.pods[each.name]
            if pod["spec"].get("nodeName"):
                continue
            self.counts.waiting += 1
            self._explain(pod, wait, each.requests)

    def _explain(self, pod: Manifest, wait: Wait, requested: Resources) -> None:
        nominated = {**wait.nominated, **wait.reserved}.get(pod["metadata"]["uid"], "")
        message = self.voice.waiting(wait, pod, requested)
        changed = set_condition(
            pod, "PodScheduled", "False", at=self.store.now, reason="Unschedulable", message=message
        )
        if pod["status"].get("nominatedNodeName", "") != nominated:
            pod["status"]["nominatedNodeName"] = nominated
            changed = True
        if changed:
            self.store.touch(pod)
            record_event(self.store, pod, self.voice.waits, message, source=self.voice.source, kind=WARNING)
