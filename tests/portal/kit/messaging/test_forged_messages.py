"""T66: whoever can write to the broker can wake workers, and nothing else: a message carries ids and no authority."""

import base64
import json
import pickle
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.core.exceptions import ValidationError
from kombu import Connection

from clusters.inventory.models import Cluster
from clusters.sandbox.tasks import tick_sandbox
from clusters.sync import tasks as sync_tasks
from clusters.sync.models import SyncRun
from clusters.watch.tasks import observe
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from tests.portal.kit.messaging.test_brokers import PATIENCE, WORKER, heartbeats_of, names
from tests.support.processes import environment, eventually, running
from workloads.lifecycle import tasks as lifecycle_tasks
from workloads.replay.tasks import run_replay
from workloads.reports.tasks import make_report
from workloads.state.models import DesiredPhase, Phase, Workload, WorkloadEvent


class Touches:
    """Unpickled, it runs a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return Path.touch, (self.file,)


def forged(queue: str, task: str, body: bytes, kind: str) -> dict[str, Any]:
    return {
        "body": body,
        "routing_key": queue,
        "content_type": kind,
        "content_encoding": "binary" if "json" not in kind else "utf-8",
        "headers": {"task": task, "id": str(uuid4()), "lang": "py", "root_id": None, "parent_id": None, "group": None},
    }


def requested(task: str, *args: object) -> dict[str, Any]:
    return forged("sync", task, json.dumps([args, {}, {}]).encode(), "application/json")


@pytest.mark.enable_socket
@pytest.mark.timeout(240)
def test_t66_a_worker_unpickles_nothing_runs_nothing_unknown_and_is_commanded_by_nobody(
    redis_url: str, postgres_url: str, tmp_path: Path
) -> None:
    pickled, smuggled, made = (tmp_path / name for name in ("pickled", "smuggled", "made"))
    evil = pickle.dumps([(Touches(pickled),), {}, {}])
    within = base64.b64encode(pickle.dumps(Touches(smuggled))).decode()
    messages = [
        forged("sync", "core.canary", evil, "application/x-python-serialize"),
        forged("sync", "core.canary", b"\x00not json", "application/json"),
        forged(
            "sync", "core.canary", f"!!python/object/apply:os.mkdir ['{tmp_path}/made']".encode(), "application/x-yaml"
        ),
        requested("os.system", f"touch {pickled}"),
        requested("celery.backend_cleanup"),
        requested("core.canary", {"__type__": "pickle", "__value__": within}),
        requested("clusters.reconcile_cluster", "../../etc/passwd"),
        requested("clusters.reconcile_cluster", str(uuid4()), "too", "many"),
        requested("workloads.apply_due", {"id": 1}),
    ]
    env = environment(tmp_path, DATABASE_URL=postgres_url, RUNG_BROKER_URL=redis_url)
    log = tmp_path / "worker.log"
    with running(env, *WORKER, log=log), heartbeats_of(postgres_url) as cursor, Connection(redis_url) as broker:
        producer = broker.Producer()
        for each in messages:
            producer.publish(each.pop("body"), exchange="", **each)
        stranger = Celery(broker=redis_url, set_as_current=False)
        stranger.control.shutdown()
        for queue in ("sync", "workloads"):
            stranger.send_task("core.canary", args=[queue], queue=queue, exchange="", routing_key=queue)
        eventually(lambda: names(cursor) >= {"worker:sync", "worker:workloads"}, seconds=PATIENCE, log=log)
        eventually(lambda: "unregistered task" in log.read_text(), seconds=PATIENCE, log=log)
        said = log.read_text()
        changed = cursor.execute("SELECT count(*) FROM clusters_syncrun").fetchone()
    assert "ContentDisallowed" in said or "Refusing to deserialize" in said
    assert not any(each.exists() for each in (pickled, smuggled, made))
    assert changed == (0,)


WITH_IDS = (
    sync_tasks.reconcile_cluster,
    sync_tasks.dry_run,
    sync_tasks.remove_traces,
    tick_sandbox,
    observe,
    lifecycle_tasks.apply_due,
    make_report,
    run_replay,
)


@pytest.mark.django_db
@pytest.mark.parametrize("task", WITH_IDS, ids=lambda task: task.name)
@pytest.mark.parametrize("wanted", ["3f2b8c9a-1d4e-4f6a-9b7c-0a1b2c3d4e5f", "7", "", "' OR 1=1 --"])
def test_t66_an_id_of_nothing_does_nothing(task: Any, wanted: str, llm_team: Project) -> None:
    before = (AuditRecord.objects.count(), SyncRun.objects.count(), WorkloadEvent.objects.count())
    with nullcontext() if wanted.startswith("3f2b") else suppress(ValidationError, ValueError):
        task(wanted)
    assert (AuditRecord.objects.count(), SyncRun.objects.count(), WorkloadEvent.objects.count()) == before


@pytest.mark.django_db
def test_t66_a_replayed_or_foreign_id_only_brings_about_what_the_record_wants(llm_team: Project) -> None:
    stopped: Workload = WorkloadFactory.create(
        project=llm_team, phase=Phase.STOPPED, desired_phase=DesiredPhase.STOPPED
    )
    lifecycle_tasks.apply_due(str(llm_team.cluster_id))
    stopped.refresh_from_db()
    first = (stopped.phase, stopped.desired_phase, WorkloadEvent.objects.count(), AuditRecord.objects.count())
    for _ in range(3):
        lifecycle_tasks.apply_due(str(llm_team.cluster_id))
    stopped.refresh_from_db()
    again = (stopped.phase, stopped.desired_phase, WorkloadEvent.objects.count(), AuditRecord.objects.count())
    assert again == first
    assert first[:2] == (Phase.STOPPED, DesiredPhase.STOPPED)


@pytest.mark.django_db
def test_t66_a_paused_cluster_is_left_alone_whoever_asks(cluster: Cluster) -> None:
    Cluster.objects.update(state="paused")
    for task in (sync_tasks.reconcile_cluster, sync_tasks.dry_run, observe, sync_tasks.remove_traces):
        task(str(cluster.pk))
    assert not SyncRun.objects.exists()
