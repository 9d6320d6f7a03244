"""What schedulers cost: rendering a workload for each, and planning to give a living cluster another one.

    python -m benchmarks.bench_flavours [--projects 1000] [--repeats 5] [--only render switch]

Rendering: every kind that tenants may submit, for every scheduler, against `json.dumps` of the very objects that came
out, both in processor time, best of nine. Bodies are as intake leaves them: labels and annotations at the object, a
container with a command, environment, requests and volumes at every place that describes pods. What the smallest body
that a kind can have costs is printed beside it.

Planning: a real etcd and kube-apiserver hold the objects of many projects as Rung wrote them for kube-scheduler. A
sample is `plan_switch()` with everything the page shows, against a whole `reconcile()` that remembers nothing and has
nothing to do; in turns. There is a foreign queue with a wanted name; neither it nor anything else may change.
Samples go to benchmarks/results/flavours.json.
"""

from benchmarks import stage  # isort: skip - it sets Django up

import argparse
import json
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.bench_resync import versions
from benchmarks.many import check, registered, wanted
from benchmarks.plane import plane
from clusters.connection.services.gateways import gateway_for
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import SchedulerFlavour
from clusters.ports.workload_kinds import KINDS
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile
from clusters.sync.services.scheduler_switch import plan_switch
from tests.clusters.samples import sample
from tests.clusters.specs import job

RENDER, PLAN = 3.0, 2.0
TURNS = 100
RESYNC = "resync, cold, nothing to do"
TARGETS = ("kai", "kueue", "volcano", "kube-gangs")
METADATA: dict[str, Any] = {
    "labels": {"app": "train", "team": "vision", "experiment": "resnet-50"},
    "annotations": {"contact": "vision@example.org", "commit": "0123456789abcdef0123456789abcdef01234567"},
}
USUAL: dict[str, Any] = {
    "command": ["python", "-m", "train", "--config", "/data/config.yaml", "--resume", "latest"],
    "env": [{"name": f"SETTING_{number}", "value": f"value-{number}" * 3} for number in range(8)],
    "resources": {
        "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
        "limits": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "4"},
    },
    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}, {"name": "out", "mountPath": "/out"}],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["render", "switch"])
    requested = parser.parse_args()
    found: dict[str, Any] = {}
    if "render" in requested.only:
        found["render"] = {name: rendering(flavour) for name, flavour in FLAVOURS.items()}
    if "switch" in requested.only:
        found |= {"projects": requested.projects, "switch": switching(requested.projects, requested.repeats)}
    stage.keep("flavours", found)


def rendering(flavour: SchedulerFlavour) -> dict[str, float]:
    """Ratio of each kind; one line of what they are together."""
    usual, least = dict(ratios(flavour, usual=True)), dict(ratios(flavour, usual=False))
    worst = max(usual, key=lambda kind: usual[kind])
    verdict = "ok" if usual[worst] <= RENDER else "OVER"
    print(
        f"rendering for {flavour.title:<28} median {statistics.median(usual.values()):5.2f}  worst {usual[worst]:5.2f} "
        f"({worst})  limit {RENDER:.2f}  {verdict}; smallest bodies: median {statistics.median(least.values()):.2f}, "
        f"worst {max(least.values()):.2f}",
        flush=True,
    )
    return usual


def ratios(flavour: SchedulerFlavour, *, usual: bool) -> Iterator[tuple[str, float]]:
    """Rendering / encoding, by kind. A flavour that takes no part in the kind (nothing rendered) is left out."""
    for kind in KINDS:
        spec = job(sample(kind, **(METADATA if usual else {})), min_member=2)
        if usual:
            _fill(spec.manifest)
        if rendered := flavour.render(spec):
            yield kind.name, _best(partial(flavour.render, spec)) / _best(partial(json.dumps, rendered))


def _best(act: Callable[[], object]) -> float:
    return min(timeit.repeat(act, number=TURNS, repeat=9, timer=time.process_time))


def _fill(node: Any) -> None:
    """What people write into containers of any kind."""
    if isinstance(node, Mapping):
        if "image" in node and isinstance(node, dict):
            node.update(USUAL)
            return
        for value in list(node.values()):
            _fill(value)
    elif isinstance(node, list):
        for value in node:
            _fill(value)


def switching(projects: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each plan and of the resync, in turns on one API server."""
    samples: dict[str, list[float]] = {RESYNC: [], **{name: [] for name in TARGETS}}
    with stage.template() as template, stage.copy_of(template), plane() as server:
        for name in TARGETS:
            server.learn(name)
        cluster = registered(server, projects)
        check(reconcile(cluster), written=len(wanted(cluster)))
        foreign = _foreign(cluster)
        before = versions(cluster)
        for repeat in range(repeats):
            acts = [RESYNC, *TARGETS] if repeat % 2 == 0 else [*reversed(TARGETS), RESYNC]
            for name in acts:
                samples[name].append(_seconds(cluster, name))
        if versions(cluster) != before or _foreign(cluster) != foreign:
            raise RuntimeError("a plan has written something")
    for name in TARGETS:
        stage.ratio(f"plan to {name} / {RESYNC}", samples[name], samples[RESYNC], PLAN)
    return samples


def _seconds(cluster: Cluster, name: str) -> float:
    object_reads.forget(cluster.pk)
    cluster.refresh_from_db()
    start = time.perf_counter()
    if name == RESYNC:
        check(reconcile(cluster), written=0)
    else:
        plan = plan_switch(cluster=cluster, flavour=name)
        _check_plan(plan.conflicts, name)
    return time.perf_counter() - start


def _check_plan(conflicts: tuple[str, ...], name: str) -> None:
    """A plan that overlooks what is in the way is no measurement."""
    if (len(conflicts) == 1) != (name == "kai"):
        raise RuntimeError(f"{name}: {conflicts}")


def _foreign(cluster: Cluster) -> str:
    """A foreign queue with a name that Rung would want; its version."""
    kind = next(kind for kind in flavour_for("kai").kinds() if kind.kind == "Queue")
    gateway = gateway_for(cluster)
    found = [
        each for each in gateway.list(kind, managed_only=False)[0] if each["metadata"]["name"] == _wanted_name(cluster)
    ]
    if not found:
        spec = {
            "resources": {part: {"quota": 1, "limit": 1, "overQuotaWeight": 1} for part in ("gpu", "cpu", "memory")}
        }
        metadata = {"name": _wanted_name(cluster)}
        found = [
            gateway.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})
        ]
    return str(found[0]["metadata"]["resourceVersion"])


def _wanted_name(cluster: Cluster) -> str:
    return flavour_for("kai").queue_name(f"department.{cluster.departments.get().pk}", "h100")


if __name__ == "__main__":
    main()
