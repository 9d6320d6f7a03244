"""F17: a worker is stopped past its claim, the world goes on, and then it wakes up in the middle of its writes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models import F

from clusters.sync.models import SyncRun, SyncState
from tests.faults.rig import SEEDS, Rig
from tests.support.faults import Slow
from tests.support.processes import environment, eventually
from tests.support.repository import ROOT

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("seed", SEEDS)]
WORK = """
import sys, django
django.setup()
from clusters.models import Cluster
from clusters.sync.services.reconcile import reconcile
reconcile(Cluster.objects.get(pk=sys.argv[1]))
"""


@contextmanager
def worker(rig: Rig, url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that reconciles once."""
    keys = ",".join(settings.RUNG_CREDENTIAL_KEYS)
    env = environment(folder, DATABASE_URL=url, RUNG_CREDENTIAL_KEYS=keys, RUNG_CLUSTER_ADDRESSES="127.0.0.0/8")
    env |= {"RUNG_SECRET_KEY": settings.SECRET_KEY, "RUNG_WAKEUPS": "off"}
    process = subprocess.Popen([sys.executable, "-c", WORK, str(rig.cluster.pk)], cwd=ROOT, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_f17_its_late_writes_are_harmless(rig: Rig, postgres_url: str, tmp_path: Path) -> None:
    projects = rig.projects(6)
    rig.reconcile()
    for project in projects:
        rig.grant(project)
    slow = rig.proxy.breaks(Slow(0.3, least=0.1), method="PUT|POST")
    before = len(rig.proxy.writes())
    with worker(rig, postgres_url, tmp_path) as late:
        eventually(lambda: len(rig.proxy.writes()) > before + rig.random.randint(0, 3), seconds=40)
        os.kill(late.pid, signal.SIGSTOP)
        assert slow.hits
        for project in projects:
            rig.grant(project)
        running = SyncRun.objects.filter(cluster=rig.cluster, state=SyncState.RUNNING)
        assert running.update(heartbeat_at=F("heartbeat_at") - timedelta(minutes=5)) == 1
        rig.settle()
        os.kill(late.pid, signal.SIGCONT)
        late.wait(30)
    states = set(SyncRun.objects.filter(cluster=rig.cluster).values_list("state", "error_code"))
    assert (SyncState.FAILED, "abandoned") in states
