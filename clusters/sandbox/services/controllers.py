"""The sandbox's controller manager: job objects get their pods and a status.

Job, Kubeflow and JobSet get their own condition types, RayJob its two words, Workflow its phase; every other kind
gets conditions of the common shape (Running, Succeeded, Failed, Suspended).

One generic controller replaces every operator: it reads `clusters.ports.workload_kinds` to find what a kind asks
for. A CronJob and a ScheduledWorkflow run once, at once. A bare Pod has no controller: it is not recreated.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from zlib import crc32

import structlog

from clusters.ports.gateway import ClusterError, Manifest
from clusters.ports.objects import NAMESPACE, NODE, POD, kind_of
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.pods import annotations, controller_of, is_leaving, is_terminal, phase, stamp
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox.rules import MOST_PODS, SLOT, Slot, pod_for, slots_of
from clusters.sandbox.services import admission
from clusters.sandbox.services.kubelet import ENDLESS
from clusters.sandbox.services.store import WARNING, ObjectStore, record_event

COMPLETE_WORD: Final = {"Job": "Complete", "JobSet": "Completed", "CronJob": "Complete"}
FINISHED: Final = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
RAY_WORDS: Final = {"Succeeded": "SUCCEEDED", "Failed": "FAILED", "Running": "RUNNING"}
SERVING: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The state of an object: one of Succeeded, Failed, Suspended, Running or Pending, and why."""

    word: str
    reason: str = ""
    message: str = ""


def is_finished(owner: Manifest) -> bool:
    conditions: Sequence[Mapping[str, Any]] = (owner.get("status") or {}).get("conditions") or []
    return any(each["type"] in FINISHED and each["status"] == "True" for each in conditions)


def status_of(owner: Manifest, progress: JobProgress, pods: Sequence[Manifest], *, at: str) -> dict[str, Any]:
    """The whole status. Transition times of conditions that stay as they are stay too."""
    kind = owner["kind"]
    word = COMPLETE_WORD.get(kind, "Succeeded") if progress.word == "Succeeded" else progress.word
    status: dict[str, Any] = {**_counts(kind, pods), "conditions": _conditions(owner, word, progress, at)}
    if kind == "RayJob":
        status |= {"jobStatus": RAY_WORDS.get(progress.word, "PENDING"), "jobDeploymentStatus": progress.word}
    elif kind == "Workflow":
        status["phase"] = progress.word
    elif kind == "Job" and progress.word == "Succeeded":
        status["completionTime"] = (owner.get("status") or {}).get("completionTime", at)
    return status


def _counts(kind: str, pods: Sequence[Manifest]) -> dict[str, Any]:
    present = [phase(pod) for pod in pods if not is_leaving(pod)]
    running, pending = present.count("Running"), present.count("Pending")
    if kind in SERVING:
        return {"replicas": running + pending, "readyReplicas": running, "availableReplicas": running}
    return {
        "active": running + pending,
        "ready": running,
        "succeeded": present.count("Succeeded"),
        "failed": sum(1 for pod in pods if phase(pod) == "Failed"),
    }


def _conditions(owner: Manifest, word: str, progress: JobProgress, at: str) -> list[dict[str, Any]]:
    known = {each["type"]: each for each in (owner.get("status") or {}).get("conditions") or []}
    wanted = dict.fromkeys(known, "False") | {word: "True"}
    return [_condition(known.get(kind), kind, value, progress, at) for kind, value in wanted.items()]


def _condition(old: Mapping[str, Any] | None, kind: str, value: str, progress: JobProgress, at: str) -> dict[str, Any]:
    reason, message = (progress.reason or kind, progress.message) if value == "True" else ("", "")
    if old and (old["status"], old["reason"], old["message"]) == (value, reason, message):
        return dict(old)
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": at}


log = structlog.get_logger(__name__)

# Their pods have names that tell the replica, so a new one waits until the old one has gone.
NAMED_BY_SLOT: Final = frozenset(
    {"StatefulSet", "LeaderWorkerSet", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "JAXJob"}
)
SOURCE: Final = {
    "Job": "job-controller",
    "StatefulSet": "statefulset-controller",
    "Deployment": "replicaset-controller",
}
BACKOFF_LIMIT: Final = 6
KEPT_PODS: Final = 500  # ended ones, for their logs


def run(store: ObjectStore) -> None:
    """Collect what lost its owner, namespace or node; then bring every job object's pods to what it asks for."""
    _collect(store)
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in store.of(POD.key):
        if owner := controller_of(pod):
            pods[owner["uid"]].append(pod)
    for _key, manifest in list(store.everything()):
        kind = kind_for(manifest["apiVersion"], manifest["kind"])
        if kind is not None and manifest["kind"] != "Pod":
            _run_one(_Controller(store, manifest, kind, pods[manifest["metadata"]["uid"]]))


def _run_one(controller: "_Controller") -> None:
    """An object that no controller understands stays as it is and holds up no other one."""
    try:
        controller.run()
    except (AttributeError, KeyError, TypeError, ValueError):
        log.exception("sandbox.unreadable_object", uid=controller.owner["metadata"]["uid"])


def _collect(store: ObjectStore) -> None:
    """Garbage collection in the background, as for an ordinary delete; and of the oldest pods of finished objects."""
    namespaces = {each["metadata"]["name"] for each in store.of(NAMESPACE.key)}
    nodes = {each["metadata"]["name"] for each in store.of(NODE.key)}
    uids = {manifest["metadata"]["uid"] for _key, manifest in store.everything()}
    for _key, manifest in list(store.everything()):
        meta = manifest["metadata"]
        owner = controller_of(manifest)
        lost = kind_of(manifest).namespaced and meta.get("namespace") not in namespaces
        if lost or (manifest["kind"] == "Pod" and _lost_node(manifest, nodes)):
            store.remove(manifest)
        elif owner and owner["uid"] not in uids:
            admission.delete(store, manifest)
    ended = [pod for pod in store.of(POD.key) if is_terminal(pod) and _is_done(store, pod)]
    for pod in ended[: -KEPT_PODS or None]:
        store.remove(pod)


