"""The sandbox's scheduler: one cycle of the model over its objects, and the decisions written on the pods."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.flavours import flavour_for
from clusters.kinds_core import GANG_POD_GROUP
from clusters.ports import Manifest
from clusters.sandbox import wordings
from clusters.sandbox.admission import start_leaving
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.journal import WARNING, note
from clusters.sandbox.scene import Scene, scene_of
from clusters.sandbox.store import Store
from scheduling.capacity import Ledger
from scheduling.cycle import cycle
from scheduling.decisions import Cause, Evict, Start, Wait
from scheduling.fairshare import fair_shares
from scheduling.model import Node, PodGroup, Strategy, total
from scheduling.resources import ZERO, Resources

KUBE = "kube"
NOTHING: Mapping[str, Strategy] = {}
KUBE_SOURCE = "default-scheduler"
KAI_SOURCE = "kai-scheduler"


@dataclass(slots=True)
class Counts:
    """Pods started, evicted and left waiting by one cycle."""

    started: int = 0
    evicted: int = 0
    waiting: int = 0


def run(store: Store, *, flavour: str, strategies: Mapping[str, Strategy] = NOTHING) -> Counts:
    """Decide once for everything that waits; nothing waits, nothing is decided.

    `strategies`: how each pool is filled, where this scheduler has one per pool.
    What a scheduler adds that is not simulated (queues and their quotas) is left out: kube-scheduler places its pods.
    """
    flavour = flavour if flavour_for(flavour).traits.simulated else KUBE
    traits = flavour_for(flavour).traits
    scene = scene_of(store, traits=traits, strategies=strategies if traits.places_by_pool else NOTHING)
    if not any(group.waiting for group in scene.snapshot.groups):
        return Counts()
    scheduler = _Scheduler(store, scene, in_queues=traits.queues_by_pool)
    for decision in cycle(scene.snapshot, flavour=flavour):
        match decision:
            case Start():
                scheduler.bind(decision)
            case Evict():
                scheduler.evict(decision)
            case Wait():
                scheduler.wait(decision)
    return scheduler.counts


@dataclass(slots=True)
class _Scheduler:
    """Applies decisions and explains them."""

    store: Store
    scene: Scene
    in_queues: bool  # then the words are KAI's, otherwise kube-scheduler's
    counts: Counts = field(default_factory=Counts)
    _free: dict[str, Resources] | None = None
    _standings: dict[str, str] | None = None

    @property
    def source(self) -> str:
        return KAI_SOURCE if self.in_queues else KUBE_SOURCE

    def bind(self, start: Start) -> None:
        for uid, node in start.placements.items():
            pod = self.scene.pods[uid]
            pod["spec"]["nodeName"] = node
            pod["status"].pop("nominatedNodeName", None)
            set_condition(pod, "PodScheduled", "True", at=self.store.now)
            self.store.touch(pod)
            note(self.store, pod, "Scheduled", f"Successfully assigned {_title(pod)} to {node}", source=self.source)
        self.counts.started += len(start.placements)

    def evict(self, eviction: Evict) -> None:
        for uid in eviction.pods:
            pod = self.scene.pods[uid]
            message = self._eviction_message(eviction, pod)
            set_condition(
                pod, "DisruptionTarget", "True", at=self.store.now, reason="PreemptionByScheduler", message=message
            )
            start_leaving(self.store, pod)
            reason = "Evict" if self.in_queues else "Preempted"
            note(self.store, pod, reason, message, source=self.source)
        self.counts.evicted += len(eviction.pods)

    def wait(self, wait: Wait) -> None:
        for each in wait.group.waiting:
            pod = self.scene.pods[each.name]
            if pod["spec"].get("nodeName"):
                continue
            self.counts.waiting += 1
            self._explain(pod, wait, each.requests)

    def _explain(self, pod: Manifest, wait: Wait, asked: Resources) -> None:
        nominated = wait.nominated.get(pod["metadata"]["uid"], "")
        message = self._waiting_message(pod, wait, asked, nominated)
        changed = set_condition(
            pod, "PodScheduled", "False", at=self.store.now, reason="Unschedulable", message=message
        )
        if pod["status"].get("nominatedNodeName", "") != nominated:
            pod["status"]["nominatedNodeName"] = nominated
            changed = True
        if changed:
            self.store.touch(pod)
            reason = "Unschedulable" if self.in_queues else "FailedScheduling"
            note(self.store, pod, reason, message, source=self.source, kind=WARNING)

    def _waiting_message(self, pod: Manifest, wait: Wait, asked: Resources, nominated: str) -> str:
        if self.in_queues:
            pool = wait.group.pool
            nodes = [node for node in self.scene.snapshot.nodes if node.pool == pool]
            return wordings.waiting_in_kai(wait.pend, _title(pod), pool=pool, nodes=nodes, nominated=nominated)
        causes: Counter[str] = Counter()
        for node in self.scene.snapshot.nodes:
            causes.update(self._causes(node, wait.group, asked))
        return wordings.waiting_in_kube(wait.pend, causes, nodes=len(self.scene.snapshot.nodes))

    def _causes(self, node: Node, group: PodGroup, asked: Resources) -> list[str]:
        if not node.ready:
            return ["node(s) were unschedulable"]
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

    def _eviction_message(self, eviction: Evict, pod: Manifest) -> str:
        if not self.in_queues:
            gang = self.scene.snapshot.group_by_name[eviction.for_group].gang
            node = eviction.nodes.get(pod["metadata"]["uid"], "")
            return wordings.preempted_by_kube(self._taker_uid(eviction.for_group), node, group=gang)
        taker = self.scene.titles[eviction.for_group]
        if eviction.cause is Cause.PREEMPT:
            return wordings.preempted_by_kai(_title(pod), taker)
        queues = (eviction.victim.queue, self.scene.snapshot.group_by_name[eviction.for_group].queue)
        return wordings.reclaimed_by_kai(_title(pod), taker, [self._queue_standing(name) for name in queues])

    def _taker_uid(self, name: str) -> str:
        group = self.scene.snapshot.group_by_name[name]
        space, _, title = self.scene.titles[name].partition("/")
        found = self.store.find(GANG_POD_GROUP.key, title, space) if group.gang else None
        return str(found["metadata"]["uid"]) if found else group.pods[0].name

    def _queue_standing(self, name: str) -> str:
        """Computed once per cycle, and only when something is reclaimed."""
        if self._standings is None:
            self._standings = _standings(self.scene)
        return self._standings.get(name, "")


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


def _title(pod: Manifest) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
