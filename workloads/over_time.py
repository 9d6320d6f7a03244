"""What a workload had and held at given moments, from its pods' own times. Only what was seen is told."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import QuerySet

from clusters.models import ObservedPod
from clusters.samples import Name
from clusters.series import Point, Window
from workloads.lifecycle import ENDED
from workloads.models import Workload

PODS: Final = "pods"
RUNNING: Final = "running"
CPU_ASKED: Final = "cpu_asked"
MEMORY_ASKED: Final = "memory_asked"
HELD: Final = Name.GPU_HELD.value
FIGURES: Final = (PODS, RUNNING, HELD, CPU_ASKED, MEMORY_ASKED)
TIMES: Final = ("created_at", "started_at", "ended_at", "gone_at", "phase", "gpu_milli", "cpu_milli", "memory_bytes")


def known_since(workload: Workload, now: datetime) -> datetime:
    """From when on nothing of it is missing: pods of ended workloads are forgotten some days after they have gone."""
    if workload.deleted_at is None and workload.phase not in ENDED:
        return workload.created_at
    return max(workload.created_at, now - timedelta(days=settings.RUNG_KEEP_PODS_DAYS))


def points(pods: QuerySet[ObservedPod], window: Window, *, since: datetime, now: datetime) -> list[Point]:
    """How it stood at the end of each part of the window, from `since` until now. Each pod is read once."""
    width = (window.end - window.start) / window.parts if window.parts else timedelta()
    parts = (window.start + width * (number + 1) for number in range(window.parts))
    moments = [at for at in parts if since <= at <= now]
    if not moments:
        return []
    steps: list[Counter[str]] = [Counter() for _at in (*moments, None)]
    for pod in pods.filter(created_at__lte=moments[-1]).exclude(gone_at__lte=moments[0]).iterator():
        for begin, end, figures in _spans(pod):
            first, last = bisect_left(moments, begin), len(moments) if end is None else bisect_left(moments, end)
            if first < last:
                steps[first].update(figures)
                steps[last].subtract(figures)
    return [
        Point(at, {name: found[name] for name in FIGURES}) for at, found in zip(moments, _sums(steps), strict=False)
    ]


def _spans(pod: ObservedPod) -> Iterator[tuple[datetime, datetime | None, Mapping[str, int]]]:
    """What it adds to the figures, from when until when. Its end may be seen before or after its going."""
    over = min((at for at in (pod.ended_at, pod.gone_at) if at is not None), default=None)
    yield pod.created_at, pod.gone_at, {PODS: 1}
    yield pod.created_at, over, {CPU_ASKED: pod.cpu_milli, MEMORY_ASKED: pod.memory_bytes}
    if pod.started_at is not None:
        held = {HELD: pod.gpu_milli, RUNNING: int(pod.phase != "Pending")}
        yield max(pod.created_at, pod.started_at), over, held


def _sums(steps: Iterable[Counter[str]]) -> Iterator[Counter[str]]:
    """What stands after each step."""
    standing: Counter[str] = Counter()
    for step in steps:
        standing.update(step)
        yield standing
