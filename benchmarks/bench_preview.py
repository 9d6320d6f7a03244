"""B6: a forecast on 1,000 nodes and 10,000 pods, for a gang of 8 pods with 8 GPUs each; every scheduler.

    python -m benchmarks.bench_preview [--questions 100] [--only model|requests] [--flavours kube,kai]

model: `preview` on one snapshot, again and again, with nothing, 20 and 60 other pod groups waiting; the first question
apart. Every question has another project and priority. The same where every project is at its limit, with what the
question would wait for without it. Beside it a naive scan of nodes and pods by kube-scheduler's rules, which must name
the same victims, and the same questions on a cluster of a tenth.

requests: the same cluster in PostgreSQL with 20 waiting workloads; the snapshot after one pod has changed, and the
whole request with `dryRun`, through Django's test client without a socket.

Processor time of this process, which is the web process here. Samples go to benchmarks/results/preview.json.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from benchmarks import stage  # sets Django up
from benchmarks.bench_cycle import PRIORITIES, PROJECTS, cluster
from benchmarks.portal_cluster import DRY_RUN, change_one_pod, gang_body, signed_in, store
from clusters.inventory.models import Cluster
from portal.kit.messaging.gc_tuning import tune_gc
from scheduling.forecast.cycle import FLAVOURS, preview
from scheduling.model.decisions import Outcome
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from workloads.forecast.selectors.snapshot import snapshot_of

Answer = TypeVar("Answer")
NODES = 1000
WAITING = (0, 20, 60)
GOALS = {"kube": (25, 25, 25), "kube-gangs": (25, 25, 25), "kueue": (25, 25, 25)}
OTHER_GOALS = (25, 60, 150)
REFRESH, REQUEST, GROWTH, NAIVE = 5, 150, 2.0, 1 / 20
SHIFT = 2**31
over: list[str] = []


def processor(act: Callable[[], Answer]) -> tuple[float, Answer]:
    """Milliseconds of processor time, and what came of it."""
    start = time.process_time()
    answer = act()
    return (time.process_time() - start) * 1e3, answer


def questions(number: int) -> Iterator[PodGroup]:
    """Gangs of 8 x 8, each of another project and priority, in an order that a seed decides."""
    chance = random.Random(6)
    request = Resources.of(gpu=8, cpu=8, memory="64Gi")
    for index in range(number):
        project, priority = chance.randrange(PROJECTS), chance.choice(PRIORITIES)
        yield PodGroup(
            name="candidate",
            queue=f"project-{project}",
            namespace=f"project-{project}",
            priority=priority,
            preemptible=priority < 100,
            pods=tuple(Pod(f"candidate-{number}", request) for number in range(8)),
            min_member=8,
            created=10**6 + index,
        )


def asked_of(flavour: str, group: PodGroup) -> PodGroup:
    """As the portal hands it to this scheduler's rules."""
    if flavour == "kube":
        return replace(group, min_member=1)
    return replace(group, gang=True, whole=True) if flavour == "kube-gangs" else group


def answers(snapshot: Snapshot, flavour: str, number: int) -> tuple[list[float], list[Outcome]]:
    """Milliseconds and outcome of each question; the first is the cold one."""
    groups = [asked_of(flavour, each) for each in questions(number)]
    found = [processor(partial(preview, snapshot, each, flavour=flavour)) for each in groups]
    return [each for each, _outcome in found], [outcome for _each, outcome in found]


Seat = tuple[int, int, str, Resources]
"""Priority, start, pod group and requests of a pod on a node."""


def naive(snapshot: Snapshot, group: PodGroup) -> set[str]:
    """The victims by kube-scheduler's rules: every pod of the snapshot, and every node for each pod, are looked at."""
    free, seats, used = _held(snapshot, group.queue)
    limit, gone = snapshot.queue_by_name[group.queue].limit, set[str]()
    for pod in group.pods:
        if not (used + pod.requests).within(limit):
            break
        fitting = [name for name in free if pod.requests.served_by(free[name])]
        costs = {} if fitting else _costs(free, seats, group.priority, pod)
        if not (fitting or costs):
            break
        chosen = max(fitting, key=lambda name: free[name].gpu) if fitting else min(costs, key=lambda n: costs[n][0])
        for _priority, _start, name, amount in costs[chosen][1] if costs else ():
            used -= amount * (name not in gone and snapshot.group_by_name[name].queue == group.queue)
            gone.add(name)
        free[chosen] -= pod.requests
        used += pod.requests
    return gone


def _held(snapshot: Snapshot, queue: str) -> tuple[dict[str, Resources], dict[str, list[Seat]], Resources]:
    free = {node.name: node.capacity for node in snapshot.nodes}
    seats: dict[str, list[Seat]] = {node.name: [] for node in snapshot.nodes}
    used = Resources()
    for each in snapshot.groups:
        for pod in each.pods:
            if pod.node:
                free[pod.node] -= pod.requests
                seats[pod.node].append((each.priority, each.started or 0, each.name, pod.requests))
                used += pod.requests * (each.queue == queue)
    return free, seats, used


def _costs(
    free: dict[str, Resources], seats: dict[str, list[Seat]], priority: int, pod: Pod
) -> dict[str, tuple[tuple[int, int, int, int], list[Seat]]]:
    found = ((name, _cost(free[name], seats[name], priority, pod)) for name in free)
    return {name: cost for name, cost in found if cost}


def _cost(
    free: Resources, pods: Sequence[Seat], priority: int, pod: Pod
) -> tuple[tuple[int, int, int, int], list[Seat]] | None:
    weaker = [each for each in pods if each[0] < priority]
    left = sum((each[3] for each in weaker), free)
    if not pod.requests.served_by(left):
        return None
    victims = []
    for each in sorted(weaker, key=lambda each: (-each[0], each[1])):
        if pod.requests.served_by(left - each[3]):
            left -= each[3]
        else:
            victims.append(each)
    start = min((each[1] for each in victims if each[0] == victims[0][0]), default=0)
    return (victims[0][0], sum(each[0] + SHIFT for each in victims), len(victims), -start), victims


