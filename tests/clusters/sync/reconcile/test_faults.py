"""Workers die, lose races and wake up late; API servers answer strangely. The cluster still ends as the database says.

Every fault is seeded: a failing number repeats itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import DesiredState, PoolSpec, ProjectSpec
from clusters.ports.gateway import (
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Manifest,
    ObjectRef,
    VersionConflict,
)
from clusters.ports.objects import KAI_QUEUE, generation_of, owner_of
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile
from tests.clusters.specs import POOL, Wanted, priority, project, queue, state

SEEDS = range(20)
ERRORS = (VersionConflict, ClusterBusy, ClusterRefused, ClusterUnreachable)
NAMES = ("low", "medium", "high")
POOLS = (POOL, PoolSpec("h100", "rung.dev/node-pool", "h100"))


class Killed(BaseException):
    """kill -9: nothing of ours runs after it."""


def random_state(random: Random, generation: int) -> DesiredState:
    """Up to three priorities and four projects with any quotas in two pools."""
    priorities = [
        priority(name, random.randint(1, 150), generation=generation) for name in NAMES if random.random() < 0.8
    ]
    projects = [random_project(random, number, generation) for number in range(4) if random.random() < 0.8]
    parents = [queue("department.1", parent=None, pool=pool, deserved=32, generation=generation) for pool in POOLS]
    return state(*projects, priorities=tuple(priorities), departments=tuple(parents))


def random_project(random: Random, number: int, generation: int) -> ProjectSpec:
    queues = []
    for pool in POOLS:
        deserved, over = random.randint(0, 8), random.choice([None, random.randint(0, 8)])
        limit = None if over is None else deserved + over
        queues.append(queue(f"project.{number}", pool=pool, deserved=deserved, limit=limit, generation=generation))
    found = project(f"p{number}", owner=f"project.{number}", generation=generation)
    return replace(found, queues=tuple(queues))


Grants = dict[str, float]


def granted(desired: DesiredState) -> Grants:
    """Deserved GPUs per project, all pools together."""
    return {found.owner: sum(each.deserved.gpu or 0 for each in found.queues) / 1000 for found in desired.projects}


def held(store: MemoryStore) -> dict[tuple[str, str], Manifest]:
    gateway = MemoryGateway(store)
    found = [each for kind in flavour_for("kai").kinds() for each in gateway.list(kind)[0]]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def hard_quotas(store: MemoryStore) -> Grants:
    """The same as the cluster holds it now."""
    sums: Grants = defaultdict(float)
    for (kind, _), each in held(store).items():
        if kind == "Queue":
            sums[owner_of(each)] += each["spec"]["resources"]["gpu"]["quota"]
    return {owner: total for owner, total in sums.items() if owner.startswith("project.")}


def assert_within(store: MemoryStore, before: DesiredState, after: DesiredState) -> None:
    """At this instant no project holds more than it had or will have."""
    old, new = granted(before), granted(after)
    for owner, total in hard_quotas(store).items():
        assert total <= max(old.get(owner, 0), new.get(owner, 0))


def until_quiet(cluster: Cluster) -> SyncRun:
    """What the sweep does: try again, and take over from whoever has died."""
    for _ in range(60):
        SyncRun.objects.filter(state=SyncState.RUNNING).update(heartbeat_at=timezone.now() - timedelta(minutes=2))
        try:
            run = reconcile(cluster)
        except (Killed, ClusterError):
            continue
        if run.state == SyncState.SUCCEEDED:
            return run
    pytest.fail("did not converge")


def assert_it_rests(cluster: Cluster, store: MemoryStore, wanted: DesiredState) -> None:
    """Equal to what is wanted, and zero writes in the next three periods."""
    before = len(store.writes)
    assert [reconcile(cluster).written for _ in range(3)] == [0, 0, 0]
    assert len(store.writes) == before
    names = {(each["kind"], each["metadata"]["name"]) for each in flavour_for("kai").objects_for(wanted)}
    assert set(held(store)) == names
    assert hard_quotas(store) == granted(wanted)


@pytest.fixture
def changed(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> Callable[[int], tuple[DesiredState, DesiredState]]:
    """A cluster that holds one random state and should hold another."""

    def change(seed: int) -> tuple[DesiredState, DesiredState]:
        random = Random(seed)
        wanted.state = before = random_state(random, 1)
        reconcile(cluster)
        wanted.state = after = random_state(random, 2)
        mark_dirty(cluster)
        return before, after

    return change


Change = Callable[[int], tuple[DesiredState, DesiredState]]


@pytest.mark.parametrize("seed", SEEDS)
def test_f1_a_worker_killed_at_any_write_is_followed_by_another(
    seed: int, cluster: Cluster, store: MemoryStore, changed: Change
) -> None:
    before, after = changed(seed)
    random = Random(seed)

    def kill(verb: str, ref: ObjectRef) -> ClusterError | None:
        assert_within(store, before, after)
        assert sum(hard_quotas(store).values()) <= max(sum(granted(each).values()) for each in (before, after))
        if random.random() < 0.3:
            raise Killed
        return None

    store.faults.append(kill)
    until_quiet(cluster)
    assert_it_rests(cluster, store, after)


@pytest.mark.parametrize("seed", SEEDS)
def test_f1_a_worker_killed_between_write_and_record_does_no_harm(
    seed: int, cluster: Cluster, store: MemoryStore, changed: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, after = changed(seed)
    random, real = Random(seed), MemoryGateway._write

    def write_and_die(gateway: MemoryGateway, type_: str, ref: ObjectRef, manifest: Manifest) -> Manifest:
        stored = real(gateway, type_, ref, manifest)
        if random.random() < 0.3:
            raise Killed
        return stored

    monkeypatch.setattr(MemoryGateway, "_write", write_and_die)
    until_quiet(cluster)
    assert_it_rests(cluster, store, after)


@pytest.mark.parametrize("seed", SEEDS)
def test_f10_f11_f19_refused_and_lost_writes_are_made_good_later(
    seed: int, cluster: Cluster, store: MemoryStore, changed: Change
) -> None:
    before, after = changed(seed)
    random = Random(seed)

    def refuse(verb: str, ref: ObjectRef) -> ClusterError | None:
        assert_within(store, before, after)
        return random.choice(ERRORS)("injected") if random.random() < 0.4 else None

    store.faults.append(refuse)
    until_quiet(cluster)
    assert_it_rests(cluster, store, after)


@pytest.mark.parametrize("seed", SEEDS)
def test_f17_a_worker_that_wakes_up_late_writes_nothing_older(
    seed: int, cluster: Cluster, store: MemoryStore, wanted: Wanted, changed: Change
) -> None:
    _, _ = changed(seed)
    newest = random_state(Random(seed + 1000), 3)
    stopped_at = Random(seed).randint(0, 3)
    countdown: Iterator[int] = iter(range(stopped_at + 1))

    def sleep_through_a_takeover(verb: str, ref: ObjectRef) -> ClusterError | None:
        if next(countdown, None) == stopped_at:
            wanted.state = newest
            mark_dirty(cluster)
            until_quiet(cluster)
        return None

    store.faults.append(sleep_through_a_takeover)
    late = reconcile(cluster)
    store.faults.clear()
    generations = {name: generation_of(each) for name, each in held(store).items()}
    until_quiet(cluster)
    assert late.error_code in {"abandoned", ""}
    assert_it_rests(cluster, store, newest)
    for name, each in held(store).items():
        assert generation_of(each) >= generations.get(name, 0)


def test_f15_an_object_recreated_between_look_and_delete_is_left_alone(
    cluster: Cluster, store: MemoryStore, wanted: Wanted
) -> None:
    gateway = MemoryGateway(store)
    wanted.state = state(project("vision"), departments=(queue("department.1", parent=None),))
    reconcile(cluster)
    ref = ObjectRef(KAI_QUEUE, "project.1.a100")
    theirs = gateway.get(ref)
    assert theirs is not None
    wanted.state = state(departments=(queue("department.1", parent=None),))

    real = MemoryGateway.delete

    def recreate_then_delete(found: MemoryGateway, each: ObjectRef, *, uid: str | None = None) -> None:
        if each == ref:
            real(found, ref)
            found.create(theirs)
        real(found, each, uid=uid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryGateway, "delete", recreate_then_delete)
        reconcile(cluster)
    survivor = gateway.get(ref)
    assert survivor is not None
    assert survivor["metadata"]["uid"] != theirs["metadata"]["uid"]
    assert reconcile(cluster).written == 1
