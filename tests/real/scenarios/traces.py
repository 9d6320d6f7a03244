"""A seeded trace of submissions, played on a real scheduler in real time, and the same trace in the replay model.

A fake pod runs for the time in its annotation. One that is evicted is submitted again once it is gone and runs from the
beginning, as in the model. The model gets the times that were measured: when each pod came, how long it occupied its
GPUs, and how long victims took to go.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median
from typing import Final

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import POD
from scheduling.forecast.replay import ClusterReplay, RecordedSubmission
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Snapshot, SnapshotNode
from tests.real.scenarios.objects import class_name
from tests.support.kube import KubeClient
from tests.support.lab import GPUS, NODES, POOL

PRIORITIES: Final = (25, 80, 150)
SIZES: Final = (1, 2, 4, 8)
LENGTHS: Final = (1.0, 4.0)
"""Seconds, of the shortest and the longest run."""
EXIT_AFTER: Final = 0.5
"""Seconds that a victim takes to go."""
BLUR: Final = 50
"""Milliseconds by which times are known."""
REPLAYS: Final = 20
LOOK: Final = 0.03
PATIENCE: Final = 120.0
SPACE: Final = "replayed"
QUOTA: Final = NODES * GPUS
"""All GPUs."""
CYCLE: Final = 200
"""Milliseconds from one decision of the lab's Volcano or KAI to the next."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A pod, or a gang of `workers`. at, length: seconds; gpus: of each pod."""

    name: str
    at: float
    length: float
    gpus: int
    priority: int
    queue: str = SPACE
    workers: int = 1

    @property
    def whole(self) -> int:
        """GPUs of all its pods."""
        return self.gpus * self.workers


