"""A real scheduler evicts while nobody can see it: one record of each pod that went, and all of it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from django.conf import settings
from django.db.models import F

from clusters.backends.kubernetes import gateway
from clusters.ports.gateway import Manifest
from clusters.ports.objects import NODE, POD
from clusters.watch.models import ObserverLease, ObserverSeat
from clusters.watch.services import informers
from clusters.watch.services.observer import LEASE
from tests.factories.workloads import job
from tests.faults.observing import observer
from tests.faults.rig import LOW, PATIENCE, SEEDS, Rig
from tests.real.product import fresh
from tests.support.faults import Expired, Fault, HalfOpen, Status, Truncated
from tests.support.processes import end, environment, eventually
from tests.support.repository import ROOT
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("seed", SEEDS)]
GRACE = 2
GPUS = 8
GONE = Status(410, "Expired", message="too old resource version")


def graceful(name: str, *, pods: int = 1) -> Manifest:
    """A job whose pods fill a node each and take all their grace to end."""
    manifest = job(name, gpus=GPUS, pods=pods)
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE
    return manifest


def full(rig: Rig) -> Workload:
    """A low training that fills every node, seen to run by whoever observes."""
    project = rig.project("team", deserved=GPUS)
    rig.reconcile()
    nodes = len(rig.admin.list(NODE))
    train = rig.submit(project, graceful("train", pods=nodes), **LOW)
    eventually(lambda: fresh(train).running_pods == nodes, seconds=PATIENCE)
    return train


def urgent(rig: Rig, victim: Workload) -> Workload:
    """Something higher that nothing but an eviction makes room for; it has its node, and the victim is gone."""
    serve = rig.submit(victim.project, graceful("serve"), priority="high")
    placed(rig, serve)
    return serve


def placed(rig: Rig, workload: Workload) -> None:
    """Workers hand it over, and the scheduler gives it a node."""

    def has_node() -> bool:
        rig.work()
        return any(pod["spec"].get("nodeName") for pod in rig.pods_of(workload))

    eventually(has_node, seconds=PATIENCE)


def recorded(rig: Rig, victim: Workload, taker: Workload) -> None:
    """Exactly one, complete, of the one pod that went."""
    rig.proxy.heal()
    eventually(lambda: fresh(taker).phase == Phase.RUNNING, seconds=PATIENCE)
    complete = PreemptionRecord.objects.filter(victim=victim, preemptor=taker, gone_at__isnull=False)
    eventually(complete.exists, seconds=PATIENCE)
    record = PreemptionRecord.objects.get()
    live = {pod["metadata"]["uid"] for pod in rig.admin.list(POD, namespace=victim.project.namespace)}
    assert record.pod_uid not in live
    assert (record.cause, record.preemptor_name, record.gpu_milli) == ("preempt", "serve", GPUS * 1000)
    assert record.node_name
    assert fresh(victim).preempted_count == 1


@pytest.mark.parametrize(
    "sorts",
    [[Truncated(0), Truncated(1)], [GONE, Expired(0), Expired(1)], [HalfOpen(0), HalfOpen(1)]],
    ids=["cut off", "410", "silent"],
)
def test_f12_f13_f14_an_eviction_behind_a_broken_watch_is_recorded_once(
    rig: Rig, sorts: list[Fault], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = sorts[seed % len(sorts)]
    monkeypatch.setattr(informers, "SHORT_WATCH", 1.0)
    monkeypatch.setattr(gateway, "BOOKMARKS", 2.5)
    with observer():
        train = full(rig)
        broken = rig.proxy.breaks(said, path="/(pods|events)$", watch=True, chance=rig.random.uniform(0.6, 1.0))
        rig.proxy.drop()
        serve = urgent(rig, train)
        eventually(lambda: broken.hits, seconds=PATIENCE)
        recorded(rig, train, serve)


@contextmanager
def observing(rig: Rig, url: str, folder: Path) -> Iterator[Popen[bytes]]:
    """An observer in a process of its own."""
    keys = ",".join(settings.RUNG_CREDENTIAL_KEYS)
    env = environment(folder, DATABASE_URL=url, RUNG_CREDENTIAL_KEYS=keys, RUNG_CLUSTER_ADDRESSES="127.0.0.0/8")
    env |= {"RUNG_SECRET_KEY": settings.SECRET_KEY, "RUNG_WAKEUPS": "off"}
    process = Popen([sys.executable, "manage.py", "observer"], cwd=ROOT, env=env)
    try:
        yield process
    finally:
        end(process)


def time_passes() -> None:
    """The lease and the seat of who died have run out: nobody need wait for it."""
    ObserverLease.objects.update(expires_at=F("expires_at") - LEASE)
    ObserverSeat.objects.update(seen_at=F("seen_at") - LEASE)


def test_f13_an_eviction_while_the_observer_is_dead_is_recorded_once_by_the_next(
    rig: Rig, postgres_url: str, tmp_path: Path
) -> None:
    with observing(rig, postgres_url, tmp_path) as first:
        train = full(rig)
        serve = rig.submit(train.project, graceful("serve"), priority="high")
        if rig.random.random() < 0.5:  # it knows of the eviction, and not yet of its end
            eventually(PreemptionRecord.objects.exists, seconds=PATIENCE)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    placed(rig, serve)
    time_passes()
    with observer():
        recorded(rig, train, serve)
