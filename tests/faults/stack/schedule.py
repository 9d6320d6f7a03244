"""What is done to the parts of a stack, in an order and at moments that a seed says.

Three tracks run beside each other: for the processes, for PostgreSQL and Redis, for the cluster and the way to it.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from clusters.connection.rules.rights import manifests_for
from tests.support.faultproxy import FaultProxy
from tests.support.faults import Status
from tests.support.kube import KubeError
from tests.support.lab import ACCOUNT, NAMESPACE, LabCluster, program_of
from tests.support.processes import eventually
from tests.support.stack import Stack

OUTAGE = float(os.environ.get("RUNG_FAULT_OUTAGE", "") or 8)
"""Seconds for which Redis, PostgreSQL or the API server is away: short in CI, a minute or more by hand."""
Track = Sequence[tuple[str, Callable[[random.Random], None]]]
KINDS = ("web", "worker", "periodic", "beat", "observer")
UNAUTHORIZED = Status(401, "Unauthorized", {}, "Unauthorized")


@dataclass
class Chaos:
    """The stack, its cluster and the proxy between them. `log`: what was done, and from when to when."""

    stack: Stack
    proxy: FaultProxy
    cluster: LabCluster
    dice: random.Random
    log: list[tuple[float, float, str]] = field(default_factory=list)

    def kill(self, kind: str, dice: random.Random) -> None:
        """F2, F3, F4, F16: kill -9 of one process of a kind."""
        if parts := self.stack.parts_of(kind):
            dice.choice(parts).kill()

    def kill_child(self, dice: random.Random) -> None:
        """F1: kill -9 of one prefork child."""
        dice.choice([*self.stack.parts_of("worker"), *self.stack.parts_of("periodic")]).kill_child(dice)

    def freeze(self, kind: str, dice: random.Random) -> None:
        """F17: SIGSTOP for a few seconds."""
        dice.choice(self.stack.parts_of(kind)).freeze(dice.uniform(2, 5))

    def forget(self, _dice: random.Random) -> None:
        """F5: FLUSHALL."""
        self.stack.redis.forget_everything()

    def without_redis(self, _dice: random.Random) -> None:
        """F6: away for a while; every message is lost."""
        self.stack.redis.stop()
        time.sleep(OUTAGE)
        self.stack.redis.start()

    def restart_database(self, dice: random.Random) -> None:
        """F7: in the middle of transactions."""
        self.stack.postgres.stop(dice.choice(["fast", "immediate"]))
        self.stack.postgres.start()

    def without_database(self, _dice: random.Random) -> None:
        """F7: away for a while."""
        self.stack.postgres.stop("fast")
        time.sleep(OUTAGE)
        self.stack.postgres.start()

    def freeze_database(self, dice: random.Random) -> None:
        """Neither answers nor ends."""
        self.stack.freeze_database(dice.uniform(2, 4))

    def refuse(self, _dice: random.Random) -> None:
        """F8: the API server refuses connections."""
        self.proxy.go_down()
        time.sleep(OUTAGE)
        self.proxy.heal()

    def go_deaf(self, _dice: random.Random) -> None:
        """F8: connections are taken, and nothing is ever answered."""
        self.proxy.go_deaf()
        time.sleep(OUTAGE)
        self.proxy.heal()

    def restart_api_server(self, dice: random.Random) -> None:
        """F8: a fresh server answers 403 until it has read its roles."""
        program_of(self.cluster, "stop", "kube-apiserver")
        time.sleep(dice.uniform(0.5, 3))
        program_of(self.cluster, "start", "kube-apiserver")
        eventually(self._api_server_is_ready, seconds=60)

    def take_rights(self, dice: random.Random) -> None:
        """F23: the account's binding is deleted and made again: 403."""
        with self._rights_taken():
            time.sleep(dice.uniform(3, 6))

    def take_credential(self, dice: random.Random) -> None:
        """F23: the token is not believed: 401."""
        with self.proxy.broken(UNAUTHORIZED):
            time.sleep(dice.uniform(3, 6))

    def play(self, *tracks: Track) -> None:
        """Every track in an order of its own, beside each other. Raises what went wrong with the faults themselves."""
        failures: list[BaseException] = []
        seeds = [self.dice.random() for _ in tracks]
        threads = [
            threading.Thread(target=self._run, args=(track, random.Random(seed), failures), daemon=True)
            for track, seed in zip(tracks, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _run(self, track: Track, dice: random.Random, failures: list[BaseException]) -> None:
        for name, fault in dice.sample(list(track), len(track)):
            time.sleep(dice.uniform(0.5, 2))
            begun = time.monotonic()
            try:
                fault(dice)
            except BaseException as failure:
                failures.append(failure)
                return
            self.log.append((begun, time.monotonic(), name))

    def _api_server_is_ready(self) -> bool:
        try:
            return bool(self.cluster.admin.call("GET", "/readyz") == "ok")
        except Exception:
            return False

    @contextmanager
    def _rights_taken(self) -> Iterator[None]:
        manifests = manifests_for("kube", namespace=NAMESPACE, account=ACCOUNT)
        bindings = [each for each in manifests if each["kind"].endswith("RoleBinding")]
        assert bindings
        for each in bindings:
            self.cluster.admin.delete(self.cluster.admin.ref(each))
        try:
            yield
        finally:
            for each in bindings:
                self._put_back(each)

    def _put_back(self, binding: Any) -> None:
        def done() -> bool:
            try:
                self.cluster.admin.apply(binding, manager="lab")
            except KubeError:
                return False
            return True

        eventually(done, seconds=30)

    def process_track(self) -> Track:
        """Each process is killed, some are frozen."""
        killed = [(f"kill {kind}", partial(self.kill, kind)) for kind in KINDS]
        frozen = [(f"freeze {kind}", partial(self.freeze, kind)) for kind in ("web", "worker", "observer")]
        return [*killed, *frozen, ("kill child", self.kill_child)]

    def store_track(self) -> Track:
        """Redis and PostgreSQL forget, restart, freeze and go away."""
        return [
            ("flushall", self.forget),
            ("redis away", self.without_redis),
            ("database restarted", self.restart_database),
            ("database away", self.without_database),
            ("database frozen", self.freeze_database),
        ]

    def cluster_track(self) -> Track:
        """The API server refuses, is silent, restarts; rights and credential are taken."""
        return [
            ("refused", self.refuse),
            ("deaf", self.go_deaf),
            ("restarted", self.restart_api_server),
            ("rights taken", self.take_rights),
            ("credential taken", self.take_credential),
        ]


@contextmanager
def readiness_sampled(stack: Stack) -> Iterator[list[tuple[float, int, str, float]]]:
    """`/readyz` once a second: time of the request, status, the body's word, seconds."""
    seen: list[tuple[float, int, str, float]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(1.0):
            begun = time.monotonic()
            status, body, seconds = stack.readiness()
            seen.append((begun, status, str(body.get("status", "")), seconds))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
