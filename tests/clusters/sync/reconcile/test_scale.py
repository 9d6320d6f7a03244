"""Writing side by side: in waves, with an outcome each, and never by a worker whose time is over."""

import threading
import time
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.connection.services.gateways import BACKENDS
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import (
    ClusterBusy,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    Manifest,
    NotAuthorized,
    ObjectRef,
)
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS
from clusters.sync.models import SyncOutcome, SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile
from clusters.sync.services.sync_runs import LONGEST_RETRY, RESYNC, RunRecorder
from tests.clusters.specs import Wanted, priority, project, queue, state
from tests.clusters.synced import FULL, PRIORITIES, drifts, outcomes

THREADS = 8


class WideGateway(MemoryGateway):
    at_once = THREADS


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster takes eight calls at a time."""
    monkeypatch.setitem(BACKENDS, "memory", lambda cluster: WideGateway(store_of(str(cluster.pk))))


def projects(count: int, deserved: dict[int, int] | None = None, *, generation: int = 1) -> DesiredState:
    """So many projects, each with what it deserves (4 unless told)."""
    given = deserved or {}
    found = [
        project(f"p{number}", owner=f"project.{number}", deserved=given.get(number, 4), generation=generation)
        for number in range(count)
    ]
    return state(*found, priorities=PRIORITIES, departments=(queue("department.1", parent=None, deserved=999),))


@pytest.mark.usefixtures("wide")
def test_objects_that_do_not_stand_on_each_other_are_written_at_the_same_time(
    cluster: Cluster, wanted: Wanted, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(THREADS, timeout=20)
    real = MemoryGateway.create

    def meet(gateway: MemoryGateway, manifest: Manifest) -> Manifest:
        if manifest["kind"] == "Namespace":
            together.wait()
        return real(gateway, manifest)

    monkeypatch.setattr(MemoryGateway, "create", meet)
    wanted.state = projects(THREADS)
    run = reconcile(cluster)
    assert (run.state, run.written) == (SyncState.SUCCEEDED, 2 + 1 + 2 * THREADS)
    assert SyncOutcome.objects.filter(run=run, ok=True).count() == run.written


@pytest.mark.usefixtures("wide")
def test_what_others_stand_on_is_there_before_them(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    store.writes.clear()
    wanted.state = projects(40)
    reconcile(cluster)
    kinds = [ref.kind.kind for _, ref in store.writes]
    assert kinds == sorted(kinds, key=["PriorityClass", "Namespace", "Queue"].index)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("seed", range(20))
def test_i5_at_no_instant_does_everybody_hold_more_than_before_or_after(
    seed: int, cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    random = Random(seed)
    before = {number: random.randint(0, 9) for number in range(12)}
    after = {number: random.randint(0, 9) for number in range(12)}
    wanted.state = projects(12, before)
    reconcile(cluster)
    most = max(sum(before.values()), sum(after.values()))

    def within(verb: str, ref: ObjectRef) -> None:
        held = [each for (kind, _, _), each in store.objects.items() if kind == KAI_QUEUE.key]
        leaves = [each for each in held if each["metadata"]["name"].startswith("project.")]
        assert sum(each["spec"]["resources"]["gpu"]["quota"] for each in leaves) <= most
        time.sleep(random.random() / 1000)

    store.faults.append(within)
    wanted.state = projects(12, after, generation=2)
    mark_dirty(cluster)
    assert reconcile(cluster).state == SyncState.SUCCEEDED
    store.faults.clear()
    assert reconcile(cluster).written == 0


@pytest.mark.usefixtures("wide")
def test_f19_each_object_has_its_outcome_and_only_what_failed_is_tried_again(
    cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    def no(verb: str, ref: ObjectRef) -> ClusterError | None:
        return ClusterRefused("no") if ref.name in {"runai-p3", "project.5.a100"} else None

    store.faults.append(no)
    wanted.state = projects(20)
    run = reconcile(cluster)
    failed = run.outcomes.filter(ok=False)
    assert (run.state, run.written, run.failed) == (SyncState.PARTIAL, 41, 2)
    assert set(failed.values_list("name", "code")) == {
        ("runai-p3", "cluster_refused"),
        ("project.5.a100", "cluster_refused"),
    }
    store.faults.clear()
    again = reconcile(cluster)
    assert {name for _, name, _ in outcomes(again)} == {"runai-p3", "project.5.a100"}
    assert set(again.scope.split()) == {"project.3", "project.5"}


@pytest.mark.usefixtures("wide")
def test_an_unreachable_cluster_ends_the_attempt_early(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    store.faults.append(lambda verb, ref: ClusterUnreachable("gone") if ref.kind == NAMESPACE else None)
    wanted.state = projects(200)
    with pytest.raises(ClusterUnreachable):
        reconcile(cluster)
    run = SyncRun.objects.get()
    assert run.outcomes.filter(kind="Namespace").count() < 3 * THREADS
    assert not run.outcomes.filter(kind=KAI_QUEUE.key).exists()


def test_f23_a_credential_that_is_revoked_meanwhile_ends_the_run_and_stops_work(
    cluster: Cluster, wanted: Wanted, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_gateway: MemoryGateway) -> tuple[str, str]:
        raise NotAuthorized("Unauthorized")

    def revoke(verb: str, ref: ObjectRef) -> ClusterError | None:
        if ref.name != "runai-p2":
            return None
        monkeypatch.setattr(MemoryGateway, "identity", refuse)
        return NotAuthorized("Unauthorized")

    store.faults.append(revoke)
    wanted.state = projects(5)
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (cluster.state, cluster.breaker_reason) == ("active", "Unauthorized")
    assert cluster.sync_due_at is not None
    assert (run.state, run.error_code) == (SyncState.PARTIAL, "not_authorized")
    assert not run.outcomes.filter(name="runai-p3").exists()


def test_a_right_that_is_missing_for_one_kind_pauses_nothing(
    cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    store.faults.append(lambda verb, ref: NotAuthorized("forbidden") if ref.kind == NAMESPACE else None)
    wanted.state = FULL
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.failed, run.written, cluster.state) == (SyncState.PARTIAL, 1, 4, "active")


def test_f17_a_worker_that_slept_past_its_time_writes_nothing(
    cluster: Cluster, wanted: Wanted, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped between its last proof of life and the write: its own clock tells it before it writes."""
    real, asleep = time.monotonic, [0.0]
    monkeypatch.setattr("clusters.sync.services.sync_runs.time.monotonic", lambda: real() + asleep[0])
    kept_up = RunRecorder.keep_up

    def keep_up_and_sleep(journal: RunRecorder) -> None:
        kept_up(journal)
        asleep[0] += 31

    monkeypatch.setattr(RunRecorder, "keep_up", keep_up_and_sleep)
    wanted.state = FULL
    before = len(store.writes)
    run = reconcile(cluster)
    assert len(store.writes) == before
    assert run.state == SyncState.RUNNING  # whoever claims the cluster next closes it


