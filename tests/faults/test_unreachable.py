"""F8, F9, F10, F13: an API server that is away, slow, busy or silent."""

import time
from datetime import timedelta
from threading import Event

import pytest
from django.utils import timezone

from clusters.backends.kubernetes import gateway
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterError, ClusterUnreachable
from clusters.sync.models import SyncRun
from clusters.watch.services import informers
from clusters.watch.services.informers import watcher_for
from portal.kit.pages import formatting
from tests.factories.workloads import job
from tests.faults.conftest import LIMITS
from tests.faults.rig import LOW, SEEDS, Rig
from tests.real.product import fresh
from tests.support.faults import Drip, HalfOpen, Slow, Status
from tests.support.processes import eventually

pytestmark = pytest.mark.parametrize("seed", SEEDS)
BUSY = Status(429, "TooManyRequests", {"Retry-After": "1"}, "slow down")
AWAY = Status(503, "ServiceUnavailable")
WRONG = Status(500, "InternalError")


@pytest.mark.parametrize("away", ["refused", "black hole"])
def test_f8_what_was_wanted_while_it_was_away_comes_once_it_is_back(
    rig: Rig, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = rig.projects(2)
    rig.reconcile()
    rig.look()
    assert rig.troubles() == set()
    (rig.proxy.go_down if away == "refused" else rig.proxy.go_deaf)()
    begun = time.monotonic()
    assert isinstance(rig.attempt(), ClusterUnreachable)
    assert time.monotonic() - begun < LIMITS.total + 2
    workload = rig.submit(rig.grant(projects[0], 8), job(), **LOW)
    assert fresh(workload).apply_error
    for gpus in rig.random.sample(range(9), 3):
        rig.grant(projects[1], gpus)
    assert isinstance(rig.attempt(), ClusterUnreachable)
    with monkeypatch.context() as patch:
        patch.setattr(formatting, "AMBER_AFTER", timedelta(seconds=1))
        shown = {"failing", "failed", "stale", "degraded", "does not accept work"}
        eventually(lambda: rig.troubles() == shown, seconds=20)
    rig.settle()
    assert rig.object_of(workload) is not None


def test_f9_a_slow_server_is_waited_for_and_a_dripping_one_is_not(rig: Rig) -> None:
    projects = rig.projects(2)
    with rig.proxy.broken(Slow(0.2, least=0.05)):
        rig.reconcile()
    rig.grant(projects[0])
    with rig.proxy.broken(Drip(0.3), path="/resourcequotas|/kube-system"):
        begun = time.monotonic()
        assert isinstance(rig.attempt(), ClusterError)
        assert time.monotonic() - begun < LIMITS.total + 2
        assert "failed" in rig.troubles()


def test_f10_a_busy_server_gets_the_rest_it_asks_for_and_few_questions_more(rig: Rig) -> None:
    projects = rig.projects(4)
    rig.reconcile()
    for project in projects:
        rig.grant(project)
    before = len(rig.proxy.log)
    rig.attempt()
    usual = len(rig.proxy.log) - before
    for project in projects:
        rig.grant(project)
    before = len(rig.proxy.log)
    for fault in (BUSY, AWAY, WRONG):
        rig.proxy.breaks(fault, chance=0.1, times=2)
    deadline = time.monotonic() + 30
    while not rig.is_done(said := rig.attempt()):
        assert time.monotonic() < deadline, said
        time.sleep(min(said.retry_after or 0, 3) if isinstance(said, ClusterError) else 0)
    requested = list(rig.proxy.log[before:])
    attempts = SyncRun.objects.filter(cluster=rig.cluster).count() - 2
    assert len(requested) <= 1.5 * usual * attempts
    for refused in (each for each in requested if each.answered == 429):
        after = [each.at - refused.ended for each in requested if each.at > refused.ended + 0.1]
        assert not after or min(after) >= 0.9
    with rig.proxy.broken(rig.random.choice([BUSY, AWAY, WRONG])):
        for _ in range(2):
            assert isinstance(rig.attempt(), ClusterError)
        assert {"failing", "failed"} <= rig.troubles()


def test_f13_a_watch_that_falls_silent_is_noticed_and_shown(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "SHORT_WATCH", 1.0)
    monkeypatch.setattr(gateway, "BOOKMARKS", 2.5)
    rig.projects(1)
    rig.reconcile()
    sight = watcher_for(Cluster.objects.get(pk=rig.cluster.pk), Event(), pause=0.1)

    def is_current() -> bool:
        if sight.is_due():
            sight.turn()
        seen = Cluster.objects.get(pk=rig.cluster.pk).observed_at
        return seen is not None and timezone.now() - seen <= timedelta(seconds=5)

    try:
        eventually(is_current, seconds=20)
        silent = rig.proxy.breaks(HalfOpen(rig.random.randint(0, 1)), path="/(pods|nodes)$", watch=True)
        rig.proxy.drop()
        eventually(lambda: not is_current(), seconds=20)
        assert silent.hits >= 1
        rig.proxy.heal()
        eventually(is_current, seconds=60)
    finally:
        sight.close()
