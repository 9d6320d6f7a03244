"""B8: pod events of a watch into the database, against the official client's watch with an ORM save per event.

    python -m benchmarks.bench_ingest [--events 50000] [--peer-events 2000] [--repeats 5]

Both sides read the same replayed watch over TLS from a stub in another process (a real API server would cost both the
same), in turns and in changing order. Parsing alone: to what is handed on. End to end: until every row is committed to
PostgreSQL. The peer is so slow that it reads the first events only; rates are compared. Samples go to
benchmarks/results/ingest.json.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import stage

from django.utils import timezone  # isort: skip
from kubernetes import client, watch  # isort: skip

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.inventory.models import Cluster
from clusters.ports.connection import CheckedAddress, Connection
from clusters.ports.objects import POD
from clusters.ports.pods import scaled
from clusters.watch.models import ObservedPod, ObserverLease
from clusters.watch.services.informers import ClusterWatch
from clusters.watch.services.watch_buffer import WatchBatchBuilder
from portal.kit.messaging.gc_tuning import tune_gc

FIRST = 1000
TICK = 0.005
LIMITS = {"parse only": 50.0, "end to end": 15.0}
LAG_LIMIT = 0.050


@dataclass(frozen=True, slots=True)
class Source:
    """The stub that runs."""

    port: int
    ca: Path
    events: int

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def gateway(self) -> KubernetesGateway:
        connection = Connection(self.server, ca=self.ca.read_text(), token="stub")
        return KubernetesGateway(connection, CheckedAddress("127.0.0.1", "127.0.0.1", self.port), name="stub")

    def official(self) -> client.CoreV1Api:
        configuration = client.Configuration(host=self.server)
        configuration.ssl_ca_cert = str(self.ca)
        return client.CoreV1Api(client.ApiClient(configuration))


@contextmanager
def stub(events: int, order: str) -> Iterator[Source]:
    """In a process of its own."""
    with tempfile.TemporaryDirectory(prefix="rung-bench-") as folder:
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.watch_stub", folder, str(events), order])
        try:
            port = Path(folder) / "port"
            while not (port.exists() and port.read_text()):
                time.sleep(0.05)
            yield Source(int(port.read_text()), Path(folder) / "ca.crt", events)
        finally:
            process.terminate()
            process.wait()


@dataclass
class Lag:
    """How late a thread wakes that wants to run every few milliseconds: what any other watch of the process suffers."""

    late: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.is_set():
            begun = time.perf_counter()
            time.sleep(TICK)
            self.late.append(time.perf_counter() - begun - TICK)


@contextmanager
def lag() -> Iterator[Lag]:
    found = Lag()
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        found.over.set()
        thread.join()


def parse_ours(source: Source, _events: int) -> int:
    """Bytes to what is handed to the store."""
    gateway, gathering = source.gateway(), WatchBatchBuilder(POD, str(FIRST), managed_only=False)
    for event in gateway.watch(POD, since=str(FIRST), wait=1200):
        gathering.add(event)
        if gathering.version == str(FIRST + source.events):
            break
    gateway.close()
    return source.events


def parse_theirs(source: Source, events: int) -> int:
    """Bytes to typed objects."""
    api, stream = source.official(), watch.Watch()
    found = stream.stream(api.list_pod_for_all_namespaces, resource_version=str(FIRST), timeout_seconds=1200)
    count = sum(1 for _ in islice(found, events))
    with suppress(Exception):
        stream.stop()
        found.close()
    return count


def store_ours(source: Source, _events: int) -> int:
    """The observer's own way: feeds, inbox, batches."""
    cluster = fresh_cluster()
    streams = ClusterWatch(cluster, source.gateway(), threading.Event())
    wanted = str(FIRST + source.events)
    while ObserverLease.objects.get(cluster=cluster).versions.get(POD.key) != wanted:
        if streams.is_due():
            streams.turn()
        else:
            time.sleep(0.005)
    streams.close()
    assert ObservedPod.objects.filter(cluster=cluster).count() == -(-source.events // 7)
    return source.events


def store_theirs(source: Source, events: int) -> int:
    """What a first version does: a typed watch, and a save for each event."""
    cluster = fresh_cluster()
    api, stream = source.official(), watch.Watch()
    found = stream.stream(api.list_pod_for_all_namespaces, resource_version=str(FIRST), timeout_seconds=1200)
    for event in islice(found, events):
        values = _values(event["type"], event["object"])
        ObservedPod.objects.update_or_create(cluster=cluster, uid=event["object"].metadata.uid, defaults=values)
    with suppress(Exception):
        stream.stop()
        found.close()
    return events


def _values(type_: str, pod: Any) -> dict[str, Any]:
    limits = [each.resources.limits or {} for each in pod.spec.containers]
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "owner_id": (pod.metadata.labels or {}).get("rung.dev/owner", ""),
        "node_name": pod.spec.node_name or "",
        "phase": pod.status.phase or "Pending",
        "priority": pod.spec.priority or 0,
        "gpu_milli": sum(scaled(str(each.get("nvidia.com/gpu", 0)), 1000) for each in limits),
        "grace_seconds": pod.spec.termination_grace_period_seconds or 30,
        "created_at": pod.metadata.creation_timestamp,
        "started_at": pod.status.start_time,
        "deletion_at": pod.metadata.deletion_timestamp,
        "gone_at": timezone.now() if type_ == "DELETED" else None,
        "resource_version": pod.metadata.resource_version,
        "observed_at": timezone.now(),
    }


