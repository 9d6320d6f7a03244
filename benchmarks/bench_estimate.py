"""The start estimate of 100 waiting workloads: samples of the model run forward, by size of the cluster.

    python -m benchmarks.bench_estimate [--nodes 10,100,1000] [--waiting 100] [--flavours kube,kai] [--most 30]

Each cluster is full and settled: ten running pods on a node, the projects in equal parts, and 100 waiting pod groups of
one to four pods that have no higher priority than what runs. Runs last five hours on average. All 100 at once, and the
tenth of them alone, as its page asks: the time of the samples that an estimate needs, which has the goal, and of as
many as it takes at most. A size that takes longer than `--most` seconds is given up. One core, processor time.
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
from workloads.forecast.rules.estimates import ENOUGH_SAMPLES, SAMPLES

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
    """Seconds of processor time after enough samples and after all, or how far it came."""
    known, times, start = samples(snapshot), list[float](), time.process_time()
    until = (snapshot.now or 0) + 7 * 24 * HOUR
    try:
        with interrupted_when(lambda: time.process_time() - start > most):
            for _moments in start_times(snapshot, awaited, known, flavour=flavour, until=until):
                times.append(time.process_time() - start)
    except OutOfTime:
        if len(times) < ENOUGH_SAMPLES:
            return f"over {most:.0f} s ({len(times)} of {SAMPLES} samples) OVER"
    enough = times[ENOUGH_SAMPLES - 1]
    every = f"{times[-1]:.2f}" if len(times) == SAMPLES else f"over {most:.0f}"
    return f"{enough:6.2f} s {'ok' if enough <= GOAL else 'OVER'} (all {SAMPLES} samples {every} s)"


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
