"""The sandbox's kubelets: bound pods start, run for their time, write logs and end.

Kinds that serve run for ever. For the others the annotation `rung.dev/run-seconds` says it, else it is between 10
minutes and 6 hours, drawn from the uid of the pod's controller, so that the pods of one job end together.
"""

import math
import re
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from clusters.ports.gateway import Manifest
from clusters.ports.objects import POD
from clusters.ports.pods import annotations, controller_of, is_terminal, moment_of, phase, stamp
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.rules import RUN_SECONDS
from clusters.sandbox.services.store import NORMAL, WARNING, ObjectStore, record_event, set_condition

EXIT_CODE: Final = "rung.dev/exit-code"  # annotation: how the container ends; 0 when absent
CHECKPOINT_INTERVAL: Final = "rung.dev/checkpoint-interval"  # annotation: 10m, 1h30m
_PART: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SHORTEST: Final = 600
LONGEST: Final = 6 * 3600
ENDLESS: Final = frozenset(
    {
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "Notebook",
        "DevWorkspace",
        "RayCluster",
        "RayService",
        "Service",
        "InferenceService",
        "LeaderWorkerSet",
        "SeldonDeployment",
        "NIMService",
        "DynamoGraphDeployment",
        "VirtualMachineInstance",
    }
)


def run_seconds(pod: Manifest) -> int | None:
    """Seconds of the sandbox's time; None: until it is stopped."""
    owner = controller_of(pod)
    if owner and owner["kind"] in ENDLESS:
        return None
    text = annotations(pod).get(RUN_SECONDS, "")
    if text.isascii() and text.isdecimal():
        return int(text[:9])
    if not owner and pod["spec"].get("restartPolicy", "Always") == "Always":
        return None
    uid = owner["uid"] if owner else pod["metadata"]["uid"]
    return SHORTEST + zlib.crc32(str(uid).encode()) % (LONGEST - SHORTEST)


def checkpoint_seconds(pod: Manifest) -> int:
    """The rhythm in which the work says that it saves itself; 0 when it says nothing."""
    parts = _PART.findall(annotations(pod).get(CHECKPOINT_INTERVAL, ""))
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def exit_code(pod: Manifest) -> int:
    """What the container's process returns at the end of its run time."""
    text = annotations(pod).get(EXIT_CODE, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0


HEADER: Final = "# Simulated by Rung's sandbox: no container ran, these lines were made from the pod's age."
STEP_SECONDS: Final = 2
ENDED_WELL: Final = "training finished"
PATHS: Final = ("/healthz", "/v1/models", "/v1/completions", "/metrics")


def lines(pod: Manifest, *, now: datetime, clock: SandboxClock, tail: int) -> list[str]:
    """At most `tail` lines with the header first; nothing but the header before the pod has started."""
    started = moment_of(pod.get("status", {}).get("startTime"))
    if started is None or tail < 2:
        return [HEADER][:tail]
    ended = _ended(pod)
    elapsed = clock.passed(started, ended or now)
    steps = max(int(elapsed // STEP_SECONDS), 0)
    last = list(_last_line(pod)) if ended else []
    first = max(steps - tail + 1 + len(last), 0)
    body = [_line(pod, step, clock.moment(started, step * STEP_SECONDS)) for step in range(first, steps)]
    return [HEADER, *body, *last]


def _ended(pod: Manifest) -> datetime | None:
    for status in pod.get("status", {}).get("containerStatuses") or []:
        return moment_of(((status.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    return None


def _last_line(pod: Manifest) -> Iterator[str]:
    status = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    code = status.get("exitCode", 0)
    yield f"{status['finishedAt']} {ENDED_WELL if code == 0 else f'RuntimeError: process exited with code {code}'}"


def _line(pod: Manifest, step: int, at: datetime) -> str:
    noise = zlib.crc32(f"{pod['metadata']['uid']}/{step}".encode()) % 1000
    if run_seconds(pod) is None:
        return f"{stamp(at)} GET {PATHS[noise % len(PATHS)]} 200 {5 + noise % 90}ms"
    rhythm = checkpoint_seconds(pod) // STEP_SECONDS
    if rhythm and step and step % rhythm == 0:
        return f"{stamp(at)} saved checkpoint step-{step}"
    loss = 1.6 + 7.4 * math.exp(-step / 600) + noise / 8000
    return f"{stamp(at)} step {step} loss {loss:.4f} {900 + noise // 4} tokens/s"


READY = ("Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")


def run(store: ObjectStore) -> None:
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


def _start(store: ObjectStore, pod: Manifest) -> None:
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
    record_event(store, pod, "Started", "Started container (simulated)", source=source)


def _end_when_due(store: ObjectStore, pod: Manifest) -> None:
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
    record_event(store, pod, reason, f"Container ended with exit code {code} (simulated)", source="kubelet", kind=kind)


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