def trace(seed: int, *, load: float, count: int, workers: Sequence[int] = (1,), most: int = QUOTA) -> list[Submission]:
    """The same for ever: so much work comes at a steady rate that the GPUs are wanted `load` times.

    workers: of which one is drawn for each. most: GPUs of a submission.
    """
    chance, sizes = Random(seed), Random(seed)
    drawn = [(chance.uniform(*LENGTHS), chance.choice(SIZES), chance.choice(PRIORITIES)) for _ in range(count)]
    gangs = [sizes.choice(workers) for _ in drawn]
    span = sum(each[0] * each[1] * pods for each, pods in zip(drawn, gangs, strict=True)) / (QUOTA * load)
    times = sorted(chance.uniform(0, span) for _ in drawn)
    return [
        Submission(f"s{number:02}", at, length, min(gpus, most // pods), priority, workers=pods)
        for number, (at, (length, gpus, priority), pods) in enumerate(zip(times, drawn, gangs, strict=True))
    ]


@dataclass(slots=True)
class Played:
    """What became of a submission, in milliseconds since the trace began.

    cut_short: how long each evicted run had run. start: of the present or last run. leaving: since when it is evicted.
    """

    came: int | None = None
    first_start: int | None = None
    start: int | None = None
    finished: int | None = None
    cut_short: list[int] = field(default_factory=list)
    leaving: int | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """What became of a whole trace. lost: GPU-seconds. cut_short: milliseconds that each evicted run had run."""

    starts: int
    lost: float
    cut_short: Sequence[int]
    waits: Mapping[int, float]

    @property
    def evictions(self) -> int:
        return len(self.cut_short)

    def longer(self, milliseconds: int) -> int:
        """Evictions of runs that had run for at least so long."""
        return sum(each >= milliseconds for each in self.cut_short)

    def __str__(self) -> str:
        waits = ", ".join(f"{priority}: {wait:.1f} s" for priority, wait in self.waits.items())
        longer = ", ".join(f"{self.longer(least)} of {least} ms or more" for least in (250, 500))
        counts = f"{self.starts} starts, {self.evictions} evictions ({longer})"
        return f"{counts}, {self.lost:.0f} GPU-seconds lost, mean waits by priority: {waits}"


def together(parts: Iterable[Amounts]) -> Amounts:
    """What became of several traces."""
    found = list(parts)
    waits = {priority: mean(each.waits[priority] for each in found) for priority in found[0].waits}
    cut_short = sorted(ran for each in found for ran in each.cut_short)
    return Amounts(sum(each.starts for each in found), sum(each.lost for each in found), cut_short, waits)


def shares_of(submissions: Iterable[Submission]) -> dict[str, tuple[str, int]]:
    """Department and deserved GPUs of each queue, departments first. Queues deserve equal parts of all GPUs.

    The department is what is before a dot in the name of a queue; one without a dot has none.
    """
    names = sorted({each.queue for each in submissions})
    deserved = QUOTA // len(names)
    projects = {name: (name.rpartition(".")[0], deserved) for name in names}
    departments = Counter(department for department, _deserved in projects.values() if department)
    return {**{name: ("", deserved * count) for name, count in departments.items()}, **projects}


class Player(ABC):
    """Plays a trace in real time; the subclass knows how one scheduler is asked, and how its state is read."""

    def __init__(self, admin: KubeClient, submissions: Sequence[Submission]) -> None:
        self.admin = admin
        self.by_name = {each.name: each for each in submissions}
        self.played = {each.name: Played() for each in submissions}
        self.left: list[int] = []
        """How long each victim took to go."""
        self._zero = 0.0

    @abstractmethod
    def furnish(self) -> None:
        """Put up what submissions need."""

    @abstractmethod
    def submit(self, submission: Submission) -> None:
        """Let it come."""

    @abstractmethod
    def look(self) -> None:
        """Note what has started, was evicted, is gone or has finished since the last look."""

    def play(self) -> None:
        """Submit everything at its time; return when everything has finished."""
        self.furnish()
        self._zero = time.monotonic()
        due = list(self.by_name.values())
        while due or any(each.finished is None for each in self.played.values()):
            unfinished = {name: each for name, each in self.played.items() if each.finished is None}
            assert self.now() < PATIENCE * 1000, f"not over after {PATIENCE} s: {unfinished}"
            while due and due[0].at * 1000 <= self.now():
                self.submit(due[0])
                self.played[due.pop(0).name].came = self.now()
            self.look()
            time.sleep(LOOK)

    def now(self) -> int:
        return round((time.monotonic() - self._zero) * 1000)

    def started(self, name: str) -> None:
        found = self.played[name]
        found.start = self.now()
        found.first_start = found.start if found.first_start is None else found.first_start

    def evicted(self, name: str) -> None:
        """Also a pod that was evicted before it was seen to run."""
        found = self.played[name]
        if found.start is None:
            self.started(name)
        found.leaving = self.now()
        found.cut_short.append(found.leaving - (found.start or 0))

    def gone(self, name: str) -> None:
        found = self.played[name]
        if found.leaving is None:
            self.evicted(name)
        self.left.append(self.now() - (found.leaving or 0))
        found.leaving = found.start = None

    def amounts(self) -> Amounts:
        """What really happened."""
        return Amounts(
            starts=sum(len(each.cut_short) + (each.start is not None) for each in self.played.values()),
            lost=sum(sum(each.cut_short) * self.by_name[name].whole for name, each in self.played.items()) / 1000,
            cut_short=sorted(ran for each in self.played.values() for ran in each.cut_short),
            waits=_waits(self.by_name, {name: (each.came, each.first_start) for name, each in self.played.items()}),
        )

    def in_model(self, base: Snapshot, *, flavour: str, interval: int = 0, pause: int = 0) -> list[Amounts]:
        """What replays say of the same submissions with the measured times, which are blurred differently in each.

        Decisions are chaotic: a pod that comes 50 ms later changes all that follows. interval: milliseconds from one
        cycle of the scheduler to the next. pause: milliseconds until Kueue tries again what it refused.
        """
        grace = round(median(self.left)) if self.left else 0
        times = {"grace": grace, "interval": interval, "pause": pause}
        replays = [
            ClusterReplay(base, self._recorded(Random(number)), flavour=flavour, **times) for number in range(REPLAYS)
        ]
        return [_replayed(replay, self.by_name) for replay in replays]

    def _recorded(self, chance: Random) -> list[RecordedSubmission]:
        """One that was evicted counts with its length: it may have been evicted when its pod was at its end."""
        extra = [self._occupied(name) - self.by_name[name].length * 1000 for name in self.played if self._whole(name)]
        more = median(extra)
        lasts = {
            name: self._occupied(name) if self._whole(name) else round(each.length * 1000 + more)
            for name, each in self.by_name.items()
        }
        return [
            RecordedSubmission(
                name=name,
                submitted=max((each.came or 0) + chance.randint(-BLUR, BLUR), 0),
                duration=lasts[name] + chance.randint(-BLUR, BLUR),
                queue=self.by_name[name].queue,
                priority=self.by_name[name].priority,
                preemptible=True,
                requests=Resources.of(gpu=self.by_name[name].gpus),
                workers=self.by_name[name].workers,
            )
            for name, each in self.played.items()
        ]

    def _whole(self, name: str) -> bool:
        """Whether it ran once, from beginning to end."""
        return not self.played[name].cut_short

    def _occupied(self, name: str) -> int:
        """How long its last run had its GPUs."""
        found = self.played[name]
        return (found.finished or 0) - (found.start or 0)


def _replayed(replay: ClusterReplay, by_name: Mapping[str, Submission]) -> Amounts:
    """The replay goes moment by moment: what a submission lost in one says how long it had run."""
    lost, cut_short = dict.fromkeys(replay.runs, 0), list[int]()
    evictions = dict.fromkeys(replay.runs, 0)
    going = True
    while going:
        going = replay.advance(1)
        for name, run in replay.runs.items():
            if run.evictions != evictions[name]:
                cut_short.append((run.lost - lost[name]) // run.submission.requests.gpu)
                evictions[name], lost[name] = run.evictions, run.lost
    runs = replay.runs.values()
    return Amounts(
        starts=sum(run.evictions + (run.finished is not None) for run in runs),
        lost=sum(run.lost for run in runs) / 1_000_000,
        cut_short=sorted(cut_short),
        waits=_waits(by_name, {name: (run.submission.submitted, run.started) for name, run in replay.runs.items()}),
    )


def _waits(
    by_name: Mapping[str, Submission], times: Mapping[str, tuple[int | None, int | None]]
) -> Mapping[int, float]:
    """Mean seconds until the first start, by priority."""
    found: dict[int, list[float]] = {priority: [] for priority in PRIORITIES}
    for name, (came, start) in times.items():
        found[by_name[name].priority].append(((start or 0) - (came or 0)) / 1000)
    return {priority: mean(waits) for priority, waits in found.items() if waits}


def plain_nodes() -> Snapshot:
    """The nodes of the lab, as the model sees them."""
    size = Resources.of(gpu=GPUS, cpu=192, memory="2Ti")
    return Snapshot(tuple(SnapshotNode(f"lab-{number}", "default", size, order=number) for number in range(NODES)))


class KubePlayer(Player):
    """Plain pods for kube-scheduler. One that is evicted comes again as soon as all of its submission are gone.

    A gang of which a pod is evicted ends whole, and starts over.
    """

    def __init__(self, admin: KubeClient, submissions: Sequence[Submission]) -> None:
        super().__init__(admin, submissions)
        self._pods = f"/api/v1/namespaces/{SPACE}/pods"
        self._waited_for: set[str] = set()
        self._created: list[ObjectRef] = []

    def furnish(self) -> None:
        for value in PRIORITIES:
            self.admin.apply(_priority_class(value))
        self.admin.namespace(SPACE)
        queues = (self.queue(*each) for each in shares_of(self.by_name.values()).items())
        for manifest in (*filter(None, queues), *(part for each in self.by_name.values() for part in self.group(each))):
            self._created.append(self.admin.ref(self.admin.create(manifest)))

    def play(self) -> None:
        """The same, and remove groups and queues, of which the next player on the cluster has its own."""
        try:
            super().play()
        finally:
            self._clear()

    def _clear(self) -> None:
        for name in self._waited_for:
            self.admin.call("DELETE", f"{self._pods}?labelSelector=run={name}", {"gracePeriodSeconds": 0})
        for ref in reversed(self._created):
            self.admin.delete(ref)

    def queue(self, name: str, share: tuple[str, int]) -> Manifest | None:
        """A queue with its department and deserved GPUs; None: this scheduler has none."""

    def group(self, submission: Submission) -> Sequence[Manifest]:
        """What makes a gang of its pods, in all its runs. Here they are pods without a gang."""
        return ()

    def submit(self, submission: Submission) -> None:
        self._waited_for.add(submission.name)
        run = len(self.played[submission.name].cut_short)
        for worker in range(submission.workers):
            self.admin.call("POST", self._pods, self.pod(submission, f"{submission.name}-{run}-{worker}"))

    def pod(self, submission: Submission, name: str) -> Manifest:
        """One of its pods in one of its runs."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **pod_metadata(submission)},
            "spec": {**pod_spec(submission, POOL), "priorityClassName": class_name(submission.priority, never=False)},
        }

    def look(self) -> None:
        found = defaultdict[str, list[Manifest]](list)
        for pod in self.admin.call("GET", self._pods)["items"]:
            found[pod["metadata"]["labels"]["run"]].append(pod)
        for name in self._waited_for & found.keys():
            self._take(name, found[name])
        for name in self._waited_for - found.keys():
            self.gone(name)
            self.submit(self.by_name[name])

    def _take(self, name: str, found: Sequence[Manifest]) -> None:
        known, is_whole = self.played[name], len(found) == self.by_name[name].workers
        if known.start is None and is_whole and all(pod["spec"].get("nodeName") for pod in found):
            self.started(name)
        if is_whole and all(pod["status"]["phase"] == "Succeeded" for pod in found):
            known.finished = self.now()
            self._waited_for.remove(name)
            self._delete(found, grace=0)  # or evicted as it ended
        elif known.leaving is None and (not is_whole or any(map(_is_deleted, found))):
            self.evicted(name)
            self._delete([pod for pod in found if not _is_deleted(pod)])

    def _delete(self, pods: Iterable[Manifest], *, grace: int | None = None) -> None:
        for pod in pods:
            self.admin.delete(ObjectRef(POD, pod["metadata"]["name"], SPACE), grace=grace)


def _is_deleted(pod: Manifest) -> bool:
    """By the scheduler, if its submission has not finished: nothing else deletes one."""
    return "deletionTimestamp" in pod["metadata"]


def _priority_class(value: int) -> Manifest:
    name = class_name(value, never=False)
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def pod_metadata(submission: Submission) -> Manifest:
    """How a fake node runs it."""
    times = {"lab.rung.dev/run-for": f"{submission.length:.3f}s", "lab.rung.dev/exit-after": f"{EXIT_AFTER}s"}
    return {"labels": {"run": submission.name}, "annotations": times}


def pod_spec(submission: Submission, pool: str) -> Manifest:
    amounts = {"nvidia.com/gpu": str(submission.gpus)}
    return {
        "nodeSelector": {"rung.dev/node-pool": pool},
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [{"name": "work", "image": "work", "resources": {"requests": amounts, "limits": amounts}}],
    }
