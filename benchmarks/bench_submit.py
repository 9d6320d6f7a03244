"""B4: submitting a workload against the create of a bare ModelViewSet: one server, one database, one authentication.

    python -m benchmarks.bench_submit [--repeats 7] [--requests 300] [--clients 8] [--projects 10]

Uvicorn with two workers on PostgreSQL with durable commits serves both; runs of ours and of the peer alternate. The
same again with a broker that accepts connections and never says a word. Samples go to benchmarks/results/submit.json.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

import argparse
import base64
import json
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from benchmarks import stage
from benchmarks.bare.models import Thing
from benchmarks.load import WORKERS, Run, Server, load, request, serving
from portal.demo.organisation import ACTOR
from tenants.access.services.credentials import exchange
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Project
from tests.support import postgres, redis

KINDS = {"JSON": 0.75, "4 KB YAML": 0.45}
MOST_P99 = 1.5
YAML_BYTES = 4096
_number = count()
Samples = dict[str, dict[str, list[Run]]]


def manifest(name: str) -> dict[str, Any]:
    """A training job with one GPU."""
    container = {
        "name": "pytorch",
        "image": "docker.io/pytorch/pytorch:2.8.0",
        "command": ["torchrun", "train.py"],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": 1}},
    }
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": replica}},
    }


def long_yaml(name: str) -> str:
    """The same job with as many environment variables as make 4 KB of YAML."""
    text = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: docker.io/pytorch/pytorch:2.8.0
              command: [torchrun, train.py]
              resources:
                requests: {{cpu: "4", memory: 16Gi}}
                limits: {{nvidia.com/gpu: 1}}
              env:
"""
    for number in count():
        line = f"                - name: SETTING_{number:03}\n                  value: value-{number:04}\n"
        if len(text) + len(line) > YAML_BYTES:
            return text
        text += line
    raise AssertionError


def bodies(kind: str, name: str, project: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is sent to us and to the peer: the same thing in the same words."""
    metadata: dict[str, Any] = {"projectId": project}
    if kind == "JSON":
        sent: Any = manifest(name)
        return {"metadata": metadata, "manifest": sent}, {"name": name, "project": project, "manifest": sent}
    sent = base64.b64encode(long_yaml(name).encode()).decode()
    return {"metadata": metadata, "manifestBase64Encoded": sent}, {"name": name, "project": project, "manifest": sent}


def requests_of(kind: str, number: int, ids: list[str], headers: dict[str, str]) -> tuple[list[bytes], list[bytes]]:
    """So many requests to each side, over these projects in turn; every name is used once."""
    pairs = [bodies(kind, f"job-{next(_number)}", project) for project in islice(cycle(ids), number)]
    ours = [request("/api/v2/workloads", json.dumps(each).encode(), headers) for each, _ in pairs]
    return ours, [request("/bare/", json.dumps(each).encode(), headers) for _, each in pairs]


def alternate(server: Server, make: Callable[[str, int], tuple[list[bytes], list[bytes]]], options: Any) -> Samples:
    """Runs of both sides in turns, the order changing every time, after one uncounted run of each."""
    found: Samples = {kind: {"ours": [], "bare": []} for kind in KINDS}
    for repeat in range(options.repeats + 1):
        for kind, sides in found.items():
            ours, bare = make(kind, options.requests if repeat else 60)
            turns = [("ours", ours, 202), ("bare", bare, 201)]
            for side, requests, expected in turns if repeat % 2 else reversed(turns):
                run = load(server, requests, options.clients, expected)
                sides[side] += [run] if repeat else []
    return found


def report(samples: Samples) -> None:
    """One line per kind: ratio of the medians, the ratios of single pairs, p99 and processor time."""
    for kind, sides in samples.items():
        pairs = [ours.per_second / bare.per_second for ours, bare in zip(sides["ours"], sides["bare"], strict=True)]
        rate = {side: statistics.median(run.per_second for run in runs) for side, runs in sides.items()}
        last = {side: statistics.median(stage.p99(run.each) for run in runs) for side, runs in sides.items()}
        work = {side: statistics.median(run.processor / len(run.each) for run in runs) for side, runs in sides.items()}
        value = statistics.median(pairs)
        print(
            f"{kind:<10} req/s ours / bare {value:.2f} (pairs {min(pairs):.2f}-{max(pairs):.2f}, target {KINDS[kind]})"
            f" {'ok' if value >= KINDS[kind] else 'UNDER'}; {rate['ours']:.0f} and {rate['bare']:.0f} per second;"
            f" p99 {last['ours'] / last['bare']:.2f}x (limit {MOST_P99});"
            f" server processor time {work['ours'] * 1e3:.1f} and {work['bare'] * 1e3:.1f} ms per request"
        )


@contextmanager
def black_hole() -> Iterator[str]:
    """The address of a broker that takes connections and is silent for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def samples_with(broker: str, database: str, folder: Path, make: Any, options: Any) -> Samples:
    """Start the server with that broker and measure."""
    environment = {
        "DATABASE_URL": database,
        "RUNG_DATABASE_POOL": "true",
        "RUNG_BROKER_URL": broker,
        "RUNG_DATA": str(settings.DATA_DIR),
        "RUNG_SECRET_KEY": settings.SECRET_KEY,
    }
    with serving(environment, settings.DATA_DIR / f"server-{folder.name}.log") as server:
        return alternate(server, make, options)


def main() -> None:
    """Measure with a broker that works and with one that does not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--projects", type=int, default=10)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {WORKERS} workers, {options.repeats} repeats, {options.clients} clients", end=" ")
    print(f"in {options.projects} projects")
    with stage.server() as folder, stage.stage(folder, "submit"), redis.server() as broker, black_hole() as hole:
        with connection.schema_editor() as editor:
            editor.create_model(Thing)
        stage.organisation(options.projects)
        account, secret = create_service_account(name="bench", actor=ACTOR, role="platform-admin")
        headers = {"Authorization": f"Bearer {exchange(account.client_id, secret).text}"}
        projects = [str(pk) for pk in Project.objects.values_list("pk", flat=True)]

        def make(kind: str, number: int) -> tuple[list[bytes], list[bytes]]:
            return requests_of(kind, number, projects, headers)

        database = postgres.url(folder, "submit")
        found = {
            name: samples_with(url, database, folder, make, options)
            for name, url in {"broker works": broker, "broker is silent": hole}.items()
        }
    for name, samples in found.items():
        print(name)
        report(samples)
    silent = {
        kind: statistics.median(stage.p99(run.each) for run in found["broker is silent"][kind]["ours"])
        / statistics.median(stage.p99(run.each) for run in found["broker works"][kind]["ours"])
        for kind in KINDS
    }
    print("our p99, silent broker / working one:", ", ".join(f"{kind} {value:.2f}" for kind, value in silent.items()))
    stage.keep("submit", {"options": vars(options), "runs": {name: plain(each) for name, each in found.items()}})


def plain(samples: Samples) -> dict[str, Any]:
    """Every run's figures, without the single requests."""
    return {
        kind: {
            side: [
                {
                    "per_second": round(run.per_second, 1),
                    "p50_ms": round(statistics.median(run.each) * 1e3, 2),
                    "p99_ms": round(stage.p99(run.each) * 1e3, 2),
                    "processor_ms": round(run.processor / len(run.each) * 1e3, 2),
                }
                for run in runs
            ]
            for side, runs in sides.items()
        }
        for kind, sides in samples.items()
    }


if __name__ == "__main__":
    main()
