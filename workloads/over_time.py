"""What a workload had and held at given moments, from its pods' own times. Only what was seen is told."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from clusters.models import ObservedPod
from clusters.samples import Name
from clusters.series import Point, Window
from workloads.lifecycle import ENDED
from workloads.models import Workload

PODS: Final = "pods"
RUNNING: Final = "running"
CPU_ASKED: Final = "cpu_asked"
MEMORY_ASKED: Final = "memory_asked"
TIMES: Final = ("created_at", "started_at", "ended_at", "gone_at", "phase", "gpu_milli", "cpu_milli", "memory_bytes")


def known_since(workload: Workload, now: datetime) -> datetime:
    """From when on nothing of it is missing: pods of ended workloads are forgotten some days after they have gone."""
    if workload.deleted_at is None and workload.phase not in ENDED:
        return workload.created_at
    return max(workload.created_at, now - timedelta(days=settings.RUNG_KEEP_PODS_DAYS))


def points(pods: Iterable[ObservedPod], window: Window, *, since: datetime, now: datetime) -> list[Point]:
    """How it stood at the end of each part of the window, from `since` until now."""
    rows = list(pods)
    width = (window.end - window.start) / window.parts if window.parts else timedelta()
    moments = (window.start + width * (number + 1) for number in range(window.parts))
    return [_point(rows, at) for at in moments if since <= at <= now]


def _point(pods: Sequence[ObservedPod], at: datetime) -> Point:
    there = [pod for pod in pods if pod.created_at <= at and not _over(pod.gone_at, at)]
    live = [pod for pod in there if not _over(pod.ended_at, at)]
    started = [pod for pod in live if pod.started_at is not None and pod.started_at <= at]
    figures = {
        PODS: len(there),
        RUNNING: sum(1 for pod in started if pod.phase != "Pending"),
        Name.GPU_HELD.value: sum(pod.gpu_milli for pod in started),
        CPU_ASKED: sum(pod.cpu_milli for pod in live),
        MEMORY_ASKED: sum(pod.memory_bytes for pod in live),
    }
    return Point(at, figures)


def _over(end: datetime | None, at: datetime) -> bool:
    return end is not None and end <= at
