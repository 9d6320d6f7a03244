"""Logs that nobody wrote: lines made from a pod's uid and run time. The first line says that they are simulated."""

import math
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from clusters.models import SandboxClock
from clusters.pods import moment_of, stamp
from clusters.ports import Manifest
from clusters.sandbox.runtime import checkpoint_seconds, run_seconds

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