def fresh_cluster() -> Cluster:
    """Nothing of the last repeat is left."""
    ObservedPod.objects.all().delete()
    Cluster.objects.all().delete()
    return Cluster.objects.create(name="bench", flavour="kube", backend="memory")


def rates(act: Callable[[Source, int], int], source: Source, events: int) -> tuple[float, float]:
    """Events a second, and events a second of this process's own processor time."""
    begun, spent = time.perf_counter(), time.process_time()
    count = act(source, events)
    return count / (time.perf_counter() - begun), count / (time.process_time() - spent)


def compare(
    name: str, ours: Callable[[Source, int], int], theirs: Callable[[Source, int], int], source: Source, options: Any
) -> dict[str, Any]:
    """In turns, in changing order."""
    found: dict[str, list[Any]] = {"ours": [], "theirs": [], "lag": []}
    for repeat in range(options.repeats):
        for side in ("ours", "theirs") if repeat % 2 == 0 else ("theirs", "ours"):
            if side == "theirs":
                found["theirs"].append(rates(theirs, source, options.peer_events))
            else:
                with lag() as ticks:
                    found["ours"].append(rates(ours, source, source.events))
                found["lag"].append(stage.p99(ticks.late))
    for number, unit in enumerate(("wall", "processor")):
        mine, peer = ([each[number] for each in found[side]] for side in ("ours", "theirs"))
        ratio = statistics.median(mine) / statistics.median(peer)
        verdict = "ok" if ratio >= LIMITS[name] else "UNDER"
        spread = f"{min(mine):.0f}-{max(mine):.0f} against {min(peer):.0f}-{max(peer):.0f} events/s"
        print(f"{name:<11} {unit:<10} {ratio:6.1f}x  at least {LIMITS[name]:.0f}  {verdict:<6} {spread}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--peer-events", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    tune_gc()  # as the observer's process does; the peer gains by it, too
    requested = {"events": options.events, "peer_events": options.peer_events, "source": "stub"}
    with lag() as idle:
        time.sleep(3)
    found: dict[str, Any] = {**requested, "idle_lag": stage.p99(idle.late)}
    with stage.server() as folder, stage.stage(folder, "ingest"):
        for order in ("bursts", "stages"):
            print(f"-- {order}")
            with stub(options.events, order) as source:
                if order == "bursts":
                    found["parse"] = compare("parse only", parse_ours, parse_theirs, source, options)
                found[order] = compare("end to end", store_ours, store_theirs, source, options)
            worst = statistics.median(found[order]["lag"])
            verdict = "ok" if worst <= LAG_LIMIT else "OVER"
            print(f"lag p99 {worst * 1e3:.1f} ms  at most {LAG_LIMIT * 1e3:.0f}  {verdict}")
    print(f"lag p99 of an idle process in the same run {found['idle_lag'] * 1e3:.1f} ms")
    stage.keep("ingest", found)


if __name__ == "__main__":
    main()
