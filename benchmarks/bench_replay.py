"""B9: a replay of recorded submissions on 1,000 nodes under a changed dictionary, on one core.

    python -m benchmarks.bench_replay [--submissions 10000] [--nodes 1000] [--flavours kube,kai] [--loads 1.0,0.7]

Submissions from a fixed seed: 40 projects, one to four workers of one to eight GPUs, lengths spread over two orders of
magnitude; 10,000 a week, for which 1,000 nodes of 8 GPUs are just enough. The nodes are full when the trace
begins. A tenth of the submissions comes in a tenth of the time, at the same rate: the ratio is that of the times from
the first to the last submission. Each trace is replayed as recorded and with the two lowest priorities exchanged.
Processor time, without input or output.

Evicted work is done again, so the nodes are not enough in the end, more and more waits, and each submission leads to
more evictions than at the start. The ratio of the starts and evictions, which is printed beside that of the times,
shows how much of the growth that is; the second and the last tenth of each trace show time per submission, and GPUs
waited for. At the second load the nodes are enough, and the queue does not grow.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.bench_cycle import PRIORITIES, PROJECTS, queues
from scheduling.forecast.cycle import FLAVOURS, Flavour
from scheduling.forecast.replay import ONE_BY_ONE, ClusterReplay, RecordedSubmission
from scheduling.model.resources import UNLIMITED, Resources
from scheduling.model.snapshot import Queue, Snapshot, SnapshotNode

GPUS_PER_NODE = 8
WEEK = 7 * 24 * 3600
MOST_SUBMISSIONS = 10_000
GPUS, WORKERS = (1, 2, 4, 8), (1, 1, 1, 1, 2, 4)
SPREAD = 1.2
MEAN_GPUS = statistics.mean(GPUS) * statistics.mean(WORKERS)
MEAN_LENGTH = math.exp(SPREAD**2 / 2)
GOAL, GROWTH = 60.0, 12.0
MOMENTS = 10
TENTHS = (2, 10)
"""Parts of the trace that are compared: after the start, and at the end."""


def base(nodes: int, flavour: str) -> Snapshot:
    """Empty nodes, and the queues of `bench_cycle`; for kube without quotas, which would be per namespace."""
    machine = Resources.of(gpu=GPUS_PER_NODE, cpu=128, memory="2Ti")
    found = queues(nodes * GPUS_PER_NODE)
    flat = [Queue(each.name, deserved=UNLIMITED, limit=each.limit) for each in found if each.parent is not None]
    return Snapshot(
        nodes=tuple(SnapshotNode(f"node-{index}", "default", machine, order=index) for index in range(nodes)),
        queues=tuple(flat) if flavour in ONE_BY_ONE else found,
    )


def trace(number: int, nodes: int, load: float, *, seed: int = 1) -> list[RecordedSubmission]:
    """What runs when the trace begins, submitted before all others, and so many more at a steady rate."""
    chance = random.Random(seed)
    capacity = nodes * GPUS_PER_NODE
    unit = load * capacity * WEEK / (MOST_SUBMISSIONS * MEAN_GPUS * MEAN_LENGTH)
    running: list[RecordedSubmission] = []
    while sum(each.requests.gpu * each.workers for each in running) < capacity * 1000:
        length = chance.lognormvariate(SPREAD**2, SPREAD)  # the longer it runs, the likelier is it to be seen running
        running.append(drawn(f"running-{len(running)}", 0, length * unit * chance.random(), chance))
    last = WEEK * number // MOST_SUBMISSIONS
    come = [
        drawn(f"job-{index}", chance.randrange(1, last), chance.lognormvariate(0, SPREAD) * unit, chance)
        for index in range(number)
    ]
    return running + come


def drawn(name: str, submitted: int, duration: float, chance: random.Random) -> RecordedSubmission:
    """Of a random project, size and priority."""
    priority = chance.choice(PRIORITIES)
    return RecordedSubmission(
        name=name,
        submitted=submitted,
        duration=max(int(duration), 60),
        queue=f"project-{min(int(abs(chance.gauss(0, PROJECTS / 3))), PROJECTS - 1)}",
        priority=priority,
        preemptible=priority < 100,
        requests=Resources.of(gpu=chance.choice(GPUS), cpu=4, memory="16Gi"),
        workers=chance.choice(WORKERS),
    )


def exchanged(submissions: Sequence[RecordedSubmission]) -> list[RecordedSubmission]:
    """The proposal: the two lowest priorities change places."""
    low, higher = PRIORITIES[:2]
    other = {low: higher, higher: low}
    return [replace(each, priority=other.get(each.priority, each.priority)) for each in submissions]


@dataclass
class Timed:
    """Seconds of processor time: of all of it, and from the first to the last submission after the start.

    decided: starts and evictions in the same part of the trace. marks: moments of it, and the seconds until then.
    """

    replay: ClusterReplay
    whole: float
    steady: float
    decided: int
    marks: list[tuple[int, float]]

    def tenth(self, number: int, submissions: Sequence[RecordedSubmission]) -> str:
        """What one tenth of the trace took per submission, and what waited in it; empty if it was cut off."""
        last = max(each.submitted for each in submissions)
        begin, end = last * (number - 1) // 10, last * number // 10
        marks = [(at, seconds) for at, seconds in self.marks if begin <= at <= end]
        if len(marks) < 2 or self.marks[-1][0] < end - last // 100:
            return ""
        share = (end - begin) / (marks[-1][0] - marks[0][0])
        seconds = (marks[-1][1] - marks[0][1]) * share / sum(begin <= each.submitted < end for each in submissions)
        spans = itertools.pairwise([use for use in self.replay.use if begin <= use[0] <= end])
        waiting = sum((after[0] - before[0]) * before[2] for before, after in spans) / (end - begin) / 1000
        return f"tenth {number}: {seconds * 1000:.1f} ms per submission, {waiting:.0f} GPUs waiting"


def replayed(nodes: int, submissions: Sequence[RecordedSubmission], flavour: str, interval: int, most: float) -> Timed:
    """Cut off after `most` seconds."""
    last = max(each.submitted for each in submissions)
    start = time.process_time()
    replay = ClusterReplay(base(nodes, flavour), submissions, flavour=flavour, grace=30, interval=interval)
    going = replay.advance(1)
    before = decided = decisions(replay)
    began, marks = time.process_time(), list[tuple[int, float]]()
    while going and time.process_time() - start < most:
        if replay.use[-1][0] <= last:
            marks.append((replay.use[-1][0], time.process_time() - began))
        elif decided == before:
            decided = decisions(replay)
        going = replay.advance(MOMENTS)
    whole = time.process_time() - start
    return Timed(replay, whole, marks[-1][1] if marks else 0.0, decided - before, marks)


def decisions(replay: ClusterReplay) -> int:
    """Starts and evictions of submissions so far."""
    runs = replay.runs.values()
    return sum(2 * each.evictions + bool(each.placed or each.finished) for each in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--flavours", default=",".join(FLAVOURS))
    parser.add_argument("--interval", type=int, default=300, help="seconds between cycles of schedulers with queues")
    parser.add_argument("--loads", default="1.0,0.7", help="GPUs wanted for each that there is")
    parser.add_argument("--most", type=float, default=600, help="give up after so many seconds")
    options = parser.parse_args()
    held = True
    for flavour, load in itertools.product(options.flavours.split(","), map(float, options.loads.split(","))):
        fast = measured(flavour, load, options)
        held = held and (fast or flavour != Flavour.KUBE)
    return 0 if held else 1


def measured(flavour: str, load: float, options: argparse.Namespace) -> bool:
    """Print the times of one scheduler at one load; return whether they keep the limits."""
    longest = dict[int, Timed]()
    whole = 0.0
    for number in (options.submissions // 10, options.submissions):
        recorded = trace(number, options.nodes, load)
        for title, submissions in (("as recorded", recorded), ("changed", exchanged(recorded))):
            found = replayed(options.nodes, submissions, flavour, options.interval, options.most)
            whole = max(whole, found.whole)
            longest[number] = max(longest.get(number, found), found, key=lambda each: each.steady)
            times = f"{found.whole:.1f} s, of these {found.steady:.2f} s while submissions come"
            parts = (times, described(found.replay), *(found.tenth(each, submissions) for each in TENTHS))
            print(f"{flavour}, load {load}: {number} submissions {title}: {'; '.join(filter(None, parts))}", flush=True)
    few, many = longest[options.submissions // 10], longest[options.submissions]
    ratio = many.steady / few.steady
    fast = whole <= GOAL and ratio <= GROWTH
    text = f"{whole:.1f} s (at most {GOAL:.0f}), ratio {ratio:.1f} (at most {GROWTH:.0f})"
    acts = f"that of starts and evictions {many.decided / few.decided:.1f}"
    print(f"{flavour}, load {load}: {text}, {acts}: {'held' if fast else 'MISSED'}", flush=True)
    return fast


def described(replay: ClusterReplay) -> str:
    """What came of it."""
    runs = replay.runs.values()
    waits = [each.started - each.submission.submitted for each in runs if each.started is not None]
    evictions = sum(each.evictions for each in runs)
    peak = max(waiting for _at, _held, waiting in replay.use) // 1000
    median = statistics.median(waits) if waits else 0
    return f"{replay.ended} ended, {evictions} evictions, median wait {median:.0f} s, at most {peak} GPUs waiting"


if __name__ == "__main__":
    raise SystemExit(main())
