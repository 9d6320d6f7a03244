"""The start estimate of 100 waiting workloads: 20 samples of the model run forward, by size of the cluster.

    python -m benchmarks.bench_estimate [--nodes 10,100,1000] [--waiting 100] [--flavours kube,kai] [--most 30]

Each cluster is full and settled: ten running pods on a node, the projects in equal parts, and 100 waiting pod groups of
one to four pods that have no higher priority than what runs. Runs last five hours on average. Two figures: all 100 at
once, and the tenth of them alone, as its page asks. A size that takes longer than `--most` seconds is given up. One
core, processor time.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.bench_cycle import PROJECTS, cluster
from scheduling.forecast.cycle import FLAVOURS
from scheduling.forecast.start_times import AwaitedStart, RunSample, start_times
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.workspace import OutOfTime, interrupted_when

SAMPLES = 20
WAITING = 100
GOAL = 2.0
HOUR = 3_600_000_000


def settled(nodes: int, waiting: int) -> Snapshot:
    """As `bench_cycle.cluster`, without anything that would be evicted."""
    made = cluster(nodes, waiting)
    groups = [_settled(group, index) for index, group in enumerate(made.groups)]
    return replace(made, groups=tuple(groups), now=100 * HOUR)


def _settled(group: PodGroup, index: int) -> PodGroup:
    project = f"project-{index % PROJECTS}"
    return replace(group, queue=project, namespace=project, priority=40 if group.waiting else 80, preemptible=True)


def samples(snapshot: Snapshot) -> list[RunSample]:
    chance = random.Random(4)

    def lasts() -> int:
        return int(chance.expovariate(1 / (5 * HOUR)))

    now = snapshot.now or 0
    return [
        RunSample(
            {group.name: now + lasts() for group in snapshot.groups if group.holding},
            {group.name: lasts() for group in snapshot.groups},
        )
        for _ in range(SAMPLES)
    ]


def measured(snapshot: Snapshot, awaited: Sequence[AwaitedStart], flavour: str, most: float) -> str:
    """Seconds of processor time, or how far it came."""
    known, done, start = samples(snapshot), 0, time.process_time()
    until = (snapshot.now or 0) + 7 * 24 * HOUR
    try:
        with interrupted_when(lambda: time.process_time() - start > most):
            for _moments in start_times(snapshot, awaited, known, flavour=flavour, until=until):
                done += 1
    except OutOfTime:
        return f"over {most:.0f} s ({done} of {SAMPLES} samples)"
    seconds = time.process_time() - start
    return f"{seconds:6.2f} s {'ok' if seconds <= GOAL else 'OVER'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", default="10,100,1000")
    parser.add_argument("--waiting", type=int, default=WAITING)
    parser.add_argument("--flavours", default=",".join(FLAVOURS))
    parser.add_argument("--most", type=float, default=30)
    options = parser.parse_args()
    for nodes in map(int, options.nodes.split(",")):
        for flavour in options.flavours.split(","):
            snapshot = settled(nodes, options.waiting)
            waiting = [AwaitedStart(frozenset({each.name}), each.min_member) for each in snapshot.waiting]
            every = measured(snapshot, waiting, flavour, options.most)
            one = measured(settled(nodes, options.waiting), waiting[9:10], flavour, options.most)
            print(f"{flavour}, {nodes} nodes: {options.waiting} waiting {every}; one of them {one}", flush=True)


if __name__ == "__main__":
    main()
