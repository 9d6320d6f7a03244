"""B3: how soon a quota that a user edited or deleted is as it should be again, ours against a Kopf operator.

    python3 -m venv FOLDER && FOLDER/bin/pip install kopf==1.37.5 kubernetes==31.0.0
    python -m benchmarks.bench_drift --kopf FOLDER/bin/kopf [--projects 1000] [--samples 100]

One etcd and kube-apiserver hold the objects of many projects. A user changes foreign annotations of quotas fifty
times a second. Edits and deletions of other quotas alternate; a sample ends when a reader sees the quota as wanted.
Ours: the observer watches, stores, and wakes one worker, two processes as in a deployment with a pipe between them; a
broker would add its own delay. Kopf: `benchmarks/peers/kopf_operator.py`. Both sides in turns, each while the other is
stopped.
Samples go to benchmarks/results/drift.json.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

from django.db import connection
from django.db.transaction import on_commit

from benchmarks.many import as_file, check, registered, wanted
from benchmarks.plane import TOKEN, Plane, plane
from benchmarks.raw import Api, request
from clusters.inventory.models import Cluster
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services.observer import Observer

NOISE = 50  # changes a second that concern neither
PATIENCE = 30.0
MERGE = "application/merge-patch+json"
Side = Callable[[], AbstractContextManager[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kopf", type=Path, required=True)
    parser.add_argument("--projects", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    requested = parser.parse_args()
    samples: dict[str, list[float]] = {"ours": [], "kopf": []}
    with (
        stage.template() as template,
        stage.copy_of(template),
        plane() as server,
        tempfile.TemporaryDirectory(prefix="rung-bench-") as folder,
    ):
        cluster = registered(server, requested.projects)
        file = as_file(wanted(cluster), Path(folder))
        check(reconcile(cluster), written=len(wanted(cluster)))
        sides: dict[str, Side] = {"ours": lambda: ours(cluster), "kopf": lambda: kopf(requested.kopf, server, file)}
        for number in range(requested.rounds):
            for name in sides if number % 2 == 0 else reversed(sides):
                with sides[name](), noise(server, cluster, requested.projects):
                    samples[name] += measure(server, cluster, requested.samples // requested.rounds)
    for name, found in samples.items():
        print(f"{name}: p50 {statistics.median(found) * 1e3:.0f} ms, p99 {stage.p99(found) * 1e3:.0f} ms")
    stage.ratio("p99, ours / Kopf", [stage.p99(samples["ours"])], [stage.p99(samples["kopf"])], 0.5)
    stage.ratio("p50, ours / Kopf", samples["ours"], samples["kopf"], 0.5)
    stage.keep("drift", {"projects": requested.projects, "noise": NOISE, "seconds": samples})


@contextmanager
def ours(cluster: Cluster) -> Iterator[None]:
    """An observer, and a worker that it wakes when its transaction has committed. Both have seen everything once."""
    fork = multiprocessing.get_context("fork")
    woken = fork.SimpleQueue()

    def watch() -> None:
        observer = Observer()
        signal.signal(signal.SIGTERM, lambda *_: observer.stop.set())
        with mock.patch("clusters.watch.services.objects.notify_sync", lambda pk: on_commit(partial(woken.put, pk))):
            observer.run()

    def work() -> None:
        while True:
            reconcile(Cluster.objects.get(pk=woken.get()))

    Cluster.objects.filter(pk=cluster.pk).update(resync_due_at=None, observed_at=None)  # an earlier round has been
    woken.put(cluster.pk)
    connection.close()  # no process inherits one
    processes = [fork.Process(target=each) for each in (watch, work)]
    for process in processes:
        process.start()
    try:
        _until(lambda: Cluster.objects.get(pk=cluster.pk).observed_at is not None)
        time.sleep(5)
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def kopf(program: Path, server: Plane, file: Path) -> Iterator[None]:
    """The operator as a process of its own."""
    command = [str(program), "run", "--all-namespaces", str(Path(__file__).parent / "peers" / "kopf_operator.py")]
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "WANTED": str(file)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(15)  # it lists everything first
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def noise(server: Plane, cluster: Cluster, projects: int) -> Iterator[None]:
    """Foreign annotations of deserved quotas change, so many times a second."""
    stop, chance = threading.Event(), random.Random(1)

    def make() -> None:
        api = server.api()
        while not stop.wait(1 / NOISE):
            path = _quota(cluster, chance.randrange(projects), "rung-deserved")
            body = json.dumps({"metadata": {"annotations": {"bench/noise": str(chance.random())}}}).encode()
            api.send(request(TOKEN, "PATCH", path, body, MERGE))

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def measure(server: Plane, cluster: Cluster, count: int) -> list[float]:
    """Seconds until each of so many quotas is as it was."""
    api, found = server.api(), []
    for number in range(count):
        path = _quota(cluster, number, "rung-limit")
        before = _hard(api, path)
        start = time.perf_counter()
        if number % 2:
            api.send(request(TOKEN, "DELETE", path))
        else:
            body = json.dumps({"spec": {"hard": {"requests.nvidia.com/gpu": "99"}}}).encode()
            api.send(request(TOKEN, "PATCH", path, body, MERGE))
        _until(partial(_is_repaired, api, path, before))
        found.append(time.perf_counter() - start)
        time.sleep(0.1)
    return found


def _quota(cluster: Cluster, number: int, name: str) -> str:
    return f"/api/v1/namespaces/runai-{cluster.name}-p{number}/resourcequotas/{name}"


def _hard(api: Api, path: str) -> object:
    status, body = api.ask("GET", path)
    return json.loads(body)["spec"]["hard"] if status == 200 else None


def _is_repaired(api: Api, path: str, before: object) -> bool:
    return _hard(api, path) == before


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("it was never repaired")
        time.sleep(0.002)


if __name__ == "__main__":
    main()
