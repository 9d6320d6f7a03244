"""B1: the first sync of many projects to a real API server, against `kubectl apply --server-side` and against floors.

    python -m benchmarks.bench_sync [--projects 1000] [--repeats 5] [--flavour kueue --pools 4]

Every sample has a fresh etcd and kube-apiserver (no controllers, no nodes). Ours is `reconcile()` with everything it
does: desired state from the database, comparison, writes, an outcome row per object. kubectl gets the same objects in
one file, and once more in shares to eight processes at a time. The floors send the same bodies over eight or sixteen
kept connections, without reading, comparing or recording anything: POST creates, and server-side-apply PATCHes.
Samples go to benchmarks/results/sync.json.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from benchmarks.many import as_file, check, registered, wanted
from benchmarks.plane import TOKEN, Plane, plane
from benchmarks.raw import request, send_all
from clusters.backends.kubernetes.protocol import object_path, parent_path
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import NAMESPACE, ref_of
from clusters.sync.services.reconcile import reconcile

SHARES = 8
KUBECTL, EIGHT, OURS = "kubectl apply --server-side", "xargs -P8 kubectl apply --server-side", "ours"
Contender = Callable[[Plane, Cluster, list[Manifest], Path], None]


def ours(_plane: Plane, cluster: Cluster, manifests: list[Manifest], _folder: Path) -> None:
    check(reconcile(cluster), written=len(manifests))


def kubectl(plane: Plane, _cluster: Cluster, _manifests: list[Manifest], folder: Path) -> None:
    _apply([*plane.kubectl, "apply", "--server-side", "-f", str(folder / "all.yaml")])


def eight_kubectls(plane: Plane, _cluster: Cluster, _manifests: list[Manifest], folder: Path) -> None:
    """Namespaces and classes first: objects in a namespace need it."""
    apply = " ".join(["xargs", "-r", "-P8", "-n1", *plane.kubectl, "apply", "--server-side", "-f"])
    first, then = (f"find {folder} -name '{turn}-*.yaml' | {apply}" for turn in ("first", "then"))
    _apply(["sh", "-c", f"{first} && {then}"])


def floor(method: str, connections: int) -> Contender:
    """The unavoidable requests and nothing else."""

    def send(plane: Plane, _cluster: Cluster, manifests: list[Manifest], _folder: Path) -> None:
        apis = [plane.api() for _ in range(connections)]
        requests = [(each["kind"] == NAMESPACE.kind, _request(method, each)) for each in manifests]
        for spaces in (True, False):
            send_all(apis, [request for is_space, request in requests if is_space == spaces], {200, 201})

    return send


CONTENDERS: dict[str, Contender] = {
    OURS: ours,
    KUBECTL: kubectl,
    EIGHT: eight_kubectls,
    "floor, POST, 8 connections": floor("POST", 8),
    "floor, POST, 16 connections": floor("POST", 16),
    "floor, apply PATCH, 16 connections": floor("PATCH", 16),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), help="names of contenders")
    parser.add_argument("--flavour", default="kube")
    parser.add_argument("--pools", type=int, default=1)
    requested = parser.parse_args()
    samples: dict[str, list[float]] = {name: [] for name in requested.only}
    with stage.template() as template:
        for repeat in range(requested.repeats):
            names = list(samples)
            for name in names if repeat % 2 == 0 else reversed(names):
                samples[name].append(sample(template, CONTENDERS[name], requested))
                print(f"{name:<40} {samples[name][-1]:7.2f} s", flush=True)
    report(samples)
    name = "sync" if requested.flavour == "kube" else f"sync-{requested.flavour}"
    stage.keep(name, {"projects": requested.projects, "pools": requested.pools, "seconds": samples})


def sample(template: Path, contender: Contender, requested: argparse.Namespace) -> float:
    """Seconds of one contender on a fresh API server and in a fresh database."""
    with plane() as server, stage.copy_of(template), tempfile.TemporaryDirectory(prefix="rung-bench-") as name:
        cluster = registered(server, requested.projects, flavour=requested.flavour, pools=requested.pools)
        manifests = wanted(cluster)
        _files(manifests, Path(name))
        start = time.perf_counter()
        contender(server, cluster, manifests, Path(name))
        return time.perf_counter() - start


def report(samples: dict[str, list[float]]) -> None:
    best = min(
        (name for name in samples if name.startswith("floor")), key=lambda name: statistics.median(samples[name])
    )
    if KUBECTL in samples:
        stage.ratio(f"{OURS} / {KUBECTL}", samples[OURS], samples[KUBECTL], 0.36)
    if EIGHT in samples:
        stage.ratio(f"{OURS} / {EIGHT}", samples[OURS], samples[EIGHT], 0.8)
    stage.ratio(f"{OURS} / {best}", samples[OURS], samples[best], 1.15)


def _files(manifests: list[Manifest], folder: Path) -> None:
    as_file(manifests, folder)
    spaces = [each for each in manifests if "namespace" not in each["metadata"]]
    inside_them = [each for each in manifests if "namespace" in each["metadata"]]
    for part, members in (("first", spaces), ("then", inside_them)):
        for number in range(SHARES):
            if share := members[number::SHARES]:
                (folder / f"{part}-{number}.yaml").write_text("\n---\n".join(map(json.dumps, share)))


def _request(method: str, manifest: Manifest) -> bytes:
    ref, body = ref_of(manifest), orjson.dumps(manifest)
    if method == "POST":
        return request(TOKEN, "POST", f"{parent_path(ref)}?fieldManager=floor", body)
    path = f"{object_path(ref)}?fieldManager=floor&force=true"
    return request(TOKEN, "PATCH", path, body, "application/apply-patch+yaml")


def _apply(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
