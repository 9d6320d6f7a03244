"""A script that submits and reads through Run:ai's own client: does a call take longer the more there is?

    python -m benchmarks.bench_client [--workloads 1000]

Uvicorn with two workers on PostgreSQL with durable commits, and the unmodified `runapy`, call after call: submit a
training, read it back, list the newest page. The first and the last tenth are compared, after as many calls as fill
the page that is listed. Samples go to
benchmarks/results/client.json.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

import argparse
from typing import Final

from django.conf import settings
from runai import models
from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.runai_client import RunaiClient

from benchmarks import stage
from benchmarks.load import serving
from tenants.models import Project
from tenants.services.service_accounts import create
from tests.support import postgres, redis
from workloads.demo.organisation import ACTOR

LIMIT: Final = 1.1
PAGE: Final = 50
CALLS: Final = ("submit", "read", "list")
Samples = dict[str, list[float]]


def loop(client: RunaiClient, project: Project, number: int) -> Samples:
    """Seconds of every call."""
    found: Samples = {name: [] for name in CALLS}
    compute = models.SupersetSpecAllOfCompute(gpu_devices_request=1)
    for each in range(number):
        body = models.TrainingCreationRequest(
            name=f"loop-{each}",
            project_id=str(project.pk),
            cluster_id=str(project.cluster_id),
            spec=models.TrainingSpecSpec(image="docker.io/pytorch/pytorch:2.8.0", compute=compute),
        )
        seconds, answer = stage.timed(lambda body=body: client.workloads.trainings.create_training1(body))
        found["submit"].append(seconds)
        made = answer.data["workloadId"]
        found["read"].append(stage.timed(lambda made=made: client.workloads.trainings.get_training(made))[0])
        newest = {"limit": PAGE, "sort_by": "createdAt", "sort_order": "desc"}
        found["list"].append(stage.timed(lambda newest=newest: client.workloads.workloads.get_workloads(**newest))[0])
    return found


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000)
    asked = parser.parse_args()
    with stage.server() as folder, stage.stage(folder, "client"), redis.server() as broker:
        stage.organisation(10)
        account, secret = create(name="bench", actor=ACTOR, role="platform-admin")
        project = Project.objects.select_related("cluster").order_by("pk")[0]
        environment = {
            "DATABASE_URL": postgres.url(folder, "client"),
            "RUNG_DATABASE_POOL": "true",
            "RUNG_BROKER_URL": broker,
            "RUNG_DATA": str(settings.DATA_DIR),
            "RUNG_SECRET_KEY": settings.SECRET_KEY,
        }
        with serving(environment, settings.DATA_DIR / "client.log") as server:
            known = Configuration(
                client_id=account.client_id, client_secret=secret, runai_base_url=f"http://127.0.0.1:{server.port}"
            )
            found = loop(RunaiClient(ApiClient(known)), project, PAGE + asked.workloads)
    tenth = max(1, asked.workloads // 10)
    for name, samples in found.items():
        stage.ratio(f"{name}: last tenth / first tenth", samples[-tenth:], samples[PAGE : PAGE + tenth], LIMIT)
    stage.keep("client", {"workloads": asked.workloads, "seconds": found})


if __name__ == "__main__":
    main()
