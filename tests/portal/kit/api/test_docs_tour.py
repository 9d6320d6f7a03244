"""The commands of docs/api.md, in their order, against a live portal."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services import subjects
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import ProjectFactory, ProjectQuotaFactory
from tests.support.asgi import served
from tests.support.repository import ROOT
from workloads.state.models import Phase, Workload

GUIDE = ROOT / "docs" / "api.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def script() -> str:
    """Every block, each said before it runs."""
    told = []
    for number, (language, text) in enumerate(BLOCK.findall(GUIDE.read_text())):
        body = text if language == "sh" else f"python3 - <<'PYTHON'\n{text}PYTHON\n"
        told.append(f"echo '--- {number}' >&2\n{body}")
    assert len(told) >= 10
    return "\n".join(told)


def completes(name: str, over: threading.Event) -> None:
    """The worker and the cluster of this test: what is submitted runs and ends."""
    while not over.wait(0.3):
        for row in Workload.objects.filter(name=name, phase=Phase.CREATING):
            for phase in (Phase.RUNNING, Phase.COMPLETED):
                Workload.objects.filter(pk=row.pk).update(phase=phase, phase_at=timezone.now())
                row.timeline.create(at=timezone.now(), type="phase", phase=phase)
                over.wait(0.5)
    connection.close()


@pytest.mark.postgres
def test_every_command_of_the_guide_works(postgres_db: str, socket_enabled: None, tmp_path: Path) -> None:
    project = ProjectFactory.create(name="llm-team")
    ProjectQuotaFactory.create(
        project=project, node_pool=NodePoolFactory.create(cluster=project.cluster, is_default=True)
    )
    account, secret = subjects.create_service_account(name="tour", actor=SYSTEM, role=Role.MEMBER, project=project)
    (tmp_path / "rung").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rung_cli "$@"\n')
    (tmp_path / "rung").chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    over = threading.Event()
    cluster = threading.Thread(target=completes, args=("tour", over))
    cluster.start()
    try:
        with served() as address:
            env = {
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "PYTHONPATH": f"{ROOT / 'cli'}:{':'.join(sys.path)}",
                "RUNG_CONFIG": str(tmp_path),
                "RUNG_URL": address,
                "RUNG_CLIENT_ID": account.client_id,
                "RUNG_CLIENT_SECRET": secret,
            }
            done = subprocess.run(
                ["bash", "-eu"], input=script(), env=env, capture_output=True, text=True, timeout=120, check=False
            )
    finally:
        over.set()
        cluster.join(10)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "refused, as it should be" in done.stdout
    assert set(Workload.objects.values_list("name", flat=True)) == {"tour", "from-python", "from-rung", "tonight"}