def line(name: str, value: float, goal: float, spread: Sequence[float]) -> None:
    """One figure beside its goal; `over` keeps the name where it misses it."""
    verdict = "ok" if value <= goal else "OVER"
    if value > goal:
        over.append(name)
    low, middle, high = min(spread), statistics.median(spread), max(spread)
    print(
        f"{name:<44} {value:9.3f}  goal {goal:7.3f}  {verdict:<4} (min {low:.1f}, p50 {middle:.1f}, max {high:.1f} ms)"
    )


def model(flavours: Sequence[str], number: int) -> dict[str, Any]:
    """Every flavour and number of waiting groups; growth; the naive scan."""
    kept: dict[str, Any] = {}
    tune_gc()  # as every process of the portal does
    for flavour in flavours:
        for waiting, goal in zip(WAITING, GOALS.get(flavour, OTHER_GOALS), strict=True):
            times, _outcomes = answers(cluster(NODES, waiting), flavour, number)
            kept[f"{flavour} {waiting}"] = times
            line(f"{flavour}, {waiting} waiting: p99 ms", stage.p99(times[1:]), goal, times[1:])
            print(f"{'':<44} first {times[0]:.0f} ms")
        kept[f"{flavour} refused"] = refused(flavour, number, GOALS.get(flavour, OTHER_GOALS)[1])
        small, large = in_turns(flavour, number)
        kept[f"{flavour} growth"] = [small, large]
        line(f"{flavour}: 10,000 / 1,000 pods", statistics.median(large) / statistics.median(small), GROWTH, small)
    if "kube" in flavours:
        kept["naive"] = beside_naive(number)
    return kept


def refused(flavour: str, number: int, goal: float) -> list[float]:
    """Milliseconds of each question that a limit refuses, with what it would wait for without; 20 others wait."""
    there = cluster(NODES, 20)
    held = Counter[str]()
    for group in there.groups:
        held[group.queue] += total(group.holding).gpu
    at_limit = tuple(replace(each, limit=Limit(gpu=held[each.name])) if each.parent else each for each in there.queues)
    there = replace(there, queues=at_limit)
    groups = [asked_of(flavour, each) for each in questions(number)]
    times = [processor(partial(preview, there, each, flavour=flavour, explain=True))[0] for each in groups]
    line(f"{flavour}, 20 waiting, at the limit: p50 ms", statistics.median(times[1:]), goal, times[1:])
    return times


def in_turns(flavour: str, number: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each question on a tenth of the nodes and on all, in turns: the machine changes its speed."""
    snapshots, times = (cluster(NODES // 10, 20), cluster(NODES, 20)), (list[float](), list[float]())
    for turn, group in enumerate(asked_of(flavour, each) for each in questions(number)):
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(processor(partial(preview, snapshots[which], group, flavour=flavour))[0])
    return times[0][1:], times[1][1:]


def beside_naive(number: int) -> list[float]:
    """The same victims, and the ratio of times."""
    snapshot = cluster(NODES, 0)
    times, outcomes = answers(snapshot, "kube", number)
    slow = []
    for group, outcome in list(zip(questions(number), outcomes, strict=True))[:: max(number // 10, 1)]:
        milliseconds, victims = processor(partial(naive, snapshot, group))
        assert victims == {each.victim.name for each in outcome.victims}, group
        slow.append(milliseconds)
    line("kube: ours / naive", statistics.median(times[1:]) / statistics.median(slow), NAIVE, slow)
    return slow


def requests(flavours: Sequence[str], number: int) -> dict[str, Any]:
    """In PostgreSQL: refresh after one pod's change, and whole requests, each after such a change."""
    kept: dict[str, Any] = {}
    with stage.server() as folder, stage.stage(folder, "preview"):
        store(cluster(NODES, 0), waiting=20)
        tune_gc()
        client = signed_in()
        for turn, flavour in enumerate(flavours):
            Cluster.objects.update(flavour=flavour)
            refresh, whole = [], []
            for index in range(number + 1):
                change_one_pod(turn * (number + 1) + index)
                observed = Cluster.objects.get()
                refresh.append(processor(partial(snapshot_of, observed))[0])
                body = gang_body(index)
                milliseconds, answer = processor(partial(client.post, DRY_RUN, body, "application/json"))
                assert answer.status_code == 200, answer.content
                whole.append(milliseconds)
            kept[flavour] = {"refresh": refresh, "request": whole}
            line(f"{flavour}: refresh after one pod, p50 ms", statistics.median(refresh[1:]), REFRESH, refresh[1:])
            line(f"{flavour}: dryRun request, p50 ms", statistics.median(whole[1:]), REQUEST, whole[1:])
            print(f"{'':<44} first {refresh[0]:.0f} and {whole[0]:.0f} ms")
    return kept


def main() -> int:
    """The tables. The exit code is 1 if a figure misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--only", choices=("model", "requests"))
    parser.add_argument("--flavours", default=",".join(FLAVOURS))
    options = parser.parse_args()
    flavours = options.flavours.split(",")
    kept: dict[str, Any] = {"options": vars(options)}
    print(f"{NODES} nodes, {10 * NODES} pods, gang of 8 x 8; processor time, {os.cpu_count()} cores")
    if options.only != "requests":
        kept["model"] = model(flavours, options.questions + 1)
    if options.only != "model":
        kept["requests"] = requests(flavours, options.requests)
    stage.keep("preview", kept)
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
