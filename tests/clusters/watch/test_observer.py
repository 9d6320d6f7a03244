"""Observers share clusters out by lease, a broken cluster holds up nobody, and SIGTERM ends the process cleanly."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, store_of
from clusters.connection.services import gateways
from clusters.inventory.models import Cluster, ClusterState, Node
from clusters.ports.gateway import ClusterGateway, ClusterUnreachable
from clusters.sandbox.services.simulation import SandboxGateway
from clusters.sandbox.tasks import tick_sandbox, tick_sandboxes
from clusters.watch.models import ObserverLease
from clusters.watch.services import observations
from clusters.watch.services.observer import LEASE, Observer, acquire, balance_leases, release, unwatched
from clusters.watch.tasks import observe, observe_all
from portal.kit.messaging import heartbeats
from tests.clusters.sandboxes import Sandbox, furnished, job
from tests.factories.clusters import build_cluster
from tests.support.processes import environment, eventually, running

SECONDS = 20.0


@contextmanager
def watching(observer: Observer) -> Iterator[Observer]:
    thread = threading.Thread(target=observer.run)
    thread.start()
    try:
        yield observer
    finally:
        observer.stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


class Away(SandboxGateway):
    """Cannot be reached."""

    def newest(self) -> str:
        raise ClusterUnreachable("connection refused")


class Stuck(SandboxGateway):
    """Answers never, until told to."""

    free = threading.Event()

    def newest(self) -> str:
        self.free.wait(SECONDS)
        raise ClusterUnreachable("timed out")


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[SandboxGateway]]:
    """Backend by cluster name, for those that are not simply sandboxes."""
    special: dict[str, type[SandboxGateway]] = {}

    def gateway_for(cluster: Cluster) -> ClusterGateway:
        return special.get(cluster.name, SandboxGateway)(cluster)

    monkeypatch.setattr(gateways, "BACKENDS", {"sandbox": gateway_for})
    return special


@pytest.mark.postgres
@pytest.mark.parametrize("broken", [Away, Stuck], ids=["unreachable", "silent"])
def test_a_broken_cluster_does_not_hold_up_another(broken: Any, behind: dict[str, type[SandboxGateway]]) -> None:
    Stuck.free.clear()
    behind["a-broken"] = broken
    Sandbox(name="a-broken")
    healthy = Sandbox(name="b-healthy")
    with watching(Observer(pause=0.05)):
        eventually(lambda: Cluster.objects.get(name="b-healthy").observed_at)
        healthy.node()
        eventually(Node.objects.exists)
        Stuck.free.set()
    assert Cluster.objects.get(name="a-broken").observed_at is None


@pytest.mark.postgres
def test_of_two_observers_one_holds_the_cluster_and_the_other_takes_over() -> None:
    sandbox = Sandbox()
    first, second = Observer(pause=0.05), Observer(pause=0.05)
    with watching(second):
        with watching(first):
            eventually(lambda: ObserverLease.objects.filter(holder__in=[first.holder, second.holder]).exists())
        sandbox.node()
        eventually(lambda: ObserverLease.objects.filter(holder=second.holder).exists() and Node.objects.exists())
    assert ObserverLease.objects.get().holder == ""


@pytest.mark.postgres
def test_watches_that_open_while_the_observer_ends_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, go = threading.Event(), threading.Event()

    def slow(cluster: Cluster) -> ClusterGateway:
        opening.set()
        go.wait(SECONDS)
        return MemoryGateway(store_of(str(cluster.pk)))

    monkeypatch.setattr(gateways, "BACKENDS", {"memory": slow})
    build_cluster(name="opening", flavour="kube", backend="memory")
    with watching(Observer(pause=0.05)) as observer:
        assert opening.wait(SECONDS)
        observer.stop.set()
        time.sleep(0.5)
        go.set()
    eventually(lambda: not [each.name for each in threading.enumerate() if "-opening" in each.name], seconds=SECONDS)


@pytest.mark.postgres
def test_it_proves_that_it_works() -> None:
    with watching(Observer(pause=0.05)):
        eventually(lambda: "observer" in heartbeats.ages())


@pytest.mark.postgres
def test_who_takes_long_to_share_clusters_out_still_watches_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    requested, free = threading.Event(), threading.Event()

    def slow(*, holder: str) -> set[UUID]:
        found = balance_leases(holder=holder)
        if Cluster.objects.filter(observed_at__isnull=False).exists():
            requested.set()
            free.wait(SECONDS)
        return found

    monkeypatch.setattr("clusters.watch.services.observer.balance_leases", slow)
    sandbox = Sandbox()
    with watching(Observer(pause=0.05)):
        assert requested.wait(SECONDS)
        sandbox.node()
        eventually(Node.objects.exists)
        free.set()


@contextmanager
def away(server: Path) -> Iterator[None]:
    """The database refuses everybody for a while, and ends who is connected."""
    name = connection.settings_dict["NAME"]
    connection.close()
    with psycopg.connect(host=str(server), user="rung", dbname="postgres", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())


@pytest.mark.postgres
def test_a_database_that_goes_away_is_waited_for(postgres_server: Path) -> None:
    sandbox = Sandbox()
    with watching(Observer(pause=0.05)):
        eventually(lambda: Cluster.objects.get().observed_at)
        with away(postgres_server):
            time.sleep(0.5)
        sandbox.node()
        eventually(Node.objects.exists)


@pytest.mark.postgres
def test_without_a_database_it_still_ends_when_told_to(postgres_server: Path) -> None:
    Sandbox()
    observer = Observer(pause=0.05)
    with watching(observer):
        eventually(lambda: Cluster.objects.get().observed_at)
        with away(postgres_server):
            observer.stop.set()
            time.sleep(0.5)


@pytest.mark.postgres
def test_a_handlers_fault_is_survived_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = ["first", "second"]

    def handler(_cluster: Cluster, _seen: observations.Observation) -> None:
        if faults:
            raise RuntimeError(faults.pop())

    monkeypatch.setattr(observations, "_handlers", [handler])
    Sandbox().node()
    with watching(Observer(pause=0.05)):
        eventually(Node.objects.exists)
    assert faults == []


@pytest.mark.postgres
def test_the_command_runs_until_it_is_told_to_end() -> None:
    sandbox = Sandbox()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end_it() -> None:
        eventually(lambda: signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM], seconds=SECONDS)
        try:
            eventually(Cluster.objects.filter(observed_at__isnull=False).exists, seconds=SECONDS)
        finally:
            connection.close()
            os.kill(os.getpid(), signal.SIGTERM)  # earlier it would end the process of the tests

    ending = threading.Thread(target=end_it)
    ending.start()
    try:
        call_command("observer")
    finally:
        ending.join(SECONDS)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert Cluster.objects.get(pk=sandbox.cluster.pk).observed_at


@pytest.mark.django_db
def test_a_lease_is_not_taken_from_a_live_holder() -> None:
    cluster = Sandbox().cluster
    assert acquire(cluster=cluster, holder="one")
    assert not acquire(cluster=cluster, holder="two")
    assert acquire(cluster=cluster, holder="one")


@pytest.mark.django_db
def test_a_lease_that_ran_out_is_free() -> None:
    cluster = Sandbox().cluster
    acquire(cluster=cluster, holder="one")
    ObserverLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert acquire(cluster=cluster, holder="two")
    remaining = ObserverLease.objects.get().expires_at - timezone.now()
    assert timedelta(seconds=10) < remaining <= LEASE


@pytest.mark.django_db
def test_a_lease_given_back_is_free_at_once() -> None:
    cluster = Sandbox().cluster
    acquire(cluster=cluster, holder="one")
    assert unwatched() == []
    release(holder="one")
    assert unwatched() == [cluster.pk]
    assert acquire(cluster=cluster, holder="two")


@pytest.mark.django_db
def test_tasks_tick_and_observe_by_id() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    tick_sandbox(str(sandbox.cluster.pk))
    observe(str(sandbox.cluster.pk))
    assert [pod["spec"]["nodeName"] for pod in sandbox.pods()] == ["node-0"]
    assert Node.objects.count() == 1


@pytest.mark.django_db
def test_every_sandbox_is_ticked_once_a_second_however_many_beats_there_are() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    tick_sandboxes()
    assert len(sandbox.pods()) == 1
    tick_sandboxes()
    observe_all()


@pytest.mark.django_db
def test_a_cluster_that_is_gone_or_paused_is_left_alone() -> None:
    sandbox = furnished()
    Cluster.objects.update(state=ClusterState.PAUSED)
    observe(str(sandbox.cluster.pk))
    observe("00000000-0000-0000-0000-000000000000")
    tick_sandbox("00000000-0000-0000-0000-000000000000")
    assert Node.objects.count() == 0


@pytest.mark.django_db
def test_a_permanent_refusal_is_logged_and_not_tried_again() -> None:
    sandbox = furnished()
    Cluster.objects.update(uid="somebody-else")
    observe(str(sandbox.cluster.pk))
    assert Node.objects.count() == 0


@pytest.mark.postgres
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_the_process_ends_cleanly_when_told_to(number: int, postgres_url: str, tmp_path: Path) -> None:
    sandbox = Sandbox()
    log = tmp_path / "observer.log"
    with running(environment(tmp_path, DATABASE_URL=postgres_url), "manage", "observer", log=log) as process:
        eventually(lambda: Cluster.objects.get(pk=sandbox.cluster.pk).observed_at, log=log)
        process.send_signal(number)
        assert process.wait(SECONDS) == 0, log.read_text()
    assert ObserverLease.objects.get().holder == ""
