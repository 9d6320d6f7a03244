"""Kueue's controller in the sandbox: one cycle of the model over its queues lets jobs go, or evicts them, as a whole.

Each object that names a LocalQueue has its Workload, whatever its kind, and counts whole: also of a Deployment, whose
pods the real one queues one by one. Where pods then find nodes is kube-scheduler's work.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from clusters.flavours import flavour_for
from clusters.kinds import WorkloadKind, kind_for
from clusters.kinds_core import KUEUE_FLAVOR, KUEUE_LOCAL_QUEUE, KUEUE_QUEUE, POD
from clusters.pods import condition, condition_is_true, controller_of, is_leaving, is_terminal, requests_of
from clusters.ports import Manifest
from clusters.sandbox import admission, wordings
from clusters.sandbox.blueprints import slots_of
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.kueue_webhooks import write
from clusters.sandbox.kueue_workloads import (
    ADMITTED,
    FINISHED,
    GATE,
    RESERVED,
    add_workload,
    is_admitted,
    queue_of,
    workload_of,
)
from clusters.sandbox.queues import dialect_of, micros
from clusters.sandbox.scheduler import Counts
from clusters.sandbox.statuses import is_finished
from clusters.sandbox.store import Store
from scheduling.cycle import cycle
from scheduling.decisions import Cause, Decision, Evict, Start, Wait
from scheduling.model import Pod, PodGroup, Snapshot

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One object in a queue. `pods`: those of it that have not ended."""

    owner: Manifest
    kind: WorkloadKind
    workload: Manifest
    asked: tuple[Pod, ...]
    pods: Sequence[Manifest]
    queue: str

    @property
    def holds(self) -> bool:
        """Does it count against its queue?"""
        return is_admitted(self.workload) or any(pod["spec"].get("nodeName") for pod in self.pods)


def run(store: Store, *, flavour: str) -> Counts:
    """Decide once for everything that waits in a queue; nothing where the scheduler does not queue whole jobs."""
    traits = flavour_for(flavour).traits
    dialect = dialect_of(traits)
    if not traits.queues_jobs or dialect is None:
        return Counts()
    entries = {entry.owner["metadata"]["uid"]: entry for entry in _entries(store)}
    if all(entry.holds for entry in entries.values()):
        return Counts()
    snapshot = Snapshot(
        queues=tuple(dialect.queues(store)),
        groups=tuple(_group(name, entry) for name, entry in entries.items()),
        now=int(store.now.timestamp() * 1_000_000),
    )
    desk = _Desk(store, entries, snapshot)
    for decision in cycle(snapshot, flavour=flavour):
        desk.carry_out(decision)
    return desk.counts


def _entries(store: Store) -> Iterator[_Entry]:
    """Whatever stands in a queue and has not ended; a new one gets its Workload."""
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


def _entry(store: Store, owner: Manifest, kind: WorkloadKind, pods: Sequence[Manifest]) -> _Entry | None:
    meta = owner["metadata"]
    workload = workload_of(store, {"kind": owner["kind"], **meta}, meta["namespace"])
    if is_terminal(owner) if owner["kind"] == "Pod" else is_finished(owner):
        if workload is not None and set_condition(workload, FINISHED, "True", at=store.now, reason="Succeeded"):
            store.touch(workload)
        return None
    slots = slots_of(owner, kind)
    if owner["kind"] == "Job":
        slots = slots[: int(owner["spec"].get("parallelism", 1))]
    asked = tuple(Pod(f"{meta['uid']}/{slot.key}", requests_of(dict(slot.template))) for slot in slots)
    workload = workload or add_workload(store, owner, kind, len(asked))
    selector = (slots[0].template["spec"].get("nodeSelector") or {}) if slots else {}
    return _Entry(owner, kind, workload, asked, pods, _queue_named(store, owner, selector))


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


