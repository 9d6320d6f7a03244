"""One change costs one: what was touched is looked at, the rest is known from before, and nothing is ever missed."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, DirtyOwner
from clusters.inventory.services.dirty_owners import MOST, enqueue
from clusters.inventory.services.inventory import mark_dirty, request_reconcile
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import ClusterError, ClusterRefused, Kind, Manifest, ObjectRef, VersionConflict, WatchEvent
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS, generation_of
from clusters.sync.models import Drift, SyncRun, SyncState
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted, priority, project, queue, state
from tests.clusters.synced import PRIORITIES, outcomes

Calls = Counter[str]
KINDS = len(list(flavour_for("kai").kinds()))
SHARDS = 1
"""Lists of KAI's shards, a handful of objects, in every look at the whole cluster."""


def projects(count: int, *, changed: int | None = None, deserved: int = 4) -> DesiredState:
    """So many projects below one department; one of them may deserve another amount, at its next generation."""
    found = [
        project(f"p{number}", owner=f"project.{number}", deserved=deserved, generation=2)
        if number == changed
        else project(f"p{number}", owner=f"project.{number}")
        for number in range(count)
    ]
    return state(*found, priorities=PRIORITIES, departments=(queue("department.1", parent=None, deserved=999),))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call to the API server, by its verb."""
    counted: Calls = Counter()

    def count(verb: str) -> None:
        real: Callable[..., object] = getattr(MemoryGateway, verb)

        def call(*arguments: object, **options: object) -> object:
            counted[verb] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(MemoryGateway, verb, call)

    for verb in ("list", "get", "create", "update", "delete", "watch"):
        count(verb)
    return counted


@pytest.fixture
def many(cluster: Cluster, wanted: Wanted) -> Callable[[int], Cluster]:
    """A cluster in which so many projects are as they should be."""

    def make(count: int) -> Cluster:
        wanted.state = projects(count)
        mark_dirty(cluster)
        for _ in range(2):  # the second look finds nothing and is remembered
            assert reconcile(cluster).state == SyncState.SUCCEEDED
        return cluster

    return make


@pytest.mark.parametrize("count", [3, 60])
def test_a_change_of_one_project_asks_as_much_whatever_the_number_of_projects(
    count: int, many: Callable[[int], Cluster], wanted: Wanted, calls: Calls
) -> None:
    cluster = many(count)
    calls.clear()
    wanted.state = projects(count, changed=1, deserved=7)
    mark_dirty(cluster, owner="project.1")
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.scope, outcomes(run)) == ("succeeded", "project.1", [("update", "project.1.a100", True)])
    assert calls == {"get": 3, "update": 1}  # kube-system, the namespace and the queue
    assert cluster.synced_generation == cluster.generation
    assert not DirtyOwner.objects.exists()


def test_nothing_new_is_learnt_without_listing(many: Callable[[int], Cluster], calls: Calls) -> None:
    cluster = many(20)
    calls.clear()
    run = reconcile(cluster)
    assert (run.state, run.written, run.listed) == (SyncState.SUCCEEDED, 0, 2 + 1 + 20 * 2)
    assert calls == {"get": 1, "watch": KINDS, "list": SHARDS}


def test_a_status_that_moves_on_makes_its_owner_be_read_and_nothing_be_written(
    many: Callable[[int], Cluster], store: MemoryStore, calls: Calls
) -> None:
    cluster = many(3)
    place = (KAI_QUEUE.key, "", "project.1.a100")
    store.objects[place]["status"] = {"allocated": 1}
    MemoryGateway(store)._note("MODIFIED", ObjectRef(KAI_QUEUE, "project.1.a100"), store.objects[place])
    calls.clear()
    assert reconcile(cluster).written == 0
    assert calls == {"get": 3, "watch": KINDS, "list": SHARDS}
    calls.clear()
    assert reconcile(cluster).written == 0
    assert calls == {"get": 1, "watch": KINDS, "list": SHARDS}


def test_a_foreign_hand_is_found_without_listing(
    many: Callable[[int], Cluster], gateway: MemoryGateway, calls: Calls
) -> None:
    cluster = many(20)
    gateway.delete(ObjectRef(KAI_QUEUE, "project.7.a100"))
    calls.clear()
    run = reconcile(cluster)
    assert outcomes(run) == [("create", "project.7.a100", True)]
    assert calls["list"] == SHARDS
    assert [reconcile(cluster).written for _ in range(3)] == [0, 0, 0]


def test_what_could_not_be_repaired_is_not_forgotten(
    many: Callable[[int], Cluster], gateway: MemoryGateway, store: MemoryStore
) -> None:
    cluster = many(3)
    gateway.delete(ObjectRef(KAI_QUEUE, "project.1.a100"))
    store.faults.append(lambda verb, ref: ClusterRefused("no") if ref.name == "project.1.a100" else None)
    assert [reconcile(cluster).failed for _ in range(2)] == [1, 1]
    assert Drift.objects.get(cluster=cluster).owner == "project.1"
    store.faults.clear()
    assert outcomes(reconcile(cluster)) == [("create", "project.1.a100", True)]
    assert not Drift.objects.exists()


def test_a_history_that_was_forgotten_means_listing(
    many: Callable[[int], Cluster], gateway: MemoryGateway, store: MemoryStore, calls: Calls
) -> None:
    cluster = many(3)
    gateway.delete(ObjectRef(NAMESPACE, "runai-p1"))
    store.forget_events()
    calls.clear()
    assert outcomes(reconcile(cluster)) == [("create", "runai-p1", True)]
    assert calls["list"] == KINDS + SHARDS


def test_a_stranger_with_our_label_is_found_and_goes(many: Callable[[int], Cluster], gateway: MemoryGateway) -> None:
    cluster = many(3)
    extra = next(each for each in flavour_for("kai").objects_for(projects(9)) if each["metadata"]["name"] == "runai-p8")
    gateway.create(extra)
    assert outcomes(reconcile(cluster)) == [("delete", "runai-p8", True)]


def test_a_project_that_has_gone_takes_its_objects_along(many: Callable[[int], Cluster], wanted: Wanted) -> None:
    cluster = many(4)
    wanted.state = projects(3)
    mark_dirty(cluster, owner="project.3")
    assert outcomes(reconcile(cluster)) == [("delete", "project.3.a100", True), ("delete", "runai-p3", True)]


def test_more_owners_than_are_worth_asking_for_one_by_one_are_listed(
    many: Callable[[int], Cluster], wanted: Wanted, calls: Calls
) -> None:
    cluster = many(MOST + 4)
    for number in range(MOST + 1):
        mark_dirty(cluster, owner=f"project.{number}")
    calls.clear()
    run = reconcile(cluster)
    assert (run.scope, run.state) == ("", SyncState.SUCCEEDED)
    assert not DirtyOwner.objects.exists()


def test_a_requested_reconcile_looks_at_everything(many: Callable[[int], Cluster]) -> None:
    cluster = many(3)
    mark_dirty(cluster, owner="project.1")
    request_reconcile(cluster, SYSTEM)
    assert reconcile(cluster).scope == ""


def test_f22_an_edit_during_a_run_is_made_by_the_next(
    many: Callable[[int], Cluster], wanted: Wanted, store: MemoryStore, gateway: MemoryGateway
) -> None:
    cluster = many(5)
    edits = iter([(3, 6), (1, 8)])

    def edit(verb: str, ref: ObjectRef) -> ClusterError | None:
        if found := next(edits, None):
            wanted.state = projects(5, changed=found[0], deserved=found[1])
            mark_dirty(cluster, owner=f"project.{found[0]}")
        return None

    wanted.state = projects(5, changed=1, deserved=7)
    mark_dirty(cluster, owner="project.1")
    store.faults.append(edit)
    runs = [reconcile(cluster) for _ in range(4)]
    store.faults.clear()
    cluster.refresh_from_db()
    assert cluster.synced_generation == cluster.generation == runs[-1].generation
    held = {each["metadata"]["name"]: each["spec"]["resources"]["gpu"]["quota"] for each in gateway.list(KAI_QUEUE)[0]}
    assert held["project.1.a100"] == 8


def test_f22_an_edit_after_the_owners_were_known_is_not_settled_by_a_look_from_memory(
    many: Callable[[int], Cluster], wanted: Wanted, gateway: MemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, follow = many(5), MemoryGateway.watch
    edits = iter([3])

    def watch(self: MemoryGateway, kind: Kind, **requested: str) -> Iterator[WatchEvent]:
        for number in edits:
            wanted.state = projects(5, changed=number, deserved=6)
            mark_dirty(cluster, owner=f"project.{number}")
        return follow(self, kind, **requested)

    mark_dirty(cluster, owner="project.1")
    request_reconcile(cluster, SYSTEM)
    monkeypatch.setattr(MemoryGateway, "watch", watch)
    reconcile(cluster)
    cluster.refresh_from_db()
    assert cluster.synced_generation < cluster.generation
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at <= timezone.now()
    reconcile(cluster)
    held = {each["metadata"]["name"]: each["spec"]["resources"]["gpu"]["quota"] for each in gateway.list(KAI_QUEUE)[0]}
    assert held["project.3.a100"] == 6


@pytest.mark.parametrize("seed", range(10))
def test_remembering_changes_nothing_but_the_price(
    seed: int, many: Callable[[int], Cluster], gateway: MemoryGateway, wanted: Wanted
) -> None:
    """Strangers and admins do anything, in any order: a look from memory finds what a look at everything finds."""
    cluster, random = many(6), Random(seed)
    for _ in range(12):
        mess(random, gateway, cluster, wanted)
        if random.random() < 0.6:
            reconcile(cluster)
    for remembered in (True, False):
        Cluster.objects.filter(pk=cluster.pk).update(resync_due_at=timezone.now())
        run = reconcile(cluster)
        assert run.state == SyncState.SUCCEEDED
        assert remembered or run.written == 0
        object_reads.forget(cluster.pk)
    assert [reconcile(cluster).written for _ in range(2)] == [0, 0]


def mess(random: Random, gateway: MemoryGateway, cluster: Cluster, wanted: Wanted) -> None:
    """One act of somebody else, or of an admin."""
    found: list[Manifest] = [each for kind in (PRIORITY_CLASS, NAMESPACE, KAI_QUEUE) for each in gateway.list(kind)[0]]
    victim = random.choice(found)
    kind = {"PriorityClass": PRIORITY_CLASS, "Namespace": NAMESPACE, "Queue": KAI_QUEUE}[victim["kind"]]
    ref = ObjectRef(kind, victim["metadata"]["name"])
    act = random.randrange(5)
    if act == 0:
        gateway.delete(ref)
    elif act == 1:
        gateway.update({**victim, "description": str(random.random())}, observed=victim)
    elif act == 2 and kind == KAI_QUEUE:
        victim["spec"]["resources"]["gpu"]["quota"] = random.randint(0, 99)
        gateway.update(victim, observed=victim)
    elif act == 3:
        wanted.state = projects(6, changed=random.randrange(6), deserved=random.randint(0, 9))
        later = [replace(each, generation=2 + len(wanted.requested)) for each in wanted.state.projects]
        queues = [
            replace(each, queues=tuple(replace(leaf, generation=each.generation) for leaf in each.queues))
            for each in later
        ]
        wanted.state = replace(wanted.state, projects=tuple(queues))
        mark_dirty(cluster)
    else:
        wanted.state = state(
            *wanted.state.projects,
            priorities=(priority("high", random.randint(100, 150)), PRIORITIES[1]),
            departments=wanted.state.departments,
        )


def test_f17_what_a_lost_worker_read_in_between_is_not_written_over_equal_content(
    cluster: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    """It read generation 2, and stopped; by generation 3 the old content is wanted again, and is there already."""
    low = ObjectRef(PRIORITY_CLASS, "low")
    wanted.state = state(priorities=(priority("low", 40, generation=1),))
    mark_dirty(cluster)
    reconcile(cluster)
    read = gateway.get(low)
    assert read is not None
    SyncRun.objects.create(
        cluster=cluster, started_at=timezone.now(), heartbeat_at=timezone.now() - timedelta(minutes=2)
    )
    wanted.state = state(priorities=(priority("low", 40, generation=3),))
    mark_dirty(cluster)
    assert outcomes(reconcile(cluster)) == [("update", "low", True)]
    late = priority("low", 40, policy="Never", generation=2)
    (manifest,) = [
        each for each in flavour_for("kai").objects_for(state(priorities=(late,))) if each["kind"] == low.kind.kind
    ]
    with pytest.raises(VersionConflict):
        gateway.update(manifest, observed=read)
    assert reconcile(cluster).written == 0
    live = gateway.get(low)
    assert live is not None
    assert generation_of(live) == 3


def test_a_reason_to_look_that_comes_during_a_run_is_not_settled_by_it(
    many: Callable[[int], Cluster], wanted: Wanted, store: MemoryStore, gateway: MemoryGateway
) -> None:
    """The run has looked at the owner already when somebody lays hands on its queue."""
    cluster = many(3)
    once = iter([True])

    def foreign_hand(verb: str, ref: ObjectRef) -> None:
        if next(once, None):
            del store.objects[(KAI_QUEUE.key, "", "project.1.a100")]
            enqueue(cluster.pk, ["project.1"])

    gateway.delete(ObjectRef(NAMESPACE, "runai-p1"))
    mark_dirty(cluster, owner="project.1")
    store.faults.append(foreign_hand)
    assert outcomes(reconcile(cluster)) == [("create", "runai-p1", True)]
    assert outcomes(reconcile(cluster)) == [("create", "project.1.a100", True)]
