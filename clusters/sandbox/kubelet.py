"""The sandbox's kubelets: bound pods start, run for their time and end; leaving pods go when their grace is over."""

from clusters.kinds_core import POD
from clusters.pods import is_terminal, moment_of, phase, stamp
from clusters.ports import Manifest
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.journal import NORMAL, WARNING, note
from clusters.sandbox.runtime import exit_code, run_seconds
from clusters.sandbox.store import Store

READY = ("Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")


def run(store: Store) -> None:
    """One look at every pod that has a node."""
    for pod in store.of(POD.key):
        if not pod["spec"].get("nodeName"):
            continue
        if ends := moment_of(pod["metadata"].get("deletionTimestamp")):
            if store.now >= ends:
                store.remove(pod)
        elif phase(pod) == "Pending":
            _start(store, pod)
        elif not is_terminal(pod):
            _end_when_due(store, pod)


def _start(store: Store, pod: Manifest) -> None:
    at = stamp(store.now)
    status = pod["status"]
    status |= {
        "phase": "Running",
        "startTime": at,
        "containerStatuses": _containers(pod, {"running": {"startedAt": at}}),
    }
    for kind in READY:
        set_condition(pod, kind, "True", at=store.now)
    store.touch(pod)
    source = f"kubelet, {pod['spec']['nodeName']}"
    note(store, pod, "Started", "Started container (simulated)", source=source)


def _end_when_due(store: Store, pod: Manifest) -> None:
    started = moment_of(pod["status"].get("startTime")) or store.now
    seconds = run_seconds(pod)
    if seconds is None or store.since(started) < seconds:
        return
    code = exit_code(pod)
    word = "Failed" if code else "Succeeded"
    reason = "Error" if code else "Completed"
    terminated = {
        "exitCode": code,
        "reason": reason,
        "startedAt": stamp(started),
        "finishedAt": stamp(store.now),
    }
    pod["status"] |= {"phase": word, "containerStatuses": _containers(pod, {"terminated": terminated})}
    for kind in ("ContainersReady", "Ready"):
        set_condition(pod, kind, "False", at=store.now, reason="PodCompleted")
    store.touch(pod)
    kind = WARNING if code else NORMAL
    note(store, pod, reason, f"Container ended with exit code {code} (simulated)", source="kubelet", kind=kind)


def _containers(pod: Manifest, state: dict[str, object]) -> list[dict[str, object]]:
    ready = "running" in state
    return [
        {
            "name": each.get("name", "main"),
            "image": each.get("image", ""),
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
        for each in pod["spec"].get("containers") or []
    ]
