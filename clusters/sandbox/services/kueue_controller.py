"""Kueue's controller in the sandbox: one cycle of the model admits or evicts whole jobs.

Each has its Workload, whatever its kind, and counts whole: also a Deployment, whose pods the real one queues singly.

In pools with a topology it gives their pods places on nodes, too. Elsewhere these are kube-scheduler's work.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from clusters.flavours.kueue_capabilities import CONF, facts_of, fair_sharing
from clusters.flavours.registry import flavour_for
from clusters.ports.gateway import Manifest
from clusters.ports.objects import KUEUE_FLAVOR, KUEUE_LOCAL_QUEUE, KUEUE_QUEUE, POD
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.pods import (
    condition,
    condition_is_true,
    controller_of,
    is_leaving,
    is_terminal,
    requests_of,
    tolerations_of,
)
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox import rules as sandbox_rules
from clusters.sandbox.rules import Slot, slots_of
from clusters.sandbox.services import admission
from clusters.sandbox.services.controllers import is_finished
from clusters.sandbox.services.kueue_webhooks import (
    ADMITTED,
    FINISHED,
    GATE,
    RESERVED,
    add_workload,
    assign_nodes,
    assigned_nodes,
    clear_assignment,
    flavor_of,
    has_lost_node,
    is_admitted,
    levels_of,
    pin_to_node,
    pods_by_assigned_node,
    queue_of,
    required_level,
    role_of,
    set_held,
    topology_of,
    workload_of,
)
from clusters.sandbox.services.queues import QueueDialect, dialect_of, micros
from clusters.sandbox.services.scheduler import CycleCounts
from clusters.sandbox.services.snapshot import nodes_of
from clusters.sandbox.services.store import ObjectStore, set_condition
from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import QUOTA, Decision, Evict, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.snapshot import Pod, PodGroup, Snapshot

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueuedJob:
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
        return f"{self.owner['metadata']['uid']}/{slot.key}"

    @property
    def first(self) -> Manifest:
        """One of its pods: they are alike in what decides about nodes."""
        return dict(self.slots[0].template) if self.slots else {"metadata": {}, "spec": {}}

    @property
    def selector(self) -> Mapping[str, str]:
        return self.first["spec"].get("nodeSelector") or {}


def queued_jobs(store: ObjectStore) -> dict[str, QueuedJob]:
    """By uid what is queued and has not ended; a new one gets its Workload."""
    return {entry.owner["metadata"]["uid"]: entry for entry in _queued_jobs(store)}


def _queued_jobs(store: ObjectStore) -> Iterator[QueuedJob]:
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in store.of(POD.key):
        if not is_terminal(pod):
            pods[(controller_of(pod) or pod["metadata"])["uid"]].append(pod)
    for _key, owner in list(store.everything()):
        kind = kind_for(owner["apiVersion"], owner["kind"])
        if kind is not None and queue_of(owner):
            try:
                entry = _queued_job(store, owner, kind, pods[owner["metadata"]["uid"]])
            except (AttributeError, KeyError, TypeError, ValueError):  # as the controllers: it holds up no other one
                log.exception("sandbox.unreadable_object", uid=owner["metadata"]["uid"])
                continue
            if entry is not None:
                yield entry


def _queued_job(store: ObjectStore, owner: Manifest, kind: WorkloadKind, pods: Sequence[Manifest]) -> QueuedJob | None:
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
    entry = QueuedJob(owner, kind, workload, slots, pods, "")
    return replace(entry, queue=_queue_named(store, owner, entry.selector))


def _queue_named(store: ObjectStore, owner: Manifest, selector: Mapping[str, str]) -> str:
    """Behind its LocalQueue: the ClusterQueue and that flavor of it whose nodes it selects, else the first."""
    local = store.find(KUEUE_LOCAL_QUEUE.key, queue_of(owner), owner["metadata"]["namespace"])
    found = store.find(KUEUE_QUEUE.key, local["spec"]["clusterQueue"]) if local else None
    groups = found["spec"].get("resourceGroups") or () if found else ()
    names = [str(flavor["name"]) for group in groups for flavor in group.get("flavors") or ()]
    if found is None or not names:
        return ""
    return f"{found['metadata']['name']}/{next((each for each in names if _fits(store, each, selector)), names[0])}"


def _fits(store: ObjectStore, name: str, selector: Mapping[str, str]) -> bool:
    flavor = store.find(KUEUE_FLAVOR.key, name)
    marks = ((flavor or {}).get("spec") or {}).get("nodeLabels") or {}
    return bool(marks) and marks.items() <= selector.items()


def snapshot_of(store: ObjectStore, dialect: QueueDialect, entries: Mapping[str, QueuedJob]) -> Snapshot:
    """Queues and their workloads; nodes, and what else runs there, only where a flavor has a topology."""
    queues = tuple(dialect.queues(store))
    flavors = list(dict.fromkeys(queue.pool for queue in queues))
    groups = tuple(_group(name, entry) for name, entry in entries.items())
    configured = facts_of(store.find(CONF.kind.key, CONF.name, CONF.namespace))
    known = Snapshot(
        queues=queues,
        groups=groups,
        now=int(store.now.timestamp() * 1_000_000),
        fair_sharing=fair_sharing(configured),
    )
    if not (levels := levels_of(store, flavors)):
        return known
    nodes = tuple(nodes_of(store, flavor_of(store, flavors)))
    return replace(known, nodes=nodes, levels=levels, groups=(*groups, *_others(store, entries.values())))


def _group(name: str, entry: QueuedJob) -> PodGroup:
    """What was let go holds its places, else what its pods hold, or what it asks for until there are some."""
    reserved = condition(entry.workload, RESERVED) or {}
    preempts = QUOTA if sandbox_rules.preempts_in_kueue(reserved.get("message", "")) else None
    requested = tuple(
        Pod(entry.named(slot), requests_of(dict(slot.template)), nominated=preempts) for slot in entry.slots
    )
    return PodGroup(
        name=name,
        queue=entry.queue,
        namespace=entry.owner["metadata"]["namespace"],
        priority=entry.workload["spec"]["priority"],
        preemptible=True,
        pods=_held(entry, requested) if entry.holds else requested,
        min_member=len(requested),
        started=micros(reserved.get("lastTransitionTime")) if is_admitted(entry.workload) else None,
        created=micros(entry.owner["metadata"].get("creationTimestamp")),
        pool=entry.queue.partition("/")[2],
        node_selector=entry.selector,
        tolerations=tolerations_of(entry.first["spec"]),
        topology=required_level(entry.first),
    )


def _held(entry: QueuedJob, requested: tuple[Pod, ...]) -> tuple[Pod, ...]:
    if pods_by_assigned_node(entry.workload):
        nodes = assigned_nodes(entry.workload, (slot.key for slot in entry.slots))
        return tuple(replace(pod, node=node) for pod, node in zip(requested, nodes, strict=True))
    return tuple(map(_pod, entry.pods)) or requested


def _pod(pod: Manifest) -> Pod:
    return Pod(pod["metadata"]["uid"], requests_of(pod), pod["spec"].get("nodeName"), is_leaving(pod))


def _others(store: ObjectStore, entries: Iterable[QueuedJob]) -> Iterator[PodGroup]:
    """Pods on nodes that stand in none of its queues."""
    known = {pod["metadata"]["uid"] for entry in entries for pod in entry.pods}
    for pod in store.of(POD.key):
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") and meta["uid"] not in known and not is_terminal(pod):
            yield PodGroup(meta["uid"], "", meta["namespace"], 0, preemptible=False, pods=(_pod(pod),))


EVICTED: Final = "Evicted"
LOST: Final = "NodeFailures"
LOST_MESSAGE: Final = "Workload eviction triggered by unhealthy nodes"


def run(store: ObjectStore, *, flavour: str) -> CycleCounts:
    """Decide once for everything that waits in a queue; nothing where the scheduler does not queue whole jobs."""
    traits = flavour_for(flavour).traits
    dialect = dialect_of(traits)
    if not traits.queues_jobs or dialect is None:
        return CycleCounts()
    desk = _DecisionWriter(store, queued_jobs(store))
    desk.take_back()
    if all(entry.holds for entry in desk.entries.values()):
        return desk.counts
    for decision in cycle(snapshot_of(store, dialect, desk.entries), flavour=flavour):
        desk.carry_out(decision)
    return desk.counts


@dataclass(slots=True)
class _DecisionWriter:
    """Writes decisions into Workloads, and holds back or lets go what they stand for."""

    store: ObjectStore
    entries: Mapping[str, QueuedJob]
    counts: CycleCounts = field(default_factory=CycleCounts)
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
            if has_lost_node(self.store, entry.workload):
                self._say(entry, EVICTED, "True", LOST, LOST_MESSAGE)
                self._requeue(entry, LOST_MESSAGE)

    def _let_go(self, entry: QueuedJob, placements: Mapping[str, str]) -> None:
        given = {slot.key: placements[entry.named(slot)] for slot in entry.slots if entry.named(slot) in placements}
        if given:
            assign_nodes(entry.workload, entry.cluster_queue, given)
        self._say(entry, RESERVED, "True", "QuotaReserved", f"Quota reserved in ClusterQueue {entry.cluster_queue}")
        self._say(entry, ADMITTED, "True", "Admitted", "The workload is admitted")
        for kind in ("Preempted", EVICTED):
            if condition_is_true(entry.workload, kind):
                self._say(entry, kind, "False", "QuotaReserved", "Previously: preempted")
        self._hold(entry, held=False)

    def _evict(self, entry: QueuedJob, eviction: Evict) -> None:
        taker = self.entries[eviction.for_group]
        message = sandbox_rules.preempted_by_kueue(
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

    def _requeue(self, entry: QueuedJob, message: str) -> None:
        self._say(entry, RESERVED, "False", "Pending", message)
        self._say(entry, ADMITTED, "False", "NoReservation", "The workload has no reservation")
        clear_assignment(entry.workload)
        self._hold(entry, held=True)

    def _wait(self, entry: QueuedJob, wait: Wait) -> None:
        ends = self._evicts.get(wait.group.name, 0) or 1
        queue = queue_of(entry.owner)
        flavor = wait.group.pool
        topology = topology_of(self.store, flavor)
        pods = len(wait.group.waiting)
        message = sandbox_rules.waiting_in_kueue(
            wait.pend, queue=queue, flavor=flavor, topology=topology, pods=pods, evicts=ends
        )
        self._say(entry, RESERVED, "False", "Pending", message)
        self.counts.waiting += len(wait.group.waiting)

    def _hold(self, entry: QueuedJob, *, held: bool) -> None:
        """A job is suspended or resumed; pods of what cannot be are ended, or their gates opened."""
        if pointer := entry.kind.suspend:
            set_held(entry.owner, pointer, held=held)
            self.store.touch(entry.owner)
            return
        for pod in entry.pods:
            if held:
                admission.delete(self.store, pod)
            else:
                self._open(entry, pod)

    def _open(self, entry: QueuedJob, pod: Manifest) -> None:
        gates = pod["spec"].pop("schedulingGates", [])
        if left := [gate for gate in gates if gate != GATE]:
            pod["spec"]["schedulingGates"] = left
        pin_to_node(self.store, pod, entry.workload)
        self.store.touch(pod)

    def _say(self, entry: QueuedJob, kind: str, status: str, reason: str, message: str) -> None:
        if set_condition(entry.workload, kind, status, at=self.store.now, reason=reason, message=message):
            self.store.touch(entry.workload)