def test_a_class_lost_between_its_deletion_and_its_creation_is_made_again(
    cluster: Cluster, wanted: Wanted, gateway: MemoryGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """kill -9."""

    wanted.state = state(priorities=(priority("low", 40),))
    reconcile(cluster)

    def die(_gateway: MemoryGateway, _manifest: Manifest) -> Manifest:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(MemoryGateway, "create", die)
        wanted.state = state(priorities=(priority("low", 45),))
        with pytest.raises(Killed):
            reconcile(cluster)
    assert gateway.get(ObjectRef(PRIORITY_CLASS, "low")) is None
    SyncRun.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert outcomes(reconcile(cluster)) == [("create", "low", True)]
    assert drifts(cluster) == set()


def test_a_failing_cluster_is_tried_less_and_less_often(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    store.faults.append(lambda verb, ref: ClusterUnreachable("gone"))
    wanted.state = FULL
    waits = []
    for _ in range(7):
        with pytest.raises(ClusterUnreachable):
            reconcile(cluster)
        cluster.refresh_from_db()
        assert cluster.sync_due_at is not None
        waits.append((cluster.sync_due_at - timezone.now()).total_seconds())
    assert cluster.failures == 7
    assert waits[0] < 20
    assert all(later > earlier * 1.2 for earlier, later in pairwise(waits[:5]))
    assert max(waits) < LONGEST_RETRY.total_seconds() * 1.2
    store.faults.clear()
    reconcile(cluster)
    cluster.refresh_from_db()
    assert cluster.failures == 0


def test_a_cluster_that_wants_rest_gets_it(cluster: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_gateway: MemoryGateway) -> tuple[str, str]:
        raise ClusterBusy("busy", retry_after=120)

    monkeypatch.setattr(MemoryGateway, "identity", busy)
    with pytest.raises(ClusterBusy):
        reconcile(cluster)
    cluster.refresh_from_db()
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at - timezone.now() > timedelta(seconds=110)


def test_refused_objects_delay_nothing_else_by_more_than_the_usual_period(
    cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    store.faults.append(lambda verb, ref: ClusterRefused("no") if ref.name == "low" else None)
    wanted.state = FULL
    for _ in range(6):
        reconcile(cluster)
    cluster.refresh_from_db()
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at - timezone.now() < RESYNC * 1.3


def test_an_unwanted_namespace_that_is_leaving_is_not_deleted_again(
    cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    wanted.state = FULL
    reconcile(cluster)
    leaving(store, "runai-vision")
    wanted.state = state(priorities=PRIORITIES)
    assert ("delete", "runai-vision", True) not in outcomes(reconcile(cluster))


def test_a_wanted_namespace_that_is_leaving_is_waited_for(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    wanted.state = FULL
    reconcile(cluster)
    leaving(store, "runai-vision")
    run = reconcile(cluster)
    outcome = run.outcomes.get()
    assert (outcome.name, outcome.ok) == ("runai-vision", False)
    assert "is being deleted" in outcome.message
    del store.objects[(NAMESPACE.key, "", "runai-vision")]
    mark_dirty(cluster)
    assert outcomes(reconcile(cluster)) == [("create", "runai-vision", True)]


def leaving(store: MemoryStore, name: str) -> None:
    """Somebody asked for the namespace's deletion; what is inside has not gone yet."""
    live = store.objects[(NAMESPACE.key, "", name)]
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    MemoryGateway(store)._note("MODIFIED", ObjectRef(NAMESPACE, name), live)


def test_many_namespaces_to_go_cost_one_list_per_kind(
    cluster: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted.state = projects(30)
    reconcile(cluster)
    spaces: dict[str, int] = defaultdict(int)
    real = MemoryGateway.list

    def count(gateway: MemoryGateway, kind: object, *, namespace: str = "", **options: bool) -> object:
        spaces[namespace] += 1
        return real(gateway, kind, namespace=namespace, **options)  # type: ignore[arg-type] # counted, passed on

    monkeypatch.setattr(MemoryGateway, "list", count)
    wanted.state = state(priorities=PRIORITIES)
    assert reconcile(cluster).state == SyncState.SUCCEEDED
    assert set(spaces) == {""}


@pytest.mark.parametrize(("theirs", "ok"), [({"status": {"used": 1}}, True), ({"description": "mine"}, False)])
def test_f11_a_status_written_in_between_is_no_conflict_but_a_foreign_hand_is(
    synced: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, theirs: Manifest, ok: bool
) -> None:
    real = MemoryGateway.update
    once = iter([True])

    def raced(gateway: MemoryGateway, manifest: Manifest, *, observed: Manifest) -> Manifest:
        if next(once, None):
            ref = ObjectRef(KAI_QUEUE, manifest["metadata"]["name"])
            place = (KAI_QUEUE.key, "", ref.name)
            gateway.store.objects[place] |= theirs
            gateway._note("MODIFIED", ref, gateway.store.objects[place])
        return real(gateway, manifest, observed=observed)

    monkeypatch.setattr(MemoryGateway, "update", raced)
    wanted.state = state(project("vision", deserved=6), priorities=PRIORITIES, departments=FULL.departments)
    assert outcomes(reconcile(synced)) == [("update", "project.1.a100", ok)]
    if not ok:  # it is looked at again and decided anew
        assert outcomes(reconcile(synced)) == [("update", "project.1.a100", True)]
