"""A script that submits and reads through Run:ai's own client: does a call take longer the more there is?

    python -m benchmarks.bench_client [--workloads 1000]

Uvicorn with two workers on PostgreSQL with durable commits, and the unmodified `runapy`, call after call: submit a
training, read it back, list the newest page. The last tenth of these calls is measured beside the first tenth of the
same script on a portal of its own, call by call in turns: what else the machine does meanwhile falls on both alike.
Both have listed a full page before. Samples go to benchmarks/results/client.json.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from runai import models
from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

from benchmarks import stage
from benchmarks.load import serving
from portal.demo.organisation import ACTOR
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Project
from tests.support import postgres, redis

LIMIT: Final = 1.1
PAGE: Final = 50
NEWEST: Final[dict[str, Any]] = {"limit": PAGE, "sort_by": "createdAt", "sort_order": "desc"}


@dataclass
class Script:
    """Somebody's script against one portal: how many workloads it has made, and seconds of every call by its name."""

    client: RunaiClient
    project: Project
    made: int = 0
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"submit": [], "read": [], "list": []})

    def turn(self) -> None:
        """One workload: submitted, read, and seen in the list."""
        body = models.TrainingCreationRequest(
            name=f"loop-{self.made}",
            project_id=str(self.project.pk),
            cluster_id=str(self.project.cluster_id),
            spec=models.TrainingSpecSpec(
                image="docker.io/pytorch/pytorch:2.8.0", compute=models.SupersetSpecAllOfCompute(gpu_devices_request=1)
            ),
        )
        workloads = self.client.workloads
        seconds, answer = stage.timed(lambda: workloads.trainings.create_training1(body))
        self.seconds["submit"].append(seconds)
        identity = answer.data["workloadId"]
        self.seconds["read"].append(stage.timed(lambda: workloads.trainings.get_training(identity))[0])
        self.seconds["list"].append(stage.timed(lambda: workloads.workloads.get_workloads(**NEWEST))[0])
        self.made += 1


@contextmanager
def script(folder: Path, name: str, broker: str) -> Iterator[Script]:
    """A portal on a database of its own, and a script that has signed in to it."""
    with stage.stage(folder, name):
        stage.organisation(10)
        account, secret = create_service_account(name="bench", actor=ACTOR, role="platform-admin")
        project = Project.objects.select_related("cluster").order_by("pk")[0]
        environment = {
            "DATABASE_URL": postgres.url(folder, name),
            "RUNG_DATABASE_POOL": "true",
            "RUNG_BROKER_URL": broker,
            "RUNG_DATA": str(settings.DATA_DIR),
            "RUNG_SECRET_KEY": settings.SECRET_KEY,
        }
        with serving(environment, settings.DATA_DIR / f"{name}.log") as server:
            known = Configuration(
                client_id=account.client_id, client_secret=secret, runai_base_url=f"http://127.0.0.1:{server.port}"
            )
            yield Script(RunaiClient(ApiClient(known)), project)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000)
    requested = parser.parse_args()
    tenth = max(1, requested.workloads // 10)
    with (
        stage.server() as folder,
        redis.server() as broker,
        script(folder, "old", broker) as old,
        script(folder, "young", broker) as young,
    ):
        for _ in range(PAGE + requested.workloads - tenth):
            old.turn()
        for _ in range(PAGE):
            young.turn()
        for number in range(tenth):
            for each in (old, young) if number % 2 else (young, old):
                each.turn()
    for name in old.seconds:
        last, first = old.seconds[name][-tenth:], young.seconds[name][-tenth:]
        stage.ratio(f"{name}: last tenth / first tenth", last, first, LIMIT)
    stage.keep("client", {"workloads": requested.workloads, "old": old.seconds, "young": young.seconds})


if __name__ == "__main__":
    main()
