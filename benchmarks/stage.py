"""What the database benchmarks share: a PostgreSQL of their own, an organisation, many workloads, and fair timing."""

import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

import psycopg
from django.db import connection, connections

from clusters.inventory.models import Cluster, NodePool
from portal.kit.messaging.gc_tuning import tune_gc
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from tests.factories.workloads import WorkloadFactory, pytorch_job, spec_of
from tests.support import database, postgres
from workloads.state.models import Workload

Answer = TypeVar("Answer")

# What differs between the workloads of `fill`; everything else is as in the row they are copied from.
_DRAWN: Final = {
    "id": "md5('w' || n)::uuid",
    "name": "'job-' || n",
    "project_id": "%(first)s + n %% %(projects)s",
    "priority_value": "(ARRAY[25, 40, 65, 90])[1 + n %% 4]",
    "phase": "(ARRAY['Running', 'Pending', 'Completed', 'Completed', 'Failed'])[1 + (n + n / %(projects)s) %% 5]",
    "phase_at": "now() - n * interval '1 minute'",
    "created_at": "now() - n * interval '1 minute'",
}


@contextmanager
def server() -> Iterator[Path]:
    """A PostgreSQL with durable commits, as production has them."""
    with postgres.server(durable=True) as folder:
        yield folder


@contextmanager
def stage(folder: Path, name: str) -> Iterator[None]:
    """A fresh migrated database as Django's default."""
    with psycopg.connect(host=str(folder), user="rung", dbname="postgres", autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
    with database.default_database(postgres.url(folder, name)):
        database.migrate()
        yield


@contextmanager
def template() -> Iterator[Path]:
    """A migrated SQLite file, to copy for every sample, in a process that collects garbage as a worker does."""
    tune_gc()
    with tempfile.TemporaryDirectory(prefix="rung-bench-") as folder:
        file = Path(folder) / "template.sqlite3"
        with _sqlite(file):
            database.migrate()
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield file


@contextmanager
def copy_of(file: Path) -> Iterator[None]:
    """A copy of a migrated file as Django's default database, with the settings the portal gives SQLite."""
    with tempfile.TemporaryDirectory(prefix="rung-bench-") as folder:
        copy = Path(folder) / "rung.sqlite3"
        shutil.copyfile(file, copy)
        with _sqlite(copy):
            yield


@contextmanager
def _sqlite(file: Path) -> Iterator[None]:
    options = connections.settings["default"].get("OPTIONS", {})
    with database.default_database(f"sqlite:///{file}"):
        connections.settings["default"]["OPTIONS"] = options
        yield


def organisation(projects: int = 10) -> User:
    """One cluster, one department, some projects with room for everything; returns a platform admin."""
    cluster = Cluster.objects.create(name="bench", flavour="kai")
    pool = NodePool.objects.create(cluster=cluster, name="h100", label_value="h100", is_default=True)
    department = Department.objects.create(cluster=cluster, name="bench")
    for number in range(projects):
        project = Project.objects.create(
            department=department, cluster=cluster, name=f"p{number}", namespace=f"runai-p{number}"
        )
        ProjectQuota.objects.create(project=project, node_pool=pool, gpu_deserved=10**9)
    return User.objects.create_superuser("admin", password="bench")


def fill(count: int, projects: int = 10) -> None:
    """That many workloads, spread over projects and phases: copies of one PyTorchJob of 8 GPUs."""
    first = Project.objects.order_by("pk")[0]
    original = WorkloadFactory(
        project=first, pool_name="h100", gpu_milli=8000, spec=spec_of(pytorch_job(gpus=8)).as_json()
    )
    columns = [str(field.column) for field in Workload._meta.concrete_fields]
    values = ", ".join(_DRAWN.get(each, each) for each in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO workloads_workload ({', '.join(columns)}) SELECT {values}"  # names of columns
            " FROM workloads_workload, generate_series(1, %(count)s) AS n WHERE id = %(original)s",
            {"first": first.pk, "projects": projects, "count": count, "original": original.pk},
        )
        original.delete()
        cursor.execute("ANALYZE")


def seconds(act: Callable[[], object], repeats: int) -> list[float]:
    """Wall seconds of each repeat, after three uncounted ones."""
    for _ in range(3):
        act()
    return [timed(act)[0] for _ in range(repeats)]


def timed(act: Callable[[], Answer]) -> tuple[float, Answer]:
    """Wall seconds, and what came of it."""
    start = time.perf_counter()
    answer = act()
    return time.perf_counter() - start, answer


def p95(samples: list[float]) -> float:
    """The 95th percentile, never beyond the largest sample."""
    return statistics.quantiles(samples, n=100, method="inclusive")[94]


def p99(samples: list[float]) -> float:
    """The 99th percentile, never beyond the largest sample."""
    return statistics.quantiles(samples, n=100, method="inclusive")[98]


def ratio(name: str, ours: list[float], theirs: list[float], limit: float) -> None:
    """One line: the ratio of medians, its limit, the spread of both."""
    value = statistics.median(ours) / statistics.median(theirs)
    verdict = "ok" if value <= limit else "OVER"
    spread = "; ".join(f"{min(each) * 1e3:.1f}-{max(each) * 1e3:.1f} ms" for each in (ours, theirs))
    print(f"{name:<44} {value:6.3f}  limit {limit:5.2f}  {verdict:<5} (min-max {spread})")


def keep(name: str, found: dict[str, Any]) -> None:
    """Write the samples of a run where they are kept, with the machine they come from."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    where = {"day": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "python": platform.python_version()}
    (folder / f"{name}.json").write_text(json.dumps({**where, **found}) + "\n")
