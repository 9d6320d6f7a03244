"""The sandbox's scheduler: one cycle of the model over its objects, and the decisions written on the pods."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from clusters.flavours import flavour_for
from clusters.ports import Manifest
from clusters.sandbox.admission import start_leaving
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.journal import WARNING, note
from clusters.sandbox.scene import Scene, ScenePool, scene_of
from clusters.sandbox.store import Store
from clusters.sandbox.voices import Voice, title_of, voice_of
from scheduling.cycle import cycle
from scheduling.decisions import Evict, Start, Wait
from scheduling.resources import Resources

KUBE = "kube"


@dataclass(slots=True)
class Counts:
    """Pods started, evicted and left waiting by one cycle."""

    started: int = 0
    evicted: int = 0
    waiting: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.started + other.started, self.evicted + other.evicted, self.waiting + other.waiting)


def run(store: Store, *, flavour: str, pools: Sequence[ScenePool]) -> Counts:
    """Decide once for every pod that waits for a node; none waits, nothing is decided.

    kube-scheduler places the pods of what is queued as whole jobs, and of a scheduler that is not simulated.
    """
    traits = flavour_for(flavour).traits
    if traits.queues_jobs or not traits.simulated:
        flavour, traits = KUBE, flavour_for(KUBE).traits
    scene = scene_of(store, traits=traits, pools=pools)
    if not any(group.waiting for group in scene.snapshot.groups):
        return Counts()
    scheduler = _Scheduler(store, scene, voice_of(store, scene, traits))
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

    store: Store
    scene: Scene
    voice: Voice
    counts: Counts = field(default_factory=Counts)

    def bind(self, start: Start) -> None:
        for uid, node in start.placements.items():
            pod = self.scene.pods[uid]
            pod["spec"]["nodeName"] = node
            pod["status"].pop("nominatedNodeName", None)
            set_condition(pod, "PodScheduled", "True", at=self.store.now)
            self.store.touch(pod)
            said = f"Successfully assigned {title_of(pod)} to {node}"
            note(self.store, pod, "Scheduled", said, source=self.voice.source)
        self.counts.started += len(start.placements)

    def evict(self, eviction: Evict) -> None:
        kind, status, reason = self.voice.mark
        for uid in eviction.pods:
            pod = self.scene.pods[uid]
            message = self.voice.evicted(eviction, pod)
            set_condition(pod, kind, status, at=self.store.now, reason=reason, message=message)
            start_leaving(self.store, pod)
            note(self.store, pod, self.voice.evicts, message, source=self.voice.source)
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
        message = self.voice.waiting(wait, pod, asked)
        changed = set_condition(
            pod, "PodScheduled", "False", at=self.store.now, reason="Unschedulable", message=message
        )
        if pod["status"].get("nominatedNodeName", "") != nominated:
            pod["status"]["nominatedNodeName"] = nominated
            changed = True
        if changed:
            self.store.touch(pod)
            note(self.store, pod, self.voice.waits, message, source=self.voice.source, kind=WARNING)
