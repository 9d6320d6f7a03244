"""One scheduling cycle on a small and on a ten times larger cluster: times and their ratio, at most 12.

    python -m benchmarks.bench_cycle [--repeats 5] [--pending 300]

Each cluster is made from a fixed seed: nodes of 16 GPUs with ten running pods each, nearly full, 40 projects in 8
departments of which a few hold most of the work, and some hundred pending pod groups of one to four pods. Medians, one
core, processor time, no input or output inside the timed part.
"""

import argparse
import random
import statistics
import time
from collections import Counter

from scheduling.forecast.cycle import FLAVOURS, cycle
from scheduling.model.resources import UNLIMITED, Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

GPUS_PER_NODE = 16
PODS_PER_NODE = 10
DEPARTMENTS = 8
PROJECTS = 40
PRIORITIES = (25, 40, 65, 80, 90, 125)
MOST = 12.0


def cluster(nodes: int, pending: int, *, seed: int = 1) -> Snapshot:
    """A nearly full cluster with `nodes` nodes, ten running pods on each, and `pending` waiting pod groups."""
    chance = random.Random(seed)
    machine = Resources.of(gpu=GPUS_PER_NODE, cpu=128, memory="2Ti")
    return Snapshot(
        nodes=tuple(SnapshotNode(f"node-{index}", "default", machine, order=index) for index in range(nodes)),
        queues=queues(nodes * GPUS_PER_NODE),
        groups=(*running(nodes, chance), *waiting(pending, chance)),
    )


def queues(gpus: int) -> tuple[Queue, ...]:
    """Departments and projects that share everything there is in equal deserved parts."""
    departments = [
        Queue(f"department-{index}", deserved=Limit.of(gpu=gpus // DEPARTMENTS), limit=UNLIMITED, created=index)
        for index in range(DEPARTMENTS)
    ]
    projects = [
        Queue(
            f"project-{index}",
            f"department-{index % DEPARTMENTS}",
            deserved=Limit.of(gpu=gpus // PROJECTS),
            limit=Limit.of(gpu=3 * gpus // PROJECTS),
            weight=1 + index % 3,
            created=index,
        )
        for index in range(PROJECTS)
    ]
    return (*departments, *projects)


def running(nodes: int, chance: random.Random) -> list[PodGroup]:
    """Single pods of one or two GPUs; a few projects hold most of them."""
    groups = []
    for index in range(nodes * PODS_PER_NODE):
        gpus = 1 if index % PODS_PER_NODE > 7 else chance.choice((1, 1, 1, 2, 2, 2, 2))
        project = min(int(abs(chance.gauss(0, PROJECTS / 3))), PROJECTS - 1)
        pod = Pod("pod", Resources.of(gpu=gpus, cpu=4, memory="16Gi"), f"node-{index // PODS_PER_NODE}")
        groups.append(group(f"running-{index}", project, (pod,), chance, started=index))
    return groups


def waiting(pending: int, chance: random.Random) -> list[PodGroup]:
    """Gangs of one to four pods of one to eight GPUs, over all projects."""
    groups = []
    for index in range(pending):
        request = Resources.of(gpu=chance.choice((1, 2, 4, 8)), cpu=8, memory="32Gi")
        pods = tuple(Pod(f"pod-{number}", request) for number in range(chance.choice((1, 1, 1, 2, 4))))
        groups.append(group(f"waiting-{index}", chance.randrange(PROJECTS), pods, chance, started=None))
    return groups


def group(name: str, project: int, pods: tuple[Pod, ...], chance: random.Random, *, started: int | None) -> PodGroup:
    priority = chance.choice(PRIORITIES)
    return PodGroup(
        name=name,
        queue=f"project-{project}",
        namespace=f"project-{project}",
        priority=priority,
        preemptible=priority < 100,
        pods=pods,
        min_member=len(pods),
        started=started,
        created=started or 0,
    )


def median_of(repeats: int, snapshot: Snapshot, flavour: str) -> float:
    """Seconds of one cycle."""
    times = []
    for _repeat in range(repeats):
        start = time.process_time()
        cycle(snapshot, flavour=flavour)
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pending", type=int, default=300)
    options = parser.parse_args()
    held = True
    for flavour in FLAVOURS:
        seconds = {}
        for nodes in (100, 1000):
            snapshot = cluster(nodes, options.pending)
            seconds[nodes] = median_of(options.repeats, snapshot, flavour)
            decided = Counter(type(decision).__name__ for decision in cycle(snapshot, flavour=flavour))
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(decided.items()))
            pods = nodes * PODS_PER_NODE
            print(
                f"{flavour}: {nodes} nodes, {pods} pods, {options.pending} pending: {seconds[nodes]:.3f} s ({counts})"
            )
        ratio = seconds[1000] / seconds[100]
        held = held and ratio <= MOST
        print(f"{flavour}: ratio {ratio:.1f} (at most {MOST:.0f})")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
