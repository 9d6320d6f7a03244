"""B7: what one project's change costs among many, many clusters at once, and one cluster that hangs. STUB.

    python -m benchmarks.bench_growth [--repeats 15]

The API servers are stubs: the gateway of the tests, in memory, with a delay in front of every call. Server cost is
hidden, so this says how Rung grows, and nothing about how long anything takes on a cluster. The database is real
(SQLite). Samples go to benchmarks/results/growth.json.

1. One quota changes; its sync runs. Among 100, 1,000 and 10,000 projects, of which all others are as they should be.
2. 1, 10 and 50 clusters begin their first sync at the same time, each in a thread, one of them twenty times slower than
   the others: all together against that one alone.
3. Eight workers serve 50 clusters whose projects change at random; with and without one cluster that never answers.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from django.db import connection

from benchmarks.many import check, organisation
from clusters.backends.memory import MemoryGateway, store_of
from clusters.connection.services import gateways
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.gateway import ClusterGateway, ClusterUnreachable
from clusters.ports.objects import stamped
from clusters.sync.selectors import desired_state
from clusters.sync.services.reconcile import reconcile
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.services.quotas import bump_generation

SIZES: Final = (100, 1_000, 10_000)
COUNTS: Final = (1, 10, 50)
WORKERS: Final = 8
DELAY: Final = 0.05  # seconds before every answer where clusters wait for each other or not
SLOW: Final = 1.0  # and before those of the slowest cluster
HANGS: Final = 5.0  # seconds until a connection that is not accepted is given up
VERBS: Final = ("list", "get", "create", "update", "delete", "watch", "identity")


class Stub(MemoryGateway):
    """Eight calls at a time, each after a delay; counts them. `hangs`: says nothing until the connection times out."""

    at_once = 8

    def __init__(self, cluster: Cluster, *, delay: float = 0.0, hangs: bool = False) -> None:
        super().__init__(store_of(str(cluster.pk)))
        self.calls: Counter[str] = Counter()
        self._delay, self._hangs = delay, hangs

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._delayed(name, found) if name in VERBS else found

    def _delayed(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[verb] += 1
            time.sleep(HANGS if self._hangs else self._delay)
            if self._hangs:
                raise ClusterUnreachable("No answer in time.")
            return real(*arguments, **options)

        return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    requested = parser.parse_args()
    with stage.template() as template:
        with stage.copy_of(template):
            change, calls = one_change(requested.repeats)
        with stage.copy_of(template):
            together = many_clusters()
        with stage.copy_of(template):
            calm, hung = (with_one_hung(hangs=each) for each in (False, True))
    print("calls per change:", calls)
    stage.ratio("change among 10,000 / among 100 projects", change["10000"], change["100"], 1.2)
    for count, (wall, slowest) in together.items():
        stage.ratio(f"{count} clusters / the slowest alone", [wall], [slowest], 1.3)
    stage.ratio("others' p99, one cluster hangs / none", [stage.p99(hung)], [stage.p99(calm)], 1.05)
    samples = {"change": change, "calls": calls, "together": together, "calm": calm, "hung": hung}
    stage.keep("growth", {"server": "stub", **samples})


def one_change(repeats: int) -> tuple[dict[str, list[float]], dict[str, dict[str, int]]]:
    """Seconds of the sync after one quota was changed, sizes in turns."""
    samples: dict[str, list[float]] = {str(size): [] for size in SIZES}
    calls: dict[str, dict[str, int]] = {}
    clusters = {size: _synced(f"c{size}", size) for size in SIZES}
    stubs = {size: Stub(cluster) for size, cluster in clusters.items()}
    with _reached_by({str(clusters[size].pk): stub for size, stub in stubs.items()}):
        for repeat in range(repeats):
            for size in SIZES if repeat % 2 == 0 else reversed(SIZES):
                _change(clusters[size], gpus=5 + repeat)
                stubs[size].calls.clear()
                samples[str(size)].append(_timed(clusters[size]))
                calls[str(size)] = dict(stubs[size].calls)
    return samples, calls


def many_clusters() -> dict[str, tuple[float, float]]:
    """(all together, the slowest of them alone) for so many clusters that begin at once, one of them slow."""
    found = {}
    for count in COUNTS:
        (lonely,), clusters = _fresh(f"alone{count}", 1), _fresh(f"together{count}", count)
        slow = {str(each.pk): Stub(each, delay=SLOW) for each in (lonely, clusters[-1])}
        with _reached_by(slow), ThreadPoolExecutor(count) as pool:
            alone = _timed(lonely)
            start = time.perf_counter()
            list(pool.map(_in_thread, clusters))
        found[str(count)] = (time.perf_counter() - start, alone)
    return found


def with_one_hung(*, hangs: bool) -> list[float]:
    """Seconds from a change to its end, for every cluster but the first, which may hang."""
    chance = random.Random(1)
    clusters = [_synced(f"busy{hangs}{number}", 5) for number in range(50)]
    stubs = {str(each.pk): Stub(each, delay=0.01, hangs=hangs and each is clusters[0]) for each in clusters}
    samples: list[float] = []

    def serve(cluster: Cluster, due: float) -> None:
        try:
            reconcile(Cluster.objects.get(pk=cluster.pk))
        except ClusterUnreachable:
            return
        finally:
            connection.close()
        if cluster is not clusters[0]:
            samples.append(time.perf_counter() - due)

    with _reached_by(stubs), ThreadPoolExecutor(WORKERS) as pool:
        for _ in range(300):
            cluster = chance.choice(clusters)
            _change(cluster, gpus=chance.randint(1, 99))
            pool.submit(serve, cluster, time.perf_counter())
            time.sleep(0.1)
    return samples


def _fresh(name: str, count: int) -> list[Cluster]:
    """Clusters that hold nothing yet and should hold twenty projects."""
    clusters = [
        Cluster.objects.create(name=f"{name}-{number}", flavour="kai", backend="memory") for number in range(count)
    ]
    for each in clusters:
        organisation(each, 20)
    return clusters


def _synced(name: str, projects: int) -> Cluster:
    """A cluster whose objects are as they should be; put there without a sync."""
    cluster = Cluster.objects.create(name=name, flavour="kai", backend="memory")
    organisation(cluster, projects)
    gateway = MemoryGateway(store_of(str(cluster.pk)))
    for each in flavour_for("kai").objects_for(desired_state(cluster)):
        gateway.create(stamped(each))
    check(reconcile(cluster), written=0)
    return cluster


def _change(cluster: Cluster, *, gpus: int) -> None:
    """One project deserves another amount, as the quota service writes it."""
    project = Project.objects.filter(cluster=cluster).order_by("-pk")[0]
    ProjectQuota.objects.filter(project=project).update(gpu_deserved=gpus * 1000, gpu_limit=gpus * 1000)
    bump_generation(project)
    mark_dirty(cluster, owner=project.owner)


def _timed(cluster: Cluster) -> float:
    start = time.perf_counter()
    run = reconcile(cluster)
    seconds = time.perf_counter() - start
    if run.state != "succeeded" or not run.written:
        raise RuntimeError(f"{run.state}: {run.written} written, {run.error}")
    return seconds


def _in_thread(cluster: Cluster) -> None:
    try:
        _timed(cluster)
    finally:
        connection.close()


@contextmanager
def _reached_by(stubs: dict[str, Stub]) -> Iterator[None]:
    """The clusters named are reached through these stubs, others after the usual delay."""

    def stub(cluster: Cluster) -> ClusterGateway:
        return stubs.get(str(cluster.pk)) or Stub(cluster, delay=DELAY)

    backends: Any = gateways.BACKENDS
    before = backends["memory"]
    backends["memory"] = stub
    try:
        yield
    finally:
        backends["memory"] = before


if __name__ == "__main__":
    main()
