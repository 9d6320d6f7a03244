"""F2-F8, F16, F23 on separate processes: whatever is killed, frozen or away, nothing is lost, doubled or called failed.

One stack takes all schedules, since what one leaves behind is what the next one finds. `RUNG_FAULT_SEEDS=20` plays
more of them, and then looks at the cluster three more times instead of once; `RUNG_FAULT_OUTAGE=60` makes outages
longer. A failing seed plays the same faults again.
"""

import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.stack.clients import Account, Client, clear_away, submitting
from tests.faults.stack.invariants import RECOVERY, Aftermath, check_all, settle
from tests.faults.stack.schedule import Chaos, readiness_sampled
from tests.support.faultproxy import FaultProxy
from tests.support.faults import Slow
from tests.support.lab import LabCluster, own_cluster, program_of
from tests.support.real import needed
from tests.support.stack import Stack

GIVEN = os.environ.get("RUNG_FAULT_SEEDS", "")
SEEDS = range(int(GIVEN or 3))
RESYNCS = 3 if GIVEN else 1
PROJECTS = ("red", "green", "blue")
SECONDS = 900

pytestmark = pytest.mark.timeout(SECONDS)


@dataclass(frozen=True, slots=True)
class Plant:
    """Everything that runs."""

    stack: Stack
    proxy: FaultProxy
    cluster: LabCluster
    made: dict[str, Any]

    def aftermath(self, prefix: str, number: int, dice: random.Random, **client: Any) -> Aftermath:
        """Clients of a run, and where its traces begin."""
        self.proxy.heal()
        account = Account(self.stack, self.made)
        names = [f"{prefix}c{each}" for each in range(number)]
        clients = [Client(name, account, random.Random(dice.random()), **client) for name in names]
        return Aftermath(self.stack, self.proxy, self.cluster, account, clients, prefix, first=len(self.proxy.log))


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    """Every process of an installation, and a control plane that it reaches through the proxy."""
    needed("redis-server")
    with ExitStack() as exits:
        cluster = exits.enter_context(own_cluster())
        proxy = exits.enter_context(FaultProxy(cluster, 0))
        stack = exits.enter_context(Stack(tmp_path_factory.mktemp("stack")))
        reached = {"server": proxy.server, "ca": proxy.ca, "token": cluster.token}
        made = stack.found(projects=PROJECTS, gpus=8, **reached)
        stack.start()
        yield Plant(stack, proxy, cluster, made)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_of_faults_loses_doubles_and_fails_nothing(plant: Plant, seed: int) -> None:
    dice = random.Random(f"schedule {seed}")
    after = plant.aftermath(f"s{seed}-", 3, dice)
    chaos = Chaos(plant.stack, plant.proxy, plant.cluster, dice)
    with readiness_sampled(plant.stack) as seen:
        with submitting(after.clients):
            chaos.play(chaos.process_track(), chaos.cluster_track())
        settle(after)
    begun, ended = next((begun, ended) for begun, ended, name in chaos.log if name == "database away")
    red = [status for at, status, _, _ in seen if begun + 1 < at < ended - 2 and status]
    after.check(red and 200 not in red, f"I10: without a database /readyz answered {red}")
    after.check(any(word == "degraded" for _, _, word, _ in seen), "I10: /readyz never said degraded")
    after.check(len(after.sent) >= 30, f"only {len(after.sent)} submits were answered")
    check_all(after, resyncs=RESYNCS)
    clear_away(plant.stack, after.account, after.prefix)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_workers_that_meet_at_a_slow_create_make_one_object(plant: Plant, seed: int) -> None:
    """Every message is lost, so that many rows are due at once; each create takes longer than a share of the lease."""
    dice = random.Random(f"create {seed}")
    after = plant.aftermath(f"d{seed}-", 4, dice, pause=(0.0, 0.05), intents=0)
    plant.stack.redis.stop()
    with submitting(after.clients):
        time.sleep(dice.uniform(3, 4))
    after.check(len(after.sent) >= 40, f"only {len(after.sent)} submits were answered")
    slow = Slow(2.0, least=1.0)
    with plant.proxy.broken(slow, method="POST|PATCH", path="/jobs"):
        plant.stack.redis.start()
        time.sleep(dice.uniform(30, 35))
    settle(after)
    check_all(after, resyncs=0)
    clear_away(plant.stack, after.account, after.prefix)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_of_the_api_server_during_a_hundred_submits_fails_none(plant: Plant, seed: int) -> None:
    dice = random.Random(f"restart {seed}")
    after = plant.aftermath(f"r{seed}-", 4, dice, pause=(0.1, 0.4), intents=0.1)
    with submitting(after.clients):
        time.sleep(dice.uniform(3, 5))
        program_of(plant.cluster, "restart", "kube-apiserver")
        begun = time.monotonic()
        while sum(len(client.sent) for client in after.clients) < 110 and time.monotonic() - begun < 60:
            time.sleep(0.2)
    after.check(len(after.sent) >= 100, f"only {len(after.sent)} submits were answered")
    settle(after)
    after.check(time.monotonic() - begun < RECOVERY, "I8: recovered too late")
    check_all(after, resyncs=RESYNCS)
    clear_away(plant.stack, after.account, after.prefix)


def test_readiness_and_metrics_answer_within_a_second_without_a_database(plant: Plant) -> None:
    stack = plant.stack
    stack.postgres.stop()
    try:
        seen = [stack.readiness() for _ in range(5)]
    finally:
        stack.postgres.start()
    assert {status for status, _, _ in seen} == {503}
    assert statistics.median(seconds for _, _, seconds in seen) < 1
