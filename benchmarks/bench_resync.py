"""B2: a sync in which nothing is to be done, on a real API server, against a second `kubectl apply --server-side`.

    python -m benchmarks.bench_resync [--projects 1000] [--repeats 5] [--flavour kueue --pools 4]

One etcd and kube-apiserver (no controllers, no nodes) hold the objects of many projects as Rung wrote them. Cold: the
process remembers nothing and lists. Warm: it remembers its last look and asks what has happened since. Both are whole
`reconcile()` calls with their rows in the database. The peer has an etcd and kube-apiserver of its own, idle while ours
are busy, with the same objects as it applied them: on one server each side's managed fields would burden the other. No
write may reach the server from our side: the resourceVersion of every object is compared before and after. Samples go
to benchmarks/results/resync.json.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.many import as_file, check, registered, wanted
from benchmarks.plane import Plane, plane
from clusters.connection.services.gateways import gateway_for
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile

COLD, WARM, KUBECTL = "ours, cold", "ours, warm", "kubectl apply --server-side, again"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--flavour", default="kube")
    parser.add_argument("--pools", type=int, default=1)
    requested = parser.parse_args()
    samples: dict[str, list[float]] = {COLD: [], WARM: [], KUBECTL: []}
    with (
        stage.template() as template,
        stage.copy_of(template),
        plane() as server,
        plane() as theirs,
        tempfile.TemporaryDirectory(prefix="rung-bench-") as folder,
    ):
        cluster = registered(server, requested.projects, flavour=requested.flavour, pools=requested.pools)
        theirs.learn(requested.flavour)
        manifests = wanted(cluster)
        file = as_file(manifests, Path(folder))
        check(reconcile(cluster), written=len(manifests))
        _apply(theirs, file)
        for repeat in range(requested.repeats):
            before = versions(cluster)
            for act in (ours, kubectl) if repeat % 2 == 0 else (kubectl, ours):
                act(theirs, cluster, file, samples)
            if versions(cluster) != before:
                raise RuntimeError("a resync with nothing to do has written something")
    for name, found in samples.items():
        print(f"{name:<40} {', '.join(f'{each:.3f}' for each in found)} s")
    stage.ratio(f"{COLD} / {KUBECTL}", samples[COLD], samples[KUBECTL], 1 / 40)
    stage.ratio(f"{WARM} / {KUBECTL}", samples[WARM], samples[KUBECTL], 1 / 200)
    name = "resync" if requested.flavour == "kube" else f"resync-{requested.flavour}"
    stage.keep(name, {"projects": requested.projects, "objects": len(manifests), "writes": 0, "seconds": samples})


def ours(_theirs: Plane, cluster: Cluster, _file: Path, samples: dict[str, list[float]]) -> None:
    """Cold three times, then warm three times."""
    cluster.refresh_from_db()
    for _ in range(3):
        object_reads.forget(cluster.pk)
        samples[COLD].append(_reconciled(cluster))
    samples[WARM] += [_reconciled(cluster) for _ in range(3)]


def kubectl(theirs: Plane, _cluster: Cluster, file: Path, samples: dict[str, list[float]]) -> None:
    start = time.perf_counter()
    _apply(theirs, file)
    samples[KUBECTL].append(time.perf_counter() - start)


def versions(cluster: Cluster) -> dict[str, str]:
    """resourceVersion of every object of ours, by uid."""
    gateway = gateway_for(cluster)
    found = [each["metadata"] for kind in flavour_for(cluster.flavour).kinds() for each in gateway.list(kind)[0]]
    return {metadata["uid"]: metadata["resourceVersion"] for metadata in found}


def _reconciled(cluster: Cluster) -> float:
    start = time.perf_counter()
    check(reconcile(cluster), written=0)
    return time.perf_counter() - start


def _apply(server: Plane, file: Path) -> None:
    command = [*server.kubectl, "apply", "--server-side", "-f", str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
