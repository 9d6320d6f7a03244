"""Reports and several workers, on a real PostgreSQL: many at once, and one that is killed past its claim."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from clusters.watch.models import Sample
from clusters.watch.selectors import ALL
from tenants.organisation.models import Project
from tests.factories.tenants import ProjectQuotaFactory
from tests.factories.workloads import ReportFactory
from tests.support.processes import environment, eventually
from tests.support.repository import ROOT
from workloads.reports import services as reports_services
from workloads.reports.models import Report

pytestmark = pytest.mark.postgres
WORKERS = 8
WORK = """
import sys, django
django.setup()
from workloads.reports import services
services.make(sys.argv[1])
"""


@pytest.fixture
def report(postgres_db: str) -> Report:
    """By cluster; the cluster was measured three times."""
    project: Project = ProjectQuotaFactory(node_pool__is_default=True).project
    owner = {"cluster": project.cluster, "kind": "cluster", "owner": str(project.cluster_id)}
    now = timezone.now().replace(second=0, microsecond=0)
    for number in (3, 2, 1):
        at = now - number * timedelta(minutes=1)
        Sample.objects.create(**owner, at=at, figures={ALL: {"gpu_held": 60_000}})
    made: Report = ReportFactory(end=now)
    return made


@contextmanager
def worker(report: Report, url: str, folder: Path) -> Iterator[None]:
    """A process of its own that makes the report, until it is killed."""
    env = environment(folder, DATABASE_URL=url, RUNG_WAKEUPS="off")
    process = subprocess.Popen([sys.executable, "-c", WORK, str(report.pk)], cwd=ROOT, env=env)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_one_of_many_workers_makes_it(report: Report) -> None:
    start = Barrier(WORKERS)

    def work(_number: int) -> bool:
        try:
            start.wait()
            return reports_services.make(report.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        assert sorted(pool.map(work, range(WORKERS))) == [False] * (WORKERS - 1) + [True]
    report.refresh_from_db()
    assert (report.status, report.attempts) == ("Ready", 1)
    assert ",3.000," in report.content  # 60 GPUs for three minutes


def test_a_worker_that_is_killed_past_its_claim_leaves_it_to_the_sweep(
    report: Report, postgres_url: str, tmp_path: Path
) -> None:
    rows = Report.objects.filter(pk=report.pk)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE clusters_sample IN ACCESS EXCLUSIVE MODE")
        with worker(report, postgres_url, tmp_path):
            eventually(lambda: rows.filter(status="Processing").exists(), seconds=60)
    assert reports_services.sweep() == 0
    assert rows.update(due_at=F("due_at") - reports_services.LEASE) == 1
    assert reports_services.sweep() == 1
    report.refresh_from_db()
    assert (report.status, report.attempts) == ("Ready", 2)
