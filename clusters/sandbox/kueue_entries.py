"""What stands in the sandbox's Kueue: objects that name a LocalQueue, and the model's snapshot of them.

Each has its Workload, whatever its kind, and counts whole: also a Deployment, whose pods the real one queues singly.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from clusters.kinds import WorkloadKind, kind_for
from clusters.kinds_core import KUEUE_FLAVOR, KUEUE_LOCAL_QUEUE, KUEUE_QUEUE, POD
from clusters.pods import condition, controller_of, is_leaving, is_terminal, requests_of, tolerations_of
from clusters.ports import Manifest
from clusters.sandbox.blueprints import Slot, slots_of
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.kueue_topology import asked_level, flavor_of, levels_of, places_of, role_of, seats
from clusters.sandbox.kueue_workloads import FINISHED, RESERVED, add_workload, is_admitted, queue_of, workload_of
from clusters.sandbox.queues import Dialect, micros
from clusters.sandbox.scene import nodes_of
from clusters.sandbox.statuses import is_finished
from clusters.sandbox.store import Store
from scheduling.model import Pod, PodGroup, Snapshot

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One object in a queue. `slots`: what it asks for; `pods`: those of it that have not ended."""

    owner: Manifest
    kind: WorkloadKind
    workload: Manifest
    slots: Sequence[Slot]
    pods: Sequence[Manifest]
    queue: str

    @property
    def holds(self) -> bool:
        """Does it count against its queue?"""
        return is_admitted(self.workload) or any(pod["spec"].get("nodeName") for pod in self.pods)

    @property
    def cluster_queue(self) -> str:
        return self.queue.partition("/")[0]

    def named(self, slot: Slot) -> str:
        """A replica in the snapshot."""
        return f"{self.owner['metadata']['uid']}/{slot.key}"

    @property
    def first(self) -> Manifest:
        """One of its pods: they are alike in what decides about nodes."""
        return dict(self.slots[0].template) if self.slots else {"metadata": {}, "spec": {}}

    @property
    def selector(self) -> Mapping[str, str]:
        return self.first["spec"].get("nodeSelector") or {}


def entries_in(store: Store) -> dict[str, Entry]:
    """By uid whatever stands in a queue and has not ended; a new one gets its Workload."""
    return {entry.owner["metadata"]["uid"]: entry for entry in _entries(store)}


def _entries(store: Store) -> Iterator[Entry]:
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in store.of(POD.key):
        if not is_terminal(pod):
            pods[(controller_of(pod) or pod["metadata"])["uid"]].append(pod)
    for _key, owner in list(store.everything()):
        kind = kind_for(owner["apiVersion"], owner["kind"])
        if kind is not None and queue_of(owner):
            try:
                entry = _entry(store, owner, kind, pods[owner["metadata"]["uid"]])
            except (AttributeError, KeyError, TypeError, ValueError):  # as the controllers: it holds up no other one
                log.exception("sandbox.unreadable_object", uid=owner["metadata"]["uid"])
                continue
            if entry is not None:
                yield entry


def _entry(store: Store, owner: Manifest, kind: WorkloadKind, pods: Sequence[Manifest]) -> Entry | None:
    meta = owner["metadata"]
    workload = workload_of(store, {"kind": owner["kind"], **meta}, meta["namespace"])
    if is_terminal(owner) if owner["kind"] == "Pod" else is_finished(owner):
        if workload is not None and set_condition(workload, FINISHED, "True", at=store.now, reason="Succeeded"):
            store.touch(workload)
        return None
    slots = slots_of(owner, kind)
    if owner["kind"] == "Job":
        slots = slots[: int(owner["spec"].get("parallelism", 1))]
    workload = workload or add_workload(store, owner, Counter(role_of(slot.key) for slot in slots))
    entry = Entry(owner, kind, workload, slots, pods, "")
    return replace(entry, queue=_queue_named(store, owner, entry.selector))


def _queue_named(store: Store, owner: Manifest, selector: Mapping[str, str]) -> str:
    """Behind its LocalQueue: the ClusterQueue and that flavor of it whose nodes it selects, else the first."""
    local = store.find(KUEUE_LOCAL_QUEUE.key, queue_of(owner), owner["metadata"]["namespace"])
    found = store.find(KUEUE_QUEUE.key, local["spec"]["clusterQueue"]) if local else None
    groups = found["spec"].get("resourceGroups") or () if found else ()
    names = [str(flavor["name"]) for group in groups for flavor in group.get("flavors") or ()]
    if found is None or not names:
        return ""
    return f"{found['metadata']['name']}/{next((each for each in names if _fits(store, each, selector)), names[0])}"


def _fits(store: Store, name: str, selector: Mapping[str, str]) -> bool:
    flavor = store.find(KUEUE_FLAVOR.key, name)
    marks = ((flavor or {}).get("spec") or {}).get("nodeLabels") or {}
    return bool(marks) and marks.items() <= selector.items()


def snapshot_of(store: Store, dialect: Dialect, entries: Mapping[str, Entry]) -> Snapshot:
    """Queues and what stands in them; nodes, and what else runs there, only where a flavor has a topology."""
    queues = tuple(dialect.queues(store))
    flavors = list(dict.fromkeys(queue.pool for queue in queues))
    groups = tuple(_group(name, entry) for name, entry in entries.items())
    known = Snapshot(queues=queues, groups=groups, now=int(store.now.timestamp() * 1_000_000))
    if not (levels := levels_of(store, flavors)):
        return known
    nodes = tuple(nodes_of(store, flavor_of(store, flavors)))
    return replace(known, nodes=nodes, levels=levels, groups=(*groups, *_others(store, entries.values())))


def _group(name: str, entry: Entry) -> PodGroup:
    """What was let go holds its places, else what its pods hold, or what it asks for until there are some."""
    reserved = condition(entry.workload, RESERVED) or {}
    asked = tuple(Pod(entry.named(slot), requests_of(dict(slot.template))) for slot in entry.slots)
    return PodGroup(
        name=name,
        queue=entry.queue,
        namespace=entry.owner["metadata"]["namespace"],
        priority=entry.workload["spec"]["priority"],
        preemptible=True,
        pods=_held(entry, asked) if entry.holds else asked,
        min_member=len(asked),
        started=micros(reserved.get("lastTransitionTime")) if is_admitted(entry.workload) else None,
        created=micros(entry.owner["metadata"].get("creationTimestamp")),
        pool=entry.queue.partition("/")[2],
        node_selector=entry.selector,
        tolerations=tolerations_of(entry.first["spec"]),
        topology=asked_level(entry.first),
    )


def _held(entry: Entry, asked: tuple[Pod, ...]) -> tuple[Pod, ...]:
    if places_of(entry.workload):
        nodes = seats(entry.workload, (slot.key for slot in entry.slots))
        return tuple(replace(pod, node=node) for pod, node in zip(asked, nodes, strict=True))
    return tuple(map(_pod, entry.pods)) or asked


def _pod(pod: Manifest) -> Pod:
    return Pod(pod["metadata"]["uid"], requests_of(pod), pod["spec"].get("nodeName"), is_leaving(pod))


def _others(store: Store, entries: Iterable[Entry]) -> Iterator[PodGroup]:
    """Pods on nodes that stand in none of its queues."""
    known = {pod["metadata"]["uid"] for entry in entries for pod in entry.pods}
    for pod in store.of(POD.key):
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") and meta["uid"] not in known and not is_terminal(pod):
            yield PodGroup(meta["uid"], "", meta["namespace"], 0, preemptible=False, pods=(_pod(pod),))
