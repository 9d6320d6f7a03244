"""F2-F8, F16, F23 on separate processes: whatever is killed, frozen or away, nothing is lost, doubled or called failed.

One stack takes all schedules, since what one leaves behind is what the next one finds. `RUNG_FAULT_SEEDS=20` plays
more of them and resyncs three times afterwards instead of once; `RUNG_FAULT_OUTAGE=60` makes outages
longer. A failing seed plays the same faults again.
"""

import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.faults.stack.clients import Account, Client, clear_away, submitting
from tests.faults.stack.invariants import Aftermath, check_all, settle
from tests.faults.stack.schedule import OUTAGE, Chaos, readiness_sampled
from tests.support.faultproxy import FaultProxy
from tests.support.faults import Slow
from tests.support.lab import LabCluster, own_cluster, program_of
from tests.support.processes import eventually
from tests.support.real import needed
from tests.support.stack import Stack

GIVEN = os.environ.get("RUNG_FAULT_SEEDS", "")
SEEDS = range(int(GIVEN or 1))
RESYNCS = 3 if GIVEN else 1
PROJECTS = ("red", "green", "blue")
LONG = 60.0
"""Seconds after which a cluster that is away shows on `/readyz`."""
SECONDS = 900

pytestmark = pytest.mark.timeout(SECONDS)


@dataclass(frozen=True, slots=True)
class Plant:
    """Everything that runs."""

    stack: Stack
    proxy: FaultProxy
    cluster: LabCluster
    made: dict[str, Any]

    @contextmanager
    def clients(self, prefix: str, number: int, dice: random.Random, **client: Any) -> Iterator[Aftermath]:
        """Clients of a run; what they have submitted goes away afterwards, whatever became of it."""
        self.stack.forget_ends()
        account = Account(self.stack, self.made)
        names = [f"{prefix}c{each}" for each in range(number)]
        clients = [Client(name, account, random.Random(dice.random()), **client) for name in names]
        try:
            yield Aftermath(self.stack, self.proxy, self.cluster, account, clients, prefix, first=len(self.proxy.log))
        finally:
            self.proxy.heal()
            clear_away(self.stack, account, prefix)


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory, postgres_dump: Path) -> Iterator[Plant]:
    """Every process of an installation, and a control plane that it reaches through the proxy."""
    needed("redis-server")
    with ExitStack() as exits:
        cluster = exits.enter_context(own_cluster())
        proxy = exits.enter_context(FaultProxy(cluster, 0))
        stack = exits.enter_context(Stack(tmp_path_factory.mktemp("stack"), migrated=postgres_dump))
        reached = {"server": proxy.server, "ca": proxy.ca, "token": cluster.token}
        made = stack.found(projects=PROJECTS, gpus=8, password="only-for-this-stack", **reached)
        stack.start()
        yield Plant(stack, proxy, cluster, made)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_of_faults_loses_doubles_and_fails_nothing(plant: Plant, seed: int) -> None:
    dice = random.Random(f"schedule {seed}")
    with plant.clients(f"s{seed}-", 3, dice) as after:
        chaos = Chaos(plant.stack, plant.proxy, plant.cluster, dice)
        with readiness_sampled(plant.stack) as seen:
            with submitting(after.clients):
                chaos.play(chaos.process_track(), chaos.store_track(), chaos.cluster_track())
                eventually(lambda: len(after.sent) >= 30, seconds=60)
            settle(after, since=max(ended for _, ended, _ in chaos.log))
        begun, ended = next((begun, ended) for begun, ended, name in chaos.log if name == "database away")
        away = [status for at, status, _, _ in seen if begun + 1 < at < ended - 1]
        after.check(200 not in away, "I10: /readyz said ready without a database")
        after.check(any(status == 503 for _, status, _, _ in seen), "I10: /readyz never turned red")
        shown = OUTAGE < LONG or any(word == "degraded" for _, _, word, _ in seen)
        after.check(shown, "I10: /readyz never said degraded")
        check_all(after, resyncs=RESYNCS)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_workers_that_meet_at_a_slow_create_make_one_object(plant: Plant, seed: int) -> None:
    """Every message is lost, so that many rows are due at once, and each create takes long."""
    dice = random.Random(f"create {seed}")
    with plant.clients(f"d{seed}-", 4, dice, pause=(0.0, 0.05), intents=0) as after:
        plant.stack.redis.stop()
        with submitting(after.clients):
            eventually(lambda: len(after.sent) >= 40, seconds=60)
        with plant.proxy.broken(Slow(2.0, least=1.0), method="POST|PATCH", path="/jobs"):
            plant.stack.redis.start()
            time.sleep(dice.uniform(30, 35))
        settle(after, since=time.monotonic())
        check_all(after, resyncs=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_of_the_api_server_during_a_hundred_submits_fails_none(plant: Plant, seed: int) -> None:
    dice = random.Random(f"restart {seed}")
    with plant.clients(f"r{seed}-", 4, dice, pause=(0.1, 0.3), intents=0.1) as after:
        with submitting(after.clients):
            eventually(lambda: len(after.sent) >= 30 + dice.randrange(10), seconds=60)
            program_of(plant.cluster, "restart", "kube-apiserver")
            restarted = time.monotonic()
            eventually(lambda: len(after.sent) >= 110, seconds=90)
        settle(after, since=restarted)
        check_all(after, resyncs=RESYNCS)


def gets_token(plant: Plant) -> bool:
    """Is the database in use again? The pool connects a moment after `/readyz`, which has a connection of its own."""
    try:
        return bool(plant.stack.token(plant.made))
    except HTTPError as error:
        if error.code != 503:
            raise
        return False


def test_readiness_and_metrics_answer_within_a_second_without_a_database(plant: Plant) -> None:
    stack = plant.stack
    stack.postgres.stop()
    try:
        seen = [stack.readiness() for _ in range(5)]
        metrics = [stack.metrics() for _ in range(5)]
    finally:
        stack.postgres.start()
    eventually(lambda: stack.readiness()[0] == 200, seconds=LONG)
    eventually(lambda: gets_token(plant), seconds=LONG)
    assert {status for status, _, _ in seen} == {503}
    assert {status for status, _ in metrics} == {200}
    assert statistics.median([seconds for _, _, seconds in seen]) < 1
    assert statistics.median([seconds for _, seconds in metrics]) < 1