def _group(name: str, entry: _Entry) -> PodGroup:
    """What was let go holds what its pods hold, or what it asks for until there are some."""
    live = tuple(
        Pod(pod["metadata"]["uid"], requests_of(pod), pod["spec"].get("nodeName"), is_leaving(pod))
        for pod in entry.pods
    )
    reserved = condition(entry.workload, RESERVED) or {}
    return PodGroup(
        name=name,
        queue=entry.queue,
        namespace=entry.owner["metadata"]["namespace"],
        priority=entry.workload["spec"]["priority"],
        preemptible=True,
        pods=live if live and entry.holds else entry.asked,
        min_member=len(entry.asked),
        started=micros(reserved.get("lastTransitionTime")) if is_admitted(entry.workload) else None,
        created=micros(entry.owner["metadata"].get("creationTimestamp")),
        pool=entry.queue.partition("/")[2],
    )


@dataclass(slots=True)
class _Desk:
    """Writes decisions into Workloads, and holds back or lets go what they stand for."""

    store: Store
    entries: Mapping[str, _Entry]
    snapshot: Snapshot
    counts: Counts = field(default_factory=Counts)
    _evicts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def carry_out(self, decision: Decision) -> None:
        match decision:
            case Start():
                self._let_go(self.entries[decision.group.name])
            case Evict():
                self._evicts[decision.for_group] += 1
                self._evict(self.entries[decision.victim.name], decision)
            case Wait():
                self._wait(self.entries[decision.group.name], decision)

    def _let_go(self, entry: _Entry) -> None:
        self._say(entry, RESERVED, "True", "QuotaReserved", f"Quota reserved in ClusterQueue {_cluster_queue(entry)}")
        self._say(entry, ADMITTED, "True", "Admitted", "The workload is admitted")
        for kind in ("Preempted", "Evicted"):
            if condition_is_true(entry.workload, kind):
                self._say(entry, kind, "False", "QuotaReserved", "Previously: preempted")
        self._hold(entry, held=False)

    def _evict(self, entry: _Entry, eviction: Evict) -> None:
        taker = self.entries[eviction.for_group]
        message = wordings.preempted_by_kueue(
            workload=taker.workload["metadata"]["uid"],
            job=eviction.for_group,
            cause=eviction.cause,
            queues=(_cluster_queue(taker), _cluster_queue(entry)),
        )
        reason = "InClusterQueue" if eviction.cause is Cause.PREEMPT else "InCohortReclamation"
        self._say(entry, "Preempted", "True", reason, message)
        self._say(entry, "Evicted", "True", "Preempted", message)
        self._say(entry, RESERVED, "False", "Pending", message)
        self._say(entry, ADMITTED, "False", "NoReservation", "The workload has no reservation")
        self.counts.evicted += len(eviction.pods)
        self._hold(entry, held=True)

    def _wait(self, entry: _Entry, wait: Wait) -> None:
        ends = self._evicts.get(wait.group.name, 0) or 1
        queue = queue_of(entry.owner)
        message = wordings.waiting_in_kueue(wait.pend, queue=queue, flavor=wait.group.pool, evicts=ends)
        self._say(entry, RESERVED, "False", "Pending", message)
        self.counts.waiting += len(wait.group.waiting)

    def _hold(self, entry: _Entry, *, held: bool) -> None:
        """A job is suspended or resumed; pods of what cannot be are ended, or their gates opened."""
        if pointer := entry.kind.suspend:
            write(entry.owner, pointer, held=held)
            self.store.touch(entry.owner)
            return
        for pod in entry.pods:
            if held:
                admission.delete(self.store, pod)
            else:
                self._open(pod)

    def _open(self, pod: Manifest) -> None:
        gates = pod["spec"].pop("schedulingGates", [])
        if left := [gate for gate in gates if gate != GATE]:
            pod["spec"]["schedulingGates"] = left
        self.store.touch(pod)

    def _say(self, entry: _Entry, kind: str, status: str, reason: str, message: str) -> None:
        if set_condition(entry.workload, kind, status, at=self.store.now, reason=reason, message=message):
            self.store.touch(entry.workload)


def _cluster_queue(entry: _Entry) -> str:
    return entry.queue.partition("/")[0]