def _is_done(store: ObjectStore, pod: Manifest) -> bool:
    owner = controller_of(pod)
    found = store.by_uid(owner["uid"]) if owner else None
    return found is not None and is_finished(found)


def _lost_node(pod: Manifest, nodes: set[str]) -> bool:
    name = pod["spec"].get("nodeName")
    return bool(name) and name not in nodes and not is_terminal(pod)


@dataclass(slots=True)
class _Controller:
    """One job object and its pods during one tick."""

    store: ObjectStore
    owner: Manifest
    kind: WorkloadKind
    pods: list[Manifest]
    refusal: str = ""

    def run(self) -> None:
        if is_finished(self.owner):
            return
        if self._suspended() or not self._failures_left():
            self._end(self.pods)
        else:
            self._fill(slots_of(self.owner, self.kind))
        self._write_status()

    def _suspended(self) -> bool:
        node: Any = self.owner
        for step in (self.kind.suspend or "").split("/")[1:]:
            node = node.get(step) or {}
        return node is True

    def _failures_left(self) -> bool:
        """Only a Job tries again after a failure; an eviction is none, since an evicted pod is deleted."""
        failed = sum(1 for pod in self.pods if phase(pod) == "Failed")
        limit = self.owner["spec"].get("backoffLimit", BACKOFF_LIMIT) if self.owner["kind"] == "Job" else 0
        return failed <= limit

    def _end(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            if not is_leaving(pod) and not is_terminal(pod):
                admission.delete(self.store, pod)

    def _fill(self, slots: Sequence[Slot]) -> None:
        """Create what is missing, end what is too much. Failed pods stay to be looked at and hold no slot."""
        wanted = {slot.key for slot in slots}
        held: dict[str, Manifest] = {}
        for pod in self.pods:
            if not is_leaving(pod) and phase(pod) != "Failed":
                held[annotations(pod).get(SLOT, "")] = pod
        self._end([pod for key, pod in held.items() if key not in wanted])
        active = sum(1 for pod in held.values() if not is_terminal(pod))
        for slot in slots:
            if slot.key not in held and not self.refusal and active < self._most_active():
                self._create(slot)
                active += 1

    def _most_active(self) -> int:
        """A Job may want more completions than pods at a time."""
        return int(self.owner["spec"].get("parallelism", 1)) if self.owner["kind"] == "Job" else MOST_PODS

    def _create(self, slot: Slot) -> None:
        name = self._name(slot)
        if self.store.find(POD.key, name, self.owner["metadata"]["namespace"]):
            return
        try:
            pod = admission.create(self.store, pod_for(slot, self.owner, name))
        except ClusterError as error:
            self.refusal = f"Error creating: {error.message}"
        else:
            self.pods.append(pod)

    def _name(self, slot: Slot) -> str:
        name = self.owner["metadata"]["name"][:180]
        if self.owner["kind"] == "StatefulSet":
            return f"{name}-{slot.index}"
        if self.owner["kind"] in NAMED_BY_SLOT:
            return f"{name}-{slot.key.lower()}"
        namespace = self.owner["metadata"]["namespace"]
        return next(each for each in self._names(slot, name) if not self.store.find(POD.key, each, namespace))

    def _names(self, slot: Slot, name: str) -> Iterator[str]:
        """The same names in the same order every time, so that a refusal reads the same at every try."""
        for number in count():
            seed = f"{self.owner['metadata']['uid']}/{slot.key}/{number}"
            yield f"{name}-{crc32(seed.encode()) % 0x100000:05x}"

    def _progress(self) -> JobProgress:
        if self._suspended():
            return JobProgress("Suspended", "JobSuspended", "Job suspended")
        if not self._failures_left():
            return JobProgress("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if self.refusal:
            return JobProgress("Pending", "FailedCreate", self.refusal)
        here = [phase(pod) for pod in self.pods if not is_leaving(pod) and phase(pod) != "Failed"]
        slots = len(slots_of(self.owner, self.kind))
        if slots and here.count("Succeeded") >= slots and self.owner["kind"] not in ENDLESS:
            return JobProgress("Succeeded", "CompletionsReached", "Reached expected number of succeeded pods")
        return JobProgress("Running" if "Running" in here or "Succeeded" in here else "Pending")

    def _write_status(self) -> None:
        progress = self._progress()
        old = self.owner.get("status") or {}
        self._announce(progress, old)
        status = status_of(self.owner, progress, self.pods, at=stamp(self.store.now))
        if status != old:
            self.owner["status"] = status
            self.store.touch(self.owner)

    def _announce(self, progress: JobProgress, old: Mapping[str, Any]) -> None:
        """An event for what is new: a refused pod, an end."""
        before = {(each["type"], each["message"]) for each in old.get("conditions") or [] if each["status"] == "True"}
        source = SOURCE.get(self.owner["kind"], f"{self.owner['kind'].lower()}-controller")
        if progress.reason == "FailedCreate" and (progress.word, progress.message) not in before:
            record_event(self.store, self.owner, "FailedCreate", progress.message, source=source, kind=WARNING)
        elif progress.word == "Succeeded":
            record_event(self.store, self.owner, "Completed", "Job completed", source=source)
        elif progress.word == "Failed":
            record_event(self.store, self.owner, progress.reason, progress.message, source=source, kind=WARNING)
